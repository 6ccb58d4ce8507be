"""MCP servers declared by agent files for one agent, before any check.

Also has quick checks of files' bytes, for the start of a session.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from ..._platform.regular_files import read_regular_file
from .fields import ServerEntry
from .locations import (
    AGENT_LOCATIONS,
    COMMAND_LOCATIONS,
    SKILL_LOCATIONS,
    Location,
    find_locations,
    list_files,
)

_KEYS = (b"mcpServers", b"mcp_servers", b"mcp-servers")
# Without one of these, a command or skill neither runs a shell command nor allows a tool.
_RIGHTS = (b"!`", b"```!", b"!{", b"allowed-tools")


class DeclaredServer(Struct, frozen=True):
    """A server declared in an agent's file, used only by that agent's runs."""

    agent: str
    name: str
    entry: ServerEntry
    path: str
    dialect: str
    place: str = ""  # the file's project folder, "" for the user's files


def may_declare_servers(folder: str, user_home: str) -> bool:
    """Search the bytes of a project's and a user's agent files for MCP servers."""
    return _have_text(find_locations(AGENT_LOCATIONS, folder, user_home), _KEYS)


def may_have_rights(folder: str, user_home: str) -> bool:
    """Search the bytes of a project's commands and skills for shell commands and allowed tools."""
    locations = find_locations((*COMMAND_LOCATIONS, *SKILL_LOCATIONS), folder, user_home)
    return _have_text((each for each in locations if each.place), _RIGHTS)


def _have_text(locations: Iterable[Location], texts: tuple[bytes, ...]) -> bool:
    return any(
        _has_text(path, texts) for location in locations for path in list_files(location, [])
    )


def _has_text(path: str, texts: tuple[bytes, ...]) -> bool:
    try:
        content = read_regular_file(path)
    except (OSError, ValueError):  # the file's reader reports it
        return False
    return any(text in content for text in texts)
