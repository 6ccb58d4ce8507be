"""Uses MCP servers without a model: lists their tools, calls one."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import termios
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, cast
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from ...._adapters.integrations.mcp_servers.servers import McpServers
from ...._adapters.integrations.mcp_servers.spec import ServerSpec
from ...._core.listings import count_noun
from ...._core.ports import ApprovalDecision, ServerStatus, ToolContext
from ...._core.ports.approval import FormField, InputForm, list_fields, parse_value
from ...._core.tool_names import make_server_pattern, make_server_tool_name
from ...._core.tools import Tool
from ...._projections.safe_text import escape_hidden, escape_line, sanitize, sanitize_line
from ...._session.config import Settings
from ....errors import UnknownName, UsageError
from ...output.listing import print_entry, print_rows
from ...output.progress import print_notice
from ..load_settings import load_settings
from .load_programs import require_programs
from .print_programs import TRUST_HINT

_YES_OR_NO = FormField("answer", "boolean", is_required=True)


def _has_terminal() -> bool:
    streams = (sys.stdin, sys.stderr)
    return all(stream is not None and not stream.closed and stream.isatty() for stream in streams)


async def _ask(form: InputForm) -> ApprovalDecision:
    # Input typed before the question appeared must not answer it.
    with suppress(termios.error):  # the terminal is gone: end of input declines
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
    print_notice(f"MCP server {form.server} asks: {escape_hidden(form.message)}", prefix="")
    fields = list_fields(form)
    if form.url:
        host = escape_hidden(urlsplit(form.url).hostname or "?")
        print_notice(
            f"It wants you to open this address:\n{escape_hidden(form.url)}\n"
            f"on the host {host}. mudroom does not open it.",
            prefix="",
        )
    if not fields:
        return _decide(await _ask_field(_YES_OR_NO, "Do you agree? (yes or no)") is True)
    print_notice("Ctrl-D declines.", prefix="")
    values: dict[str, Any] = {}
    for field in fields:
        value = await _ask_field(field, _describe_field(field))
        if value is _DECLINED:
            return _decide(False)
        if value is not None:
            values[field.name] = value
    return ApprovalDecision(True, "the user answered", arguments=values)


def _decide(is_allowed: bool) -> ApprovalDecision:
    return ApprovalDecision(is_allowed, "the user answered" if is_allowed else "the user declined")


def _describe_field(field: FormField) -> str:
    notes = [field.description]
    if field.choices:
        labels = ", ".join(label for _, label in field.choices)
        notes.append(f"{'some' if field.kind == 'choices' else 'one'} of: {labels}")
    elif field.kind == "boolean":
        notes.append("yes or no")
    else:
        notes += [field.kind, *field.describe_limits()]
    if field.default is not None:
        text = field.default
        text = text if isinstance(text, str) else msgspec.json.encode(text).decode()
        notes.append(f"Enter alone: {text}")
    elif not field.is_required:
        notes.append("not required")
    return escape_hidden(f"{field.label} ({'; '.join(filter(None, notes))})")


async def _ask_field(field: FormField, title: str) -> object:
    """Ask for a field's value: None for no value, or _DECLINED."""
    while True:
        print_notice(f"{title}:", prefix="")
        line = await _read_line()
        if line is None:
            return _DECLINED
        if not line.strip() and not (field.is_required and field.default is None):
            return field.default
        try:
            return parse_value(field, line)
        except ValueError as error:
            print_notice(escape_hidden(str(error)), prefix="")


async def _read_line() -> str | None:
    """Read a line from the terminal, None at the end of input."""
    # An event loop's reader, unlike a thread in `readline`, can be cancelled.
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()
    handle = sys.stdin.fileno()

    def read() -> None:
        loop.remove_reader(handle)
        try:
            data = os.read(handle, 1 << 16)
        except OSError:  # the terminal is gone
            data = b""
        if not line.done():
            line.set_result(data.decode("utf-8", "replace"))

    loop.add_reader(handle, read)
    try:
        text = await line
    finally:
        loop.remove_reader(handle)
    return text.rstrip("\n") if text else None


