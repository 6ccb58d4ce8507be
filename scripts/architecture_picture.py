"""Draw docs/assets/architecture.svg: one prompt, its runs, and the record.

The texts use the colour of the page's scheme: the picture is readable in light and dark.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

TARGET = Path(__file__).parents[1] / "docs" / "assets" / "architecture.svg"
WIDTH = 860
HEIGHT = 540
STYLE = """
  .box { fill: #fff; stroke: #57606a; }
  .run { fill: #ddf4ff; stroke: #0969da; }
  .child { fill: #fff8c5; stroke: #9a6700; }
  .record { fill: #dafbe1; stroke: #1a7f37; }
  .line { stroke: #57606a; fill: none; stroke-width: 1.5; }
  .head { fill: #57606a; }
  text { fill: #1f2328; font: 14px system-ui, sans-serif; }
  .title { font-weight: 600; }
  .note { fill: #57606a; font-size: 12.5px; }
  .page { fill: #ffffff; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; }
    .box { fill: #161b22; stroke: #8b949e; }
    .run { fill: #0c2d6b; stroke: #58a6ff; }
    .child { fill: #3b2a04; stroke: #d29922; }
    .record { fill: #0f3a1c; stroke: #3fb950; }
    .line { stroke: #8b949e; }
    .head { fill: #8b949e; }
    text { fill: #e6edf3; }
    .note { fill: #9da7b3; }
  }
"""


def draw_box(x: int, y: int, width: int, height: int, kind: str, *lines: str) -> str:
    """Return a box with a title and notes."""
    parts = [
        f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="8"'
        ' stroke-width="1.5"/>'
    ]
    for n, line in enumerate(lines):
        look = "note" if n else "title"
        parts.append(
            f'<text class="{look}" x="{x + 14}" y="{y + 25 + 19 * n}">{escape(line)}</text>'
        )
    return "\n".join(parts)


def draw_arrow(*points: tuple[int, int]) -> str:
    """Return a line through the points, with a head at its end."""
    way = " ".join(f"{'L' if n else 'M'}{x} {y}" for n, (x, y) in enumerate(points))
    return f'<path class="line" d="{way}" marker-end="url(#head)"/>'


def draw_note(x: int, y: int, text: str) -> str:
    """Return a small text."""
    return f'<text class="note" x="{x}" y="{y}">{escape(text)}</text>'


def draw_picture() -> str:
    """Return the picture as SVG."""
    parts = [
        f'<rect class="page" width="{WIDTH}" height="{HEIGHT}" rx="10"/>',
        draw_box(20, 20, 190, 66, "box", "You", "prompts, decisions"),
        draw_box(
            270,
            20,
            250,
            108,
            "run",
            "Root run 1",
            "its own conversation",
            "tools, permissions, budget",
            "the task tool starts children",
        ),
        draw_box(620, 20, 220, 66, "box", "Model", "a provider, local, or scripted"),
        draw_box(
            60,
            220,
            220,
            108,
            "child",
            "Child run 1.1.1",
            "empty conversation at start",
            "narrowed tools",
            "part of the budget",
        ),
        draw_box(
            310,
            220,
            220,
            108,
            "child",
            "Child run 1.1.2",
            "empty conversation at start",
            "narrowed tools",
            "part of the budget",
        ),
        draw_box(
            620,
            220,
            220,
            108,
            "box",
            "Environment of a run",
            "workspace: the files it sees",
            "sandbox: its commands",
            "permission policy",
        ),
        draw_box(
            20,
            400,
            510,
            76,
            "record",
            "Journal",
            "every event, written before anything depends on it",
            "one SQLite file per session",
        ),
        draw_box(
            620,
            400,
            220,
            104,
            "box",
            "Projections",
            "terminal, viewer, stream-json",
            "ledger, run tree, transcript",
            "resume and replay",
        ),
        draw_arrow((210, 53), (266, 53)),
        draw_arrow((520, 53), (616, 53)),
        draw_note(534, 45, "requests"),
        draw_arrow((330, 128), (330, 172), (170, 172), (170, 216)),
        draw_arrow((420, 128), (420, 216)),
        draw_note(20, 164, "brief: prompt, agent,"),
        draw_note(20, 182, "tools, budget"),
        draw_arrow((250, 220), (250, 196), (370, 196), (370, 132)),
        draw_arrow((480, 220), (480, 132)),
        draw_note(490, 180, "report and evidence"),
        draw_arrow((530, 274), (616, 274)),
        draw_note(540, 266, "tool calls"),
        draw_arrow((170, 328), (170, 396)),
        draw_arrow((420, 328), (420, 396)),
        draw_note(182, 368, "events of all runs"),
        draw_arrow((530, 433), (616, 433)),
        draw_note(
            20, 506, "Only briefs, messages and reports pass between runs. No other part of one"
        ),
        draw_note(20, 525, "conversation is in a request of another."),
    ]
    drawing = "\n".join(parts)
    title = "One prompt, its runs, and the record"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' aria-label="{title}">\n<title>{title}</title>\n<style>{STYLE}</style>\n'
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8"'
        ' markerHeight="8" orient="auto"><path class="head" d="M0 0 L8 4 L0 8 z"/></marker>'
        "</defs>\n"
        f"{drawing}\n</svg>\n"
    )


if __name__ == "__main__":
    TARGET.write_text(draw_picture(), "utf-8")
