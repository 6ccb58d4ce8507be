"""The configuration of one MCP server, from whichever file it comes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct, field

Transport = Literal["stdio", "http", "sse"]
Scope = Literal["option", "local", "project", "user", "plugin", "agent"]
"""Where a configuration comes from. `project` is content of the folder and needs trust."""


class ServerSpec(Struct, frozen=True, kw_only=True):
    """Configuration of one MCP server.

    Variables such as `${TOKEN}` are already replaced.

    Arguments:
        name: as in the file; tools are called `mcp__NAME__TOOL`.
        origin: path of the file, or the name of the option.
        command: program of a stdio server.
        env: variables that the server gets besides the usual ones.
        cwd: working directory, "" for that of the session.
        url: address of an HTTP or SSE server.
        headers_helper: command that prints further headers as a JSON object.
        bearer_token_variable: environment variable that holds a token.
        start_timeout: seconds until the server must be ready.
        call_timeout: maximum seconds of one call.
        include: the only tools to use, empty for all. exclude: tools not to use.
        is_trusted: whether the server's annotations of tools count.
        always_load: whether all tools are given to the model in full.
        oauth: settings of the login, as in the file.
    """

    name: str
    origin: str
    scope: Scope
    transport: Transport = "stdio"
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str = ""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    headers_helper: str = ""
    bearer_token_variable: str = ""
    start_timeout: float = 30.0
    call_timeout: float = 28_800.0
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    is_trusted: bool = False
    always_load: bool = False
    oauth: Mapping[str, Any] = field(default_factory=dict[str, Any])
