"""The files that can declare MCP servers, and the servers in them, not yet checked."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, cast

import msgspec
from msgspec import Struct

from ..config_files import Finding, read_bytes, read_json, read_toml
from ..file_names import CLAUDE_STATE, PROJECT_SERVERS, USER_SERVERS
from .spec import Scope

CLAUDE_SETTINGS = (".claude/settings.local.json", ".claude/settings.json")
_KEYS = {"vscode": "servers", "codex": "mcp_servers", "opencode": "mcp"}
_ONLY_SERVERS = (".mcp.json", "/mcp.json")


class ServerEntry(Struct, frozen=True):
    """A server as written in a file.

    Arguments:
        format: the program whose format the file has.
        place, agent: see ServerSpec.
    """

    name: str
    entry: Any
    path: str
    format: str
    scope: Scope
    place: str = ""
    agent: str = ""


def list_entries(
    places: list[str], user_home: str, own_file: str, findings: list[Finding]
) -> Iterator[ServerEntry]:
    """Yield the servers in all files, highest precedence first.

    Arguments:
        places: folders of the project, nearest first.
        own_file: mudroom's own file, in the format of `.mcp.json`; "" for none.
    """
    user_files = [(os.path.join(user_home, name), form) for name, form in USER_SERVERS if user_home]
    state_path = os.path.join(user_home, CLAUDE_STATE) if user_home else ""
    state = _read_state(state_path, findings) if user_home else _ClaudeState()
    for name, entry in state.read_project(places, state_path, findings):
        yield ServerEntry(name, entry, state_path, "claude", "local")
    disabled = _list_disabled(places, user_home, state, findings)
    taken = {path for path, _ in user_files}
    for place in places:
        yield from _list_project_entries(place, taken, disabled, findings)
    if own_file:
        for name, entry in _read_file(own_file, "claude", findings):
            yield ServerEntry(name, entry, own_file, "claude", "user")
    for name, entry in _as_table(state.mcp_servers).items():
        yield ServerEntry(name, entry, state_path, "claude", "user")
    for path, form in user_files:
        for name, entry in _read_file(path, form, findings):
            yield ServerEntry(name, entry, path, form, "user")


def _list_project_entries(
    place: str, taken: set[str], disabled: dict[str, str], findings: list[Finding]
) -> Iterator[ServerEntry]:
    """Yield the servers in the files of one folder.

    Arguments:
        taken: paths of the user's own files, which are read elsewhere.
        disabled: servers of `.mcp.json` that are turned off, with the file that says so.
    """
    for name, form in PROJECT_SERVERS:
        path = os.path.join(place, name)
        if path in taken:
            continue
        for server, entry in _read_file(path, form, findings):
            if name == ".mcp.json" and server in disabled:
                _note_disabled(path, server, disabled[server], findings)
            else:
                yield ServerEntry(server, entry, path, form, "project", place)


def _read_file(path: str, form: str, findings: list[Finding]) -> Iterator[tuple[str, Any]]:
    table = read_toml(path, findings) if form == "codex" else read_json(path, findings)
    key = _KEYS.get(form, "mcpServers")
    entries = table.get(key)
    if entries is None:
        if table and path.endswith(_ONLY_SERVERS):
            findings.append(
                Finding(path, f"no server is used: the file has no {key}", f"Add {key}.")
            )
        return
    if not isinstance(entries, dict):
        findings.append(Finding(path, f"{key} is not used: it is no table", "Correct the file."))
        return
    servers = cast("dict[str, Any]", entries)
    if form == "opencode":
        yield from _select_opencode(servers)
        return
    mcp = _as_table(table.get("mcp"))
    for name, entry in servers.items():
        allowed = mcp.get("allowed")
        if form == "gemini" and (
            name in _as_names(mcp.get("excluded"))
            or (allowed is not None and name not in _as_names(allowed))
        ):
            _note_disabled(path, name, path, findings)
        else:
            yield name, entry


def _select_opencode(table: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the servers of version 2, which has a table of its own for them, or of version 1."""
    servers = _as_table(table.get("servers"))
    is_version_2 = "servers" in table and not {"type", "command", "url"} & servers.keys()
    if is_version_2:
        yield from servers.items()
        return
    for name, entry in table.items():
        if isinstance(entry, dict):
            yield name, entry


class _ClaudeState(Struct, rename={"mcp_servers": "mcpServers"}):
    mcp_servers: Any = None
    # Raw, so that what it says about other projects is not decoded.
    projects: dict[str, msgspec.Raw] = {}

    def get_project(self, place: str) -> dict[str, Any]:
        raw = self.projects.get(place)
        return _as_table(msgspec.json.decode(raw)) if raw is not None else {}

    def read_project(
        self, places: list[str], path: str, findings: list[Finding]
    ) -> Iterator[tuple[str, Any]]:
        """Yield the servers the user added for this project only."""
        for place in places:
            project = self.get_project(place)
            off = _as_names(project.get("disabledMcpServers"))
            for name, entry in _as_table(project.get("mcpServers")).items():
                if name in off:
                    _note_disabled(path, name, path, findings)
                else:
                    yield name, entry


def _read_state(path: str, findings: list[Finding]) -> _ClaudeState:
    data = read_bytes(path, findings)
    if data is None:
        return _ClaudeState()
    try:
        return msgspec.json.decode(data, type=_ClaudeState)
    except (ValueError, RecursionError) as error:
        findings.append(Finding(path, f"the file is not used: {error}", "Correct the file."))
        return _ClaudeState()


def _list_disabled(
    places: list[str], user_home: str, state: _ClaudeState, findings: list[Finding]
) -> dict[str, str]:
    """Find the servers of `.mcp.json` that Claude Code's settings turn off, and in which file."""
    disabled: dict[str, str] = {}
    folders = [*places, *([user_home] if user_home and user_home not in places else [])]
    paths = [os.path.join(folder, name) for folder in folders for name in CLAUDE_SETTINGS]
    for path in paths:
        # A file that cannot be read is already reported by the reader of hooks.
        table = read_json(path, [])
        disabled |= dict.fromkeys(_as_names(table.get("disabledMcpjsonServers")), path)
        approved = {"enableAllProjectMcpServers", "enabledMcpjsonServers"} & table.keys()
        if approved:
            findings.append(
                Finding(
                    path,
                    f"not used here: {', '.join(sorted(approved))}",
                    "mudroom trust decides which servers of a folder are used.",
                    is_problem=False,
                )
            )
        if table.get("mcpServers"):
            findings.append(
                Finding(path, "mcpServers is not used in this file", "Move it to .mcp.json.")
            )
    for place in places:
        project = state.get_project(place)
        names = _as_names(project.get("disabledMcpjsonServers"))
        disabled |= dict.fromkeys(names, os.path.join(user_home, CLAUDE_STATE))
    return disabled


def _note_disabled(path: str, name: str, by: str, findings: list[Finding]) -> None:
    origin = "" if by == path else f" in {by}"
    findings.append(Finding(path, f"server {name} is turned off{origin}", is_problem=False))


def _as_table(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _as_names(value: object) -> set[str]:
    names = cast("list[object]", value) if isinstance(value, list) else []
    return {name for name in names if isinstance(name, str)}
