"""A tool call after lookup and check of its arguments."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, structs

from ..._core.messages import ToolCallBlock
from ..._core.ports import ToolHookDecision, Workspace
from ..._core.tool_names import (
    FORWARDING_TOOL,
    REPLACEMENTS,
    SERVER_PREFIX,
    STAND_INS,
    add_implied_arguments,
    normalize_tool_name,
    split_editor_call,
)
from ..._core.tools import Tool, ToolResult
from ..._platform.argument_paths import read_path_argument
from ...errors import WorkspaceError, suggest_names
from ..run_context import RunContext

MAX_QUOTED_ARGUMENTS = 200
"""Characters of malformed arguments or of a command that an error message quotes."""


class PreparedCall(Struct, frozen=True):
    """A tool call after lookup and check: it can run, or `refusal` says why not.

    Arguments:
        hook: the decision of a hook about the call, if there is one.
    """

    call: ToolCallBlock
    tool: Tool | None = None
    arguments: Any = None
    refusal: ToolResult | None = None
    hook: ToolHookDecision | None = None

    @property
    def name(self) -> str:
        """Name of the tool; the name in the call if there is no such tool."""
        return self.tool.name if self.tool else self.call.name

    @property
    def checked_arguments(self) -> dict[str, Any]:
        """The checked arguments by name."""
        if isinstance(self.arguments, Struct):
            return structs.asdict(self.arguments)
        return self.call.arguments


def prepare_call(run: RunContext, call: ToolCallBlock) -> PreparedCall:
    """Look up the tool of a call and check its arguments; a fault becomes an error result."""
    if call.name not in run.tools and not call.malformed:
        try:
            meant = split_editor_call(call.name, call.arguments)
        except ValueError as error:
            return refuse_call(call, None, f"Invalid arguments for {call.name}: {error}")
        if meant:
            call = structs.replace(call, name=meant[0], arguments=meant[1])
    name = call.name if call.name in run.tools else normalize_tool_name(call.name)
    if name not in run.tools and name in STAND_INS:
        name, arguments = STAND_INS[name]
        call = structs.replace(call, arguments=arguments)
    # A tool of a server counts as the server lists it now.
    tool = run.tools.find(name) if name.startswith(SERVER_PREFIX) else run.tools.get(name)
    if tool is None:
        hint = _find_replacement(run, name) or suggest_names(call.name, run.tools)
        if name.startswith(SERVER_PREFIX) and FORWARDING_TOOL in run.tools:
            hint = f"Find it with mcp_find, and call it with {FORWARDING_TOOL}."
        return refuse_call(call, None, f"There is no tool {call.name!r} here. {hint}")
    if call.malformed:
        quoted = call.malformed[:MAX_QUOTED_ARGUMENTS]
        text = f"The arguments of {name} were not a JSON object: {quoted!r}."
        return refuse_call(call, tool, f"{text} Send the call again with valid JSON.")
    try:
        if tool.forward:
            name, arguments = tool.forward(call.arguments)
            return prepare_call(run, structs.replace(call, name=name, arguments=arguments))
        sent = add_implied_arguments(call.name, call.arguments)
        arguments = tool.read_arguments(sent, called=call.name)
        _read_path(run.environment.workspace, tool.path_argument, arguments)
        return PreparedCall(structs.replace(call, arguments=arguments), tool, tool.parse(arguments))
    except (ValueError, TypeError) as error:
        from ..._core.schemas.mismatch import explain_mismatch  # only a mistake needs it

        reason = explain_mismatch(error, tool.parameters)
        return refuse_call(call, tool, f"Invalid arguments for {name}: {reason}")


def _find_replacement(run: RunContext, name: str) -> str:
    """Say how the run can do what a tool of another program does; "" if it cannot, or unknown."""
    text, needed = REPLACEMENTS.get(name.lower(), ("", ()))
    if any(tool not in run.tools for tool in needed):
        return ""
    arguments = (
        f"{tool} takes {', '.join(run.tools[tool].parameters['properties'])}." for tool in needed
    )
    return " ".join((text, *arguments))


def _read_path(workspace: Workspace, name: str, arguments: dict[str, Any]) -> None:
    """Expand or refuse a path in the arguments, before rules judge the call and anyone sees it.

    Raises ValueError.
    """
    path = arguments.get(name)
    if not isinstance(path, str):
        return

    def exists(path: str) -> bool:
        try:
            workspace.stat(path)
        except WorkspaceError as error:
            # Whatever else is wrong with the path, the tool says it better.
            return not isinstance(error.__cause__, (FileNotFoundError, NotADirectoryError))
        return True

    try:
        arguments[name] = read_path_argument(path, exists)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def refuse_call(call: ToolCallBlock, tool: Tool | None, text: str) -> PreparedCall:
    """Return a call that does not run. `text`: says why."""
    return PreparedCall(call, tool, refusal=ToolResult(text, error=True))
