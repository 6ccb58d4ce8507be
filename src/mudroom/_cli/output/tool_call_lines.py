"""A finished tool call as lines: the call, and its result below; edits as a diff."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..._adapters.tools import find_builtin_tool
from ..._core.events import ToolCallStarted
from ..._core.listings import count_noun
from ..._core.messages import ToolCallBlock, append_placeholders
from ..._core.tools import Tool, ToolResult
from ..._projections.run_view import RunView
from ..._projections.safe_text import describe_call, sanitize, sanitize_line
from .text import Glyphs, Line, fit_with_figures, measure_width, split_line, truncate
from .tree_lines import describe_outcome, describe_task, format_figures

# Styles of added and removed lines; others are dim.
DIFFERENCE_STYLES = {"+": "green", "-": "red"}
# Lines of an error to show.
_ERROR_LINES = 5


def format_tool_call(
    started: ToolCallStarted,
    result: ToolResult,
    child: RunView | None,
    columns: int,
    glyphs: Glyphs,
    *,
    full: bool = False,
) -> list[Line]:
    """Format a finished tool call, with the full result if `full`. `child` is a task's run."""
    if child and not full:
        return format_task(child, columns, glyphs, is_error=result.error)
    call = started.call
    tool = find_builtin_tool(call.name)
    title = f"{glyphs.head}{describe_call(call, started.title)}"
    limit = tool.preview_lines if tool else 0
    if not full and not result.error and not limit:
        return [_format_in_one_line(title, result, columns, glyphs)]
    title = describe_task(child) if child else title
    lines = [_format_title(title, columns, glyphs, is_error=result.error)]
    room = columns - measure_width(_make_stem(glyphs))
    limit = max(limit, _ERROR_LINES) if result.error else limit
    if full:
        text = append_placeholders(result.text, result.images)
        body = list(_wrap_rows(((sanitize(line), "") for line in text.splitlines()), room))
        limit = len(body)
    else:
        body = list(_format_preview(tool, call, result))
        wrapped = list(_wrap_rows(body, room))
        is_difference = tool is not None and tool.view == "diff"
        if is_difference or (result.error and (len(body) == 1 or len(wrapped) <= limit)):
            body = wrapped
    for n, row in enumerate(_cut_middle(body, limit, glyphs)):
        lines.append(_indent([row], columns, glyphs, is_first=n == 0))
    return lines


def _cut_middle(rows: list[tuple[str, str]], limit: int, glyphs: Glyphs) -> list[tuple[str, str]]:
    """Keep head and tail with a note about the rows between; never cut just one row."""
    if len(rows) <= limit + 1:
        return rows
    tail = (limit + 1) // 2
    head = limit - tail
    note = f"{glyphs.more} {count_noun(len(rows) - limit, 'more line')} (ctrl+o)"
    return [*rows[:head], (note, "dim"), *rows[-tail:]]


def _wrap_rows(rows: Iterable[tuple[str, str]], columns: int) -> Iterator[tuple[str, str]]:
    """Wrap lines whose end matters: changes in a diff, an error's remedy."""
    for text, style in rows:
        for row in split_line([(text, style)], columns):
            yield "".join(part for part, _ in row), style


def _format_title(title: str, columns: int, glyphs: Glyphs, *, is_error: bool) -> Line:
    return [(truncate(title, columns, glyphs.more), "bold red" if is_error else "bold")]


def format_task(
    child: RunView, columns: int, glyphs: Glyphs, *, is_error: bool = False
) -> list[Line]:
    """Format a child's task, and below it the outcome, or that it is still running."""
    outcome, figures = fit_with_figures(
        describe_outcome(child) or "works in the background",
        format_figures(child, child.finished_at or None),
        columns - measure_width(_make_stem(glyphs)),
        glyphs,
        in_brackets=True,
    )
    style = "green" if child.report and child.report.ok else "yellow"
    return [
        _format_title(describe_task(child), columns, glyphs, is_error=is_error),
        _indent([(outcome + figures, style)], columns, glyphs),
    ]


def format_finished_command(notification: str, columns: int, glyphs: Glyphs) -> list[Line]:
    title, status = (_read_tag(notification, tag) for tag in ("task", "status"))
    is_error = status != "completed"
    style = "yellow" if is_error else "green"
    return [
        _format_title(f"{glyphs.head}$ {title}", columns, glyphs, is_error=is_error),
        _indent([(f"{status} in the background", style)], columns, glyphs),
    ]


def _read_tag(notification: str, tag: str) -> str:
    return sanitize_line(notification.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0])


def _format_in_one_line(title: str, result: ToolResult, columns: int, glyphs: Glyphs) -> Line:
    summary = sanitize_line(result.display or _summarize(result.text))
    shown, tail = fit_with_figures(title, [summary], columns, glyphs, min_columns=len(title))
    return [(shown, ""), (tail, "dim")]


def _summarize(text: str) -> str:
    count = text.count("\n") + 1
    return text if count == 1 else f"{count:,} lines"


def _indent(
    row: Iterable[tuple[str, str]], columns: int, glyphs: Glyphs, *, is_first: bool = True
) -> Line:
    stem = _make_stem(glyphs) if is_first else " " * len(_make_stem(glyphs))
    room = columns - measure_width(stem)
    parts = [(truncate(text.expandtabs(4), room, glyphs.more), style) for text, style in row]
    return [(stem, "dim"), *parts]


def _make_stem(glyphs: Glyphs) -> str:
    return f"  {glyphs.hook}"


def _format_preview(
    tool: Tool | None, call: ToolCallBlock, result: ToolResult
) -> Iterator[tuple[str, str]]:
    if result.error:
        for line in result.text.splitlines():
            yield sanitize(line), "red"
    elif tool and tool.preview:
        for sign, line in tool.preview(call.arguments, result):
            prefix = f"{sign} " if sign else ""
            yield f"{prefix}{sanitize(line)}", DIFFERENCE_STYLES.get(sign, "dim")
