"""What a call did, for the scrollback: its line, and below it what came of it; edits as a diff."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from itertools import islice

from ..._core.messages import Call
from ..._core.tools import ToolResult, canonical
from ...projections.run_tree import RunView
from .text import Glyphs, Line, clean, cut, describe, fit, one_line, width
from .tree_lines import figures, outcome

SHOWN = {"bash": 5, "edit": 24, "write": 8, "todo": 20}
"""Lines shown of a tool's outcome; any other's is told in its own line."""


def step(
    call: Call,
    result: ToolResult,
    child: RunView | None,
    columns: int,
    signs: Glyphs,
    *,
    whole: bool = False,
) -> list[Line]:
    """A finished call.

    Arguments:
        child: the run it began, if it is a task. columns: width of the screen. whole: everything that came of it.
    """
    head = (
        f"> task{_label(child)}: {one_line(child.prompt)}"
        if child
        else f"{signs.head}{describe(call)}"
    )
    lines: list[Line] = [[(cut(head, columns, signs.more), "bold red" if result.error else "bold")]]
    if child and not whole:
        ending = f"{outcome(child)} ({signs.dot.join(figures(child, child.finished))})"
        return [
            *lines,
            _hooked(
                [(ending, "green" if child.report and child.report.ok else "yellow")],
                columns,
                signs,
            ),
        ]
    if not whole and not result.error and canonical(call.name) not in SHOWN:
        words = f"{signs.head}{describe(call)}"
        shown, tail = fit(
            words,
            [one_line(result.display or _brief(result.text))],
            columns,
            signs,
            least=len(words),
        )
        return [[(shown, ""), (tail, "dim")]]
    body = (
        [(clean(line), "") for line in result.text.splitlines()]
        if whole
        else list(_body(call, result))
    )
    limit = len(body) if whole else SHOWN.get(canonical(call.name), 1)
    lines += [_hooked([line], columns, signs, first=not n) for n, line in enumerate(body[:limit])]
    if len(body) > limit and limit > 1:
        lines.append(
            _hooked(
                [(f"{signs.more} {len(body) - limit:,} more lines (ctrl+o)", "dim")],
                columns,
                signs,
                first=False,
            )
        )
    return lines


def _label(child: RunView) -> str:
    return f" ({one_line(child.description)})" if child.description else ""


def _hooked(
    line: Iterable[tuple[str, str]], columns: int, signs: Glyphs, *, first: bool = True
) -> Line:
    stem = f"  {signs.hook}" if first else " " * (2 + len(signs.hook))
    return [
        (stem, "dim"),
        *(
            (cut(words.expandtabs(4), columns - width(stem), signs.more), style)
            for words, style in line
        ),
    ]


def _body(call: Call, result: ToolResult) -> Iterator[tuple[str, str]]:
    name = canonical(call.name)
    if result.error:
        yield from ((clean(line), "red") for line in islice(result.text.splitlines(), 3))
    elif name == "edit":
        yield from _diff(
            str(call.arguments.get("old_string", "")), str(call.arguments.get("new_string", ""))
        )
    elif name == "write":
        yield from (
            (f"+ {clean(line)}", "green")
            for line in str(call.arguments.get("content", "")).splitlines()
        )
    elif name in ("bash", "todo"):
        yield from ((clean(line), "dim") for line in result.text.splitlines())


def _brief(text: str) -> str:
    count = text.count("\n") + 1
    return text if count == 1 else f"{count:,} lines"


def _diff(old: str, new: str) -> Iterator[tuple[str, str]]:
    for line in islice(
        difflib.unified_diff(old.splitlines(), new.splitlines(), n=2, lineterm=""), 2, None
    ):
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "dim")
        if not line.startswith("@@"):
            yield f"{line[:1]} {clean(line[1:])}", style
