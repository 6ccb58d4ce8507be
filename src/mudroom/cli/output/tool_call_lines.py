"""What a call did, for the scrollback: its line, and below it what came of it; edits as a diff."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from itertools import islice

from ..._core.messages import ToolCallBlock
from ..._core.tools import ToolResult, canonical_tool_name
from ...projections.run_tree import RunView
from .text import (
    Glyphs,
    Line,
    describe_call,
    display_width,
    fit_with_figures,
    sanitize,
    sanitize_line,
    truncate,
)
from .tree_lines import describe_outcome, format_figures

MAX_SHOWN_LINES = {"bash": 5, "edit": 24, "write": 8, "todo": 20}
"""Lines shown of a tool's outcome; any other's is told in its own line."""


def format_tool_call(
    call: ToolCallBlock,
    result: ToolResult,
    child: RunView | None,
    columns: int,
    signs: Glyphs,
    *,
    full: bool = False,
) -> list[Line]:
    """A finished call.

    Arguments:
        child: the run it began, if it is a task. columns: width of the screen. whole: everything that came of it.
    """
    head = (
        f"> task{_label(child)}: {sanitize_line(child.prompt)}"
        if child
        else f"{signs.head}{describe_call(call)}"
    )
    lines: list[Line] = [
        [(truncate(head, columns, signs.more), "bold red" if result.error else "bold")]
    ]
    if child and not full:
        ending = f"{describe_outcome(child)} ({signs.dot.join(format_figures(child, child.finished_at))})"
        return [
            *lines,
            _hooked(
                [(ending, "green" if child.report and child.report.ok else "yellow")],
                columns,
                signs,
            ),
        ]
    if not full and not result.error and canonical_tool_name(call.name) not in MAX_SHOWN_LINES:
        words = f"{signs.head}{describe_call(call)}"
        shown, tail = fit_with_figures(
            words,
            [sanitize_line(result.display or _brief(result.text))],
            columns,
            signs,
            min_columns=len(words),
        )
        return [[(shown, ""), (tail, "dim")]]
    body = (
        [(sanitize(line), "") for line in result.text.splitlines()]
        if full
        else list(_body(call, result))
    )
    limit = len(body) if full else MAX_SHOWN_LINES.get(canonical_tool_name(call.name), 1)
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
    return f" ({sanitize_line(child.description)})" if child.description else ""


def _hooked(
    line: Iterable[tuple[str, str]], columns: int, signs: Glyphs, *, first: bool = True
) -> Line:
    stem = f"  {signs.hook}" if first else " " * (2 + len(signs.hook))
    return [
        (stem, "dim"),
        *(
            (truncate(words.expandtabs(4), columns - display_width(stem), signs.more), style)
            for words, style in line
        ),
    ]


def _body(call: ToolCallBlock, result: ToolResult) -> Iterator[tuple[str, str]]:
    name = canonical_tool_name(call.name)
    if result.error:
        yield from ((sanitize(line), "red") for line in islice(result.text.splitlines(), 3))
    elif name == "edit":
        yield from _diff(
            str(call.arguments.get("old_string", "")), str(call.arguments.get("new_string", ""))
        )
    elif name == "write":
        yield from (
            (f"+ {sanitize(line)}", "green")
            for line in str(call.arguments.get("content", "")).splitlines()
        )
    elif name in ("bash", "todo"):
        yield from ((sanitize(line), "dim") for line in result.text.splitlines())


def _brief(text: str) -> str:
    count = text.count("\n") + 1
    return text if count == 1 else f"{count:,} lines"


def _diff(old: str, new: str) -> Iterator[tuple[str, str]]:
    for line in islice(
        difflib.unified_diff(old.splitlines(), new.splitlines(), n=2, lineterm=""), 2, None
    ):
        style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "dim")
        if not line.startswith("@@"):
            yield f"{line[:1]} {sanitize(line[1:])}", style
