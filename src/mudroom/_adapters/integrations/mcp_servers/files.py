"""The files that can declare MCP servers, and the servers in them, not yet checked."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from ...._platform.patterns import compile_later
from ..config_files import (
    EntryReader,
    Finding,
    as_table,
    mask_variables,
    read_bytes,
    read_json,
    read_toml,
)
from ..file_names import CLAUDE_STATE, PROJECT_SERVERS, USER_SERVERS
from .spec import Scope

CLAUDE_SETTINGS = (".claude/settings.local.json", ".claude/settings.json")
_KEYS = {"vscode": "servers", "codex": "mcp_servers", "opencode": "mcp"}
_ONLY_SERVERS = (".mcp.json", "/mcp.json")


class ServerEntry(Struct, frozen=True):
    """A server as written in a file; for `place` and `agent` see ServerSpec."""

    name: str
    entry: Any
    path: str
    format: str  # the program whose file format it is
    scope: Scope
    place: str = ""
    agent: str = ""


def list_entries(
    places: list[str], user_home: str, own_file: str, findings: list[Finding]
) -> Iterator[ServerEntry]:
    """Yield the servers in all files, highest precedence first; `own_file` is like `.mcp.json`."""
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
    for name, entry in as_table(state.mcp_servers).items():
        yield ServerEntry(name, entry, state_path, "claude", "user")
    for path, form in user_files:
        for name, entry in _read_file(path, form, findings):
            yield ServerEntry(name, entry, path, form, "user")


def _list_project_entries(
    place: str, taken: set[str], disabled: dict[str, str], findings: list[Finding]
) -> Iterator[ServerEntry]:
    # The user's own files (`taken`) are read elsewhere.
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
    mcp = as_table(table.get("mcp"))
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
    """Yield the servers of version 2, which has a separate table for them, or of version 1."""
    servers = as_table(table.get("servers"))
    is_version_2 = "servers" in table and not {"type", "command", "url"} & servers.keys()
    if is_version_2:
        yield from servers.items()
    else:
        yield from ((name, entry) for name, entry in table.items() if isinstance(entry, dict))


class _ClaudeState(Struct, rename={"mcp_servers": "mcpServers"}):
    mcp_servers: Any = None
    # Raw, so that the entries of other projects are not decoded.
    projects: dict[str, msgspec.Raw] = {}

    def get_project(self, place: str) -> dict[str, Any]:
        raw = self.projects.get(place)
        return as_table(msgspec.json.decode(raw)) if raw is not None else {}

    def read_project(
        self, places: list[str], path: str, findings: list[Finding]
    ) -> Iterator[tuple[str, Any]]:
        for place in places:
            project = self.get_project(place)
            off = _as_names(project.get("disabledMcpServers"))
            for name, entry in as_table(project.get("mcpServers")).items():
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
        # The reader of hooks already reports an unreadable file.
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


def _as_names(value: object) -> set[str]:
    names = cast("list[object]", value) if isinstance(value, list) else []
    return {name for name in names if isinstance(name, str)}


Fields = dict[str, Any]

_MILLISECOND = 0.001
_TRANSPORTS = {
    "stdio": "stdio",
    "local": "stdio",
    "http": "http",
    "streamable-http": "http",
    "streamable_http": "http",
    "streamablehttp": "http",
    "remote": "http",
    "sse": "sse",
}
_CAPITAL = compile_later(r"(?<=[a-z])(?=[A-Z])")


def read_claude(reader: EntryReader) -> Fields:
    return {
        **_read_common(reader),
        "headers_helper": reader.read_text("headersHelper"),
        "call_timeout": reader.read_seconds("timeout", unit=_MILLISECOND),
        "always_load": reader.read_flag("alwaysLoad"),
        "is_trusted": reader.read_flag("trust"),
        "oauth": _read_login(reader, "oauth"),
    }


def read_cursor(reader: EntryReader) -> Fields:
    return {**_read_common(reader), "oauth": _read_login(reader, "auth")}


def read_vscode(reader: EntryReader) -> Fields:
    reader.skip("dev", "gallery", "version")
    return {**_read_common(reader), "cwd": reader.read_text("cwd")}


def read_gemini(reader: EntryReader) -> Fields:
    address = reader.read_text("httpUrl")
    fields = _read_common(reader)
    if address:
        fields |= {"url": address, "transport": "http"}
    elif fields["url"] and not reader.entry.get("type"):
        # The Gemini CLI takes `url` for an SSE address, and `httpUrl` for a streamable one.
        fields["transport"] = "sse"
    return {
        **fields,
        "cwd": reader.read_text("cwd"),
        "call_timeout": reader.read_seconds("timeout", unit=_MILLISECOND),
        "include": reader.read_texts("includeTools"),
        "exclude": reader.read_texts("excludeTools"),
        "is_trusted": reader.read_flag("trust"),
        "oauth": _read_login(reader, "oauth"),
    }


def read_codex(reader: EntryReader) -> Fields:
    login = _read_login(reader, "oauth")
    if scopes := reader.read_texts("scopes"):
        login["scopes"] = list(scopes)
    if resource := reader.read_text("oauth_resource"):
        login["resource"] = resource
    if reader.entry.get("bearer_token") is not None:
        reader.reject(
            "bearer_token is not allowed in the file",
            "Put the token into an environment variable and name it in bearer_token_env_var.",
        )
    start = reader.read_seconds("startup_timeout_sec")
    start = start or reader.read_seconds("startup_timeout_ms", unit=_MILLISECOND)
    reader.skip("startup_timeout_ms")
    return {
        **_read_common(reader),
        "cwd": reader.read_text("cwd"),
        "headers": reader.read_variables("http_headers"),
        "bearer_token_variable": reader.read_text("bearer_token_env_var"),
        "start_timeout": start,
        "call_timeout": reader.read_seconds("tool_timeout_sec"),
        "include": reader.read_texts("enabled_tools"),
        "exclude": reader.read_texts("disabled_tools"),
        "is_parallel": reader.read_flag("supports_parallel_tool_calls"),
        "oauth": login,
    }


def read_codex_variables(reader: EntryReader, fields: Fields, environ: Mapping[str, str]) -> None:
    reader.skip("env_vars")
    forwarded: object = reader.entry.get("env_vars")
    for item in cast("list[object]", forwarded) if isinstance(forwarded, list) else []:
        name = cast("dict[str, object]", item).get("name") if isinstance(item, dict) else item
        if isinstance(name, str) and name in environ:
            fields["env"][name] = environ[name]
    for header, name in reader.read_variables("env_http_headers").items():
        if name in environ:
            fields["headers"][header] = environ[name]
        else:
            reader.add_note(
                f"the header {header} is not sent: {name} is not set",
                f"Set the environment variable {name}.",
                is_problem=True,
            )


def read_opencode(reader: EntryReader) -> Fields:
    command = reader.read_texts("command")
    timeout = reader.entry.get("timeout")
    call = None
    if isinstance(timeout, dict):
        times = EntryReader(reader.read_table("timeout"), reader.path, reader.subject, [])
        start = times.read_seconds("startup", unit=_MILLISECOND)
        call = times.read_seconds("request", unit=_MILLISECOND)
    else:
        start = reader.read_seconds("timeout", unit=_MILLISECOND)
    if reader.entry.get("oauth") is False:
        reader.skip("oauth")
    address = reader.read_text("url")
    return {
        "transport": _choose_transport(reader, address),
        "command": command[0] if command else "",
        "args": command[1:],
        "env": reader.read_variables("environment"),
        "cwd": reader.read_text("cwd"),
        "url": address,
        "headers": reader.read_variables("headers"),
        "start_timeout": start,
        "call_timeout": call,
        "oauth": {} if reader.entry.get("oauth") is False else _read_login(reader, "oauth"),
    }


FORMATS: dict[str, Callable[[EntryReader], Fields]] = {
    "claude": read_claude,
    "cursor": read_cursor,
    "vscode": read_vscode,
    "gemini": read_gemini,
    "codex": read_codex,
    "opencode": read_opencode,
}


def describe_server(fields: Mapping[str, Any]) -> str:
    if fields["transport"] == "stdio":
        command = shlex.join([fields["command"], *fields["args"]])
        # The values of variables may be secrets.
        return " ".join([*mask_variables(fields["env"]), command])
    text = fields["url"]
    if helper := fields.get("headers_helper"):
        text += f" (headers from the command: {helper})"
    return text


def _read_common(reader: EntryReader) -> Fields:
    reader.skip("description", "name", "id")
    address = reader.read_text("url", "serverUrl")
    return {
        "transport": _choose_transport(reader, address),
        "command": reader.read_text("command"),
        "args": reader.read_texts("args"),
        "env": reader.read_variables("env"),
        "url": address,
        "headers": reader.read_variables("headers"),
    }


def _choose_transport(reader: EntryReader, address: str) -> str:
    kind = reader.read_text("type", "transport")
    if not kind:
        return "http" if address and not reader.entry.get("command") else "stdio"
    transport = _TRANSPORTS.get(kind.lower(), "")
    if not transport:
        reader.reject(
            f"the transport {kind} is not supported",
            "Use stdio, or http with the server's streamable address.",
        )
    return transport


def _read_login(reader: EntryReader, name: str) -> Fields:
    """Read the settings of the login, with their names spelt uniformly."""
    login = {
        _CAPITAL.sub("_", key).lower(): value for key, value in reader.read_table(name).items()
    }
    scopes = login.pop("scope", None) or login.get("scopes")
    if scopes:
        login["scopes"] = scopes.split() if isinstance(scopes, str) else scopes
    return login
