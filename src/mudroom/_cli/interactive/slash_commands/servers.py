"""Slash command that shows the session's MCP servers and restarts one."""

from __future__ import annotations

import asyncio

from ...._core.ports import ServerStatus
from ...._projections.safe_text import escape_line
from ....errors import UnknownName, UsageError
from ...actions.programs.load_programs import load_programs
from ...actions.programs.use_servers import describe_status, list_tool_rows
from ..conversation import Conversation

_USAGE = "Write /mcp, /mcp NAME or /mcp restart NAME."


async def servers(conversation: Conversation, arguments: str) -> None:
    action, _, name = arguments.partition(" ")
    if action == "restart":
        await _restart(conversation, name.strip())
    elif name:
        raise UsageError(f"/mcp {arguments} is not known", remedy=_USAGE)
    elif action:
        _show_server(conversation, action)
    else:
        await _show_servers(conversation)


async def _show_servers(conversation: Conversation) -> None:
    rows = [row for status in conversation.session.mcp.servers for row in _list_status_rows(status)]
    rows += await asyncio.to_thread(_list_others, conversation)
    if not rows:
        conversation.print_text("This session has no MCP servers. To add one: mudroom mcp add")
        return
    conversation.ui.scrollback.write_table(rows)
    conversation.print_text(
        "/mcp NAME lists the tools of a server; /mcp restart NAME starts it again.", "dim"
    )


def _list_status_rows(status: ServerStatus) -> list[tuple[str, str]]:
    rows = [(escape_line(status.name), describe_status(status))]
    if status.state == "failed":
        # If the server has ended, the reason already quotes the last lines.
        lines = [each for each in status.last_lines.splitlines() if each not in status.reason]
        rows += [("", escape_line(line)) for line in lines]
    return rows


def _list_others(conversation: Conversation) -> list[tuple[str, str]]:
    """List servers of single agents, and servers from files that the session does not use."""
    programs = load_programs(conversation.settings, conversation.session.cwd)
    used = {status.name for status in conversation.session.mcp.servers}
    return [
        (
            escape_line(item.spec.name),
            f"not used: {item.reason}; {item.spec.origin}"
            if item.reason
            else f"only for runs of agent {escape_line(item.spec.agent)}, which start it",
        )
        for item in (programs.listed_servers if programs else ())
        if (item.reason or item.spec.agent) and item.spec.name not in used
    ]


def _show_server(conversation: Conversation, name: str) -> None:
    status = _find_status(conversation, name)
    rows = [(escape_line(name), describe_status(status))]
    rows += list_tool_rows(conversation.session.mcp.tools, name)
    rows += [("error output", escape_line(line)) for line in status.last_lines.splitlines()]
    conversation.ui.scrollback.write_table(rows)


async def _restart(conversation: Conversation, name: str) -> None:
    if not name:
        raise UsageError("/mcp restart needs the name of a server", remedy=_USAGE)
    await conversation.session.mcp.restart(name)
    conversation.ui.scrollback.write_table(
        [(escape_line(name), describe_status(_find_status(conversation, name)))]
    )


def _find_status(conversation: Conversation, name: str) -> ServerStatus:
    statuses = {status.name: status for status in conversation.session.mcp.servers}
    if name not in statuses:
        raise UnknownName("MCP server", name, statuses, remedy="List them: /mcp")
    return statuses[name]