# None is also an answer: a field left empty.
_DECLINED = object()


class _FileContext:
    """The part of a ToolContext that servers' tools use."""

    traceparent = ""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    def show_progress(self, line: str) -> None:
        print_notice(sanitize_line(line), prefix="")

    async def ask_user(self, form: InputForm) -> ApprovalDecision:
        """Ask one question at a time, if stdin and stderr are terminals. Ctrl-D declines."""
        if not _has_terminal():
            why = "declined without asking: stdin or stderr is not a terminal"
            print_notice(f"{why}: {sanitize_line(form.message)}", prefix="")
            return ApprovalDecision(False, "no one can be asked")
        async with self._lock:
            return await _ask(form)

    def spill_path(self, name: str) -> str:
        handle, path = tempfile.mkstemp(prefix=f"mudroom-{name}-", suffix=".txt")
        os.close(handle)
        return path


def print_tools(cwd: str, name: str | None) -> int:
    settings = load_settings(cwd)
    programs = require_programs(settings, cwd)
    waiting = [each.name for each in programs.untrusted if isinstance(each, ServerSpec)]
    servers = _open_servers(programs.servers, settings, cwd, name)
    return asyncio.run(_print_tools(servers, [] if name else waiting))


async def _print_tools(servers: McpServers, waiting: Sequence[str]) -> int:
    try:
        await servers.refresh()
        rows: list[tuple[str, str]] = []
        for status in servers.list_states():
            rows.append((escape_line(status.name), describe_status(status)))
            rows += list_tool_rows(servers.tools.values(), status.name)
        rows += [(escape_line(name), "not used: not trusted") for name in waiting]
        print_rows(rows or [("no MCP servers. To add one: mudroom mcp add", "")])
        if waiting:
            print_entry(TRUST_HINT)
        return int(any(status.state == "failed" for status in servers.list_states()))
    finally:
        await servers.close()


def list_tool_rows(tools: Iterable[Tool], server: str) -> list[tuple[str, str]]:
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
    if status.left_out:
        parts.append(escape_line(status.left_out))
    return ", ".join(parts)


def call_tool(cwd: str, server: str, tool: str, arguments: str) -> int:
    """Call a tool of a server and print its result. Raises UsageError, UnknownName."""
    try:
        parsed = msgspec.json.decode(arguments or "{}", type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise UsageError(
            f"the arguments are not a JSON object: {error}",
            remedy=f"""Write for example: mudroom mcp call {server} {tool} '{{"path": "."}}'""",
        ) from error
    name = make_server_tool_name(server, tool)
    settings = load_settings(cwd)
    servers = _open_servers(require_programs(settings, cwd).servers, settings, cwd, server)
    return asyncio.run(_call_tool(servers, name, parsed))


async def _call_tool(servers: McpServers, name: str, arguments: dict[str, Any]) -> int:
    try:
        # Each line explains why a server cannot be used; there is only one server here.
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


def _open_servers(
    specs: Sequence[ServerSpec], settings: Settings, cwd: str, name: str | None
) -> McpServers:
    """Open all servers, or the one with this name. Raises UnknownName."""
    if name and name not in (known := {spec.name for spec in specs}):
        raise UnknownName("MCP server", name, known, remedy="See why one is not used: mudroom mcp.")
    return make_servers([spec for spec in specs if name in (None, spec.name)], settings, cwd)


def make_servers(specs: Sequence[ServerSpec], settings: Settings, cwd: str) -> McpServers:
    from ...._adapters.output_filters import Redactor
    from ...._adapters.tools._image_files import parse_image_or_reason

    return McpServers(
        # No agent runs here, so also use the servers that belong to a single agent.
        [replace(spec, agent="") for spec in specs],
        folder=os.path.realpath(cwd),
        environ=os.environ,
        cache_folder=os.path.join(settings.home, "mcp"),
        # The user typed the call, which is all the permission it needs.
        is_allowed=lambda _: True,
        parse_image=parse_image_or_reason,
        make_redact=Redactor,
        # The command itself shows why a server cannot be used.
        logs_failures=False,
    )
