"""MCP servers in the configuration formats of several programs."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from typing import Any, cast

from ...._platform.patterns import compile_later
from ..config_files import EntryReader, mask_variables

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
    """Add the variables and headers a Codex server takes from the environment."""
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
    start, call = None, None
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
    """Describe a server as in the file, by its command and variables or its address."""
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
