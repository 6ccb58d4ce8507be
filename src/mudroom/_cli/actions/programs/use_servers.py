"""Uses MCP servers without a model: lists their tools, calls one."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterable, Sequence
from typing import Any, cast

import msgspec
from msgspec.structs import replace

from ...._adapters.integrations.mcp_servers.servers import McpServers
from ...._adapters.integrations.mcp_servers.spec import ServerSpec
from ...._core.listings import count_noun
from ...._core.ports import ApprovalDecision, ServerStatus, ToolContext
from ...._core.ports.approval import InputForm
from ...._core.tool_names import make_server_pattern, make_server_tool_name
from ...._core.tools import Tool
from ...._projections.safe_text import escape_line, sanitize, sanitize_line
from ...._session.config import Settings
from ....errors import UnknownName, UsageError
from ...output.listing import print_rows
from ...output.progress import print_notice
from ..load_settings import load_settings
from .ask_form import TerminalQuestions
from .load_programs import require_programs


class _FileContext:
    """The part of a ToolContext that tools of servers use."""

    traceparent = ""

    def __init__(self) -> None:
        self._questions = TerminalQuestions()

    def show_progress(self, line: str) -> None:
        print_notice(sanitize_line(line), prefix="")

    async def ask_user(self, form: InputForm) -> ApprovalDecision:
        return await self._questions.ask(form)

    def spill_path(self, name: str) -> str:
        handle, path = tempfile.mkstemp(prefix=f"mudroom-{name}-", suffix=".txt")
        os.close(handle)
        return path


def print_tools(cwd: str, name: str) -> int:
    """Start servers and print their tools.

    Arguments:
        name: of one server, "" for all.
    """
    return asyncio.run(_print_tools(_open_servers(cwd, name)))


async def _print_tools(servers: McpServers) -> int:
    try:
        await servers.refresh()
        rows: list[tuple[str, str]] = []
        for status in servers.list_states():
            rows.append((escape_line(status.name), describe_status(status)))
            rows += list_tool_rows(servers.tools.values(), status.name)
        print_rows(rows or [("no MCP servers. To add one: mudroom mcp add", "")])
        return int(any(status.state == "failed" for status in servers.list_states()))
    finally:
        await servers.close()


def list_tool_rows(tools: Iterable[Tool], server: str) -> list[tuple[str, str]]:
    """Return the name and the first line of the description of each of a server's tools."""
    prefix = make_server_pattern(server).removesuffix("*")
    return [
        (f"  {tool.name}", escape_line((tool.description.splitlines() or [""])[0]))
        for tool in tools
        if tool.name.startswith(prefix)
    ]


def describe_status(status: ServerStatus) -> str:
    parts: list[str] = [status.state]
    if status.reason:
        parts = [f"{status.state}: {escape_line(status.reason)}"]
    if status.tools is not None:
        tools = count_noun(status.tools, "tool")
        parts.append(f"{tools} ({status.definition_bytes:,} bytes of definitions)")
    if status.protocol:
        parts.append(f"protocol {status.protocol}")
    if status.pid:
        parts.append(f"process {status.pid}")
    return ", ".join(parts)


def call_tool(cwd: str, server: str, tool: str, arguments: str) -> int:
    """Call a tool of a server and print its result. Raises UsageError, UnknownName.

    Arguments:
        arguments: a JSON object.
    """
    try:
        parsed = msgspec.json.decode(arguments or "{}", type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"the arguments are not a JSON object: {error}",
            remedy=f"""Write for example: mudroom mcp call {server} {tool} '{{"path": "."}}'""",
        ) from error
    name = make_server_tool_name(server, tool)
    return asyncio.run(_call_tool(_open_servers(cwd, server), name, parsed))


async def _call_tool(servers: McpServers, name: str, arguments: dict[str, Any]) -> int:
    try:
        # Each line says why a server cannot be used; there is only one server here.
        for line in await servers.load(servers.patterns):
            raise UsageError(line)
        if name not in servers.tools:
            raise UnknownName("tool", name, servers.tools)
        tool = servers.tools[name]
        try:
            parsed = tool.parse_arguments(arguments)
        except ValueError as error:
            raise UsageError(str(error), where=name) from error
        result = await tool.run(cast("ToolContext", _FileContext()), parsed)
        print(sanitize(result.text))
        return int(result.error)
    finally:
        await servers.close()


def _open_servers(cwd: str, name: str) -> McpServers:
    """Open the servers that a session in the folder would use, or one of them."""
    settings = load_settings(cwd)
    specs = require_programs(settings, cwd).servers
    if name and name not in (known := {spec.name for spec in specs}):
        raise UnknownName("MCP server", name, known, remedy="See why one is not used: mudroom mcp.")
    return make_servers([spec for spec in specs if name in ("", spec.name)], settings, cwd)


def make_servers(specs: Sequence[ServerSpec], settings: Settings, cwd: str) -> McpServers:
    """Make servers for one command."""
    from ...._adapters.output_filters import Redactor
    from ...._adapters.tools._image_files import parse_sendable_image

    return McpServers(
        # No agent runs here, so the servers that only one agent has are used, too.
        [replace(spec, agent="") for spec in specs],
        folder=os.path.realpath(cwd),
        environ=os.environ,
        cache_folder=os.path.join(settings.home, "mcp"),
        # The user types the call, which is all the permission it needs.
        is_allowed=lambda _: True,
        parse_image=parse_sendable_image,
        make_redact=Redactor,
        # The command itself shows why a server cannot be used.
        logs_failures=False,
    )
