"""The text of an approval request: who asks for what, the diff or command, and why."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ...._adapters.tools import find_builtin_tool
from ...._core.ports import MERGE, ApprovalRequest
from ...._core.runs import is_child_id
from ...._core.tools import ToolCategory
from ...._projections.safe_text import (
    escape_hidden,
    escape_line,
    format_arguments,
    make_call_title,
    sanitize_line,
)
from ...output.text import Line
from ...output.tool_call_lines import DIFFERENCE_STYLES

_VERBS = {ToolCategory.RUN: "run a command", ToolCategory.NETWORK: "send a request"}


def format_title(request: ApprovalRequest, merged_child: str = "") -> str:
    act = _describe_act(request)
    if request.tool == MERGE and merged_child:
        act = f"merge the work of {merged_child}"
    return f"{_name_child(request) or 'The main agent'} wants to {act}"


def name_asker(request: ApprovalRequest) -> str:
    return _name_child(request) or "the main agent"


def format_call(request: ApprovalRequest) -> str:
    tool = find_builtin_tool(request.tool)
    title = make_call_title(request.arguments, tool)
    call = sanitize_line(f"{request.tool} {title}")
    child = _name_child(request)
    return f"{child}: {call}" if child else call


def _name_child(request: ApprovalRequest) -> str:
    """Name the asking child, or give its agent and id; "" for the main agent."""
    if not is_child_id(request.run_id):
        return ""
    return sanitize_line(request.name) or f"{sanitize_line(request.agent)}#{request.run_id}"


def format_body(request: ApprovalRequest, parts: Sequence[str] = (), rules: str = "") -> list[Line]:
    """Format the diff or all arguments, and the reason, hiding no character.

    Marks the open parts of a command. `rules` is for answers too short to show what they allow.
    """
    command = request.arguments.get("command")
    if request.category is ToolCategory.RUN and isinstance(command, str):
        lines = list(_format_command(command, parts or [request.command_part]))
    elif request.change:
        lines = [
            *_format_path(request),
            *(
                [(f"  {sign or ' '} {escape_line(text)}", DIFFERENCE_STYLES.get(sign, "dim"))]
                for sign, text in request.change
            ),
        ]
    else:
        text = format_arguments(request.arguments)
        lines = [[(f"  {line}", "bold")] for line in text.split("\n")]
    if rules:
        lines.append([(f"  Always would allow: {rules}", "dim")])
    return [*lines, [(f"  Reason: {escape_line(request.why)}", "dim")]]


def _format_path(request: ApprovalRequest) -> Iterator[Line]:
    """Yield a changed file's path, if the title does not show it in full."""
    tool = find_builtin_tool(request.tool)
    arguments = tool.rename_arguments(request.arguments) if tool else request.arguments
    path = arguments.get(tool.path_argument) if tool and tool.path_argument else None
    if isinstance(path, str) and path != make_call_title(request.arguments, tool):
        yield [(f"  file: {escape_line(path)}", "bold")]


def _describe_act(request: ApprovalRequest) -> str:
    if request.tool == MERGE:
        return f"merge the work of run {sanitize_line(str(request.arguments.get('run')))}"
    if request.category is ToolCategory.WRITE:
        tool = find_builtin_tool(request.tool)
        return f"{sanitize_line(request.tool)} {make_call_title(request.arguments, tool)}"
    kind = _VERBS.get(request.category) if request.category else None
    return kind or f"use {sanitize_line(request.tool)}"


def _format_command(command: str, parts: Sequence[str]) -> Iterator[Line]:
    """Yield a command's lines with open parts in bold yellow, then these parts again."""
    shown = escape_hidden(command)
    open_parts = [escape_hidden(part) for part in parts if part.strip()]
    open_parts = [part for part in open_parts if part.strip() != shown.strip()]
    if not open_parts:
        yield from _number_lines([[(line, "bold")] for line in shown.split("\n")])
        return
    # Longest first, because one part may be the beginning of another.
    pattern = "|".join(map(re.escape, sorted(open_parts, key=len, reverse=True)))
    lines: list[list[tuple[str, str]]] = [[]]
    for n, piece in enumerate(re.split(f"({pattern})", shown)):
        # With a group in the pattern, every other piece is a match.
        style = "bold yellow" if n % 2 else ""
        first, *others = piece.split("\n")
        lines[-1].append((first, style))
        lines += [[(text, style)] for text in others]
    yield from _number_lines(lines)
    for part in dict.fromkeys(open_parts):
        text = part.replace("\n", "\\n")
        yield [(f"  needs approval: {text}", "dim")]


def _number_lines(lines: Sequence[Line]) -> Iterator[Line]:
    # Without numbers, a line beginning with blanks would look like the rest of a wrapped line.
    width = len(str(len(lines)))
    for number, line in enumerate(lines, 1):
        yield [(f"    {number:>{width}}  " if len(lines) > 1 else "  ", ""), *line]
