"""Words for screens: figures, widths, cuts, glyphs and colours; and `clean`, through which all foreign text goes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from zlib import crc32

from msgspec import Struct

from ...projections.safe_text import describe_call, sanitize, sanitize_line

__all__ = [
    "Glyphs",
    "Line",
    "agent_color",
    "choose_glyphs",
    "count_noun",
    "describe_call",
    "display_width",
    "fit_with_figures",
    "format_seconds",
    "format_tokens",
    "last_lines",
    "paint",
    "sanitize",
    "sanitize_line",
    "truncate",
    "wrap",
]

Line = Sequence[tuple[str, str]]
"""One line of a screen: stretches of text, each with the name of its style."""

_NARROW = re.compile("[\\x20-\\x7e├└│─⎿●→·…▸▰▱]*").fullmatch
"""Whether every character takes one column: our own signs must not cost the import of a table of all widths."""

_SGR = {
    "bold": "1",
    "dim": "2",
    "reverse": "7",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
_AGENT_COLORS = ("cyan", "green", "magenta", "blue")


class Glyphs(Struct, frozen=True):
    """The signs a tree is drawn with."""

    tee: str = "├─ "
    end: str = "└─ "
    bar: str = "│  "
    hook: str = "⎿ "
    head: str = "● "
    arrow: str = "→ "
    dot: str = " · "
    more: str = "…"
    mark: str = "▸"
    full: str = "▰"
    empty: str = "▱"


UNICODE = Glyphs()
ASCII = Glyphs("|- ", "`- ", "|  ", "> ", "* ", "-> ", " - ", "..", ">", "#", "-")


def choose_glyphs(encoding: str | None) -> Glyphs:
    """The signs that a stream of this encoding can carry; None is a stream of text, which carries all."""
    try:
        "├└│─⎿●→·…▸▰▱".encode(encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return ASCII
    return UNICODE


def format_tokens(count: int) -> str:
    """A count of tokens in at most six columns: 950, 41.4k, 1.2M."""
    if count < 1000:
        return str(count)
    return f"{count / 1000:.1f}k" if count < 999_950 else f"{count / 1_000_000:.1f}M"


def format_seconds(span: float) -> str:
    """A span of time: 4.2s, 29s, 1m 04s, 2h 05m. `span`: in seconds."""
    if span < 9.95:
        return f"{span:.1f}s"
    whole = int(span + 0.05)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02}s"
    return f"{whole // 3600}h {whole % 3600 // 60:02}m"


def count_noun(count: int, one: str) -> str:
    """The count with its noun: 1 tool use, 2 tool uses."""
    return f"{count:,} {one}" if count == 1 else f"{count:,} {one}s"


def display_width(text: str) -> int:
    """Columns the text takes on a terminal; Chinese and the like take two each."""
    if _NARROW(text):
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def truncate(text: str, columns: int, more: str = "…") -> str:
    """The text if it fits in so many columns, else its beginning with `more` at the end."""
    if display_width(text) <= columns:
        return text
    if columns <= len(more):
        return more[: max(0, columns)]
    if _NARROW(text):
        return text[: columns - len(more)] + more
    from rich.cells import set_cell_size

    return set_cell_size(text, columns - len(more)).rstrip() + more


def wrap(line: str, columns: int) -> Iterator[str]:
    """The line in lines of at most so many columns, broken between words where that can be."""
    room = max(2, columns)
    while display_width(line) > room:
        head = truncate(line, room, "")
        at = head.rfind(" ") if line[len(head) : len(head) + 1] != " " else len(head)
        at = at if at > 0 else len(head) or 1
        yield line[:at]
        line = line[at:].lstrip(" ")
    yield line


def last_lines(text: str, columns: int, most: int) -> list[str]:
    """The last lines of a text, at most so many, broken between words to fit in so many columns."""
    words = text.strip("\n")[-most * columns :]
    return (
        [part for line in words.split("\n") for part in wrap(line.expandtabs(4), columns)][-most:]
        if words
        else []
    )


def fit_with_figures(
    words: str,
    figures: Sequence[str],
    columns: int,
    signs: Glyphs,
    *,
    in_brackets: bool = False,
    min_columns: int = 12,
) -> tuple[str, str]:
    """Words and the figures behind them, made to fit in so many columns: (words, tail).

    The words are cut first; when fewer than `least` columns would be left to them, figures go, the first ones first.
    """
    left = list(figures)
    while True:
        joined = signs.dot.join(left)
        tail = (f" ({joined})" if in_brackets else signs.dot + joined) if left else ""
        room = columns - display_width(tail)
        if not left or room >= min(display_width(words), min_columns):
            return truncate(words, room, signs.more), tail
        left.pop(0)


def agent_color(agent: str) -> str:
    """The style of an agent's name: always the same for the same name."""
    known = {"explore": "cyan", "general": "green"}
    return (
        known.get(agent)
        or _AGENT_COLORS[crc32(agent.encode("utf-8", "replace")) % len(_AGENT_COLORS)]
    )


def paint(lines: Iterable[Line], *, color: bool) -> str:
    """The lines as text, each ended by a line feed; with `color`, styles as ANSI sequences."""
    return "".join(
        "".join(_painted(text, style if color else "") for text, style in line) + "\n"
        for line in lines
    )


def _painted(text: str, style: str) -> str:
    codes = ";".join(_SGR[name] for name in style.split())
    return f"\x1b[{codes}m{text}\x1b[0m" if codes and text else text
