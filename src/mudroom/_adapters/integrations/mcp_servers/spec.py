"""The configuration of one MCP server, from whichever file it comes, and the place it works in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import Struct, field

Transport = Literal["stdio", "http", "sse"]
Scope = Literal["option", "local", "project", "user", "plugin", "agent"]
"""Where a configuration comes from. A folder of the project has files of `project` and `local`."""


class ServerSpec(Struct, frozen=True, kw_only=True):
    """Configuration of one MCP server.

    Variables such as `${TOKEN}` are already replaced, but in `shown` and `digest`.

    Arguments:
        name: as in the file; tools are called `mcp__NAME__TOOL`.
        origin: path of the file, or the name of the option.
        scope: where the configuration comes from.
        transport: "stdio" for a program, "http" for an address; "sse" is not supported.
        command: program of a stdio server. args: its arguments.
        env: variables that the server gets besides the usual ones.
        cwd: working directory, "" for that of the session.
        url: address of an HTTP or SSE server. headers: of its requests.
        headers_helper: command that prints further headers as a JSON object.
        bearer_token_variable: environment variable that holds a token.
        start_timeout: seconds until the server must be ready.
        call_timeout: maximum seconds of one call.
        include: the only tools to use, empty for all. exclude: tools not to use.
        is_trusted: whether the server's annotations of tools count.
        is_parallel: whether calls of its tools may run beside one another.
        always_load: whether all tools are given to the model in full.
        oauth: settings of the login: client_id, client_secret, callback_port, scopes, resource.
        shown: command or address as in the file, for screens.
        place: folder whose content the file is, which needs trust; "" for a file of the user.
        digest: identifies the definition in the file; the trust of a folder refers to it.
        agent: name of the agent whose runs alone have the server, each a process of its own; ""
            for all agents.

    Example:
        git = ServerSpec(name="git", origin="mcp_servers", scope="option", command="mcp-server-git")
        Session(mcp_servers=[git])
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
    is_parallel: bool = False
    always_load: bool = False
    oauth: Mapping[str, Any] = field(default_factory=dict[str, Any])
    shown: str = ""
    place: str = ""
    digest: str = ""
    agent: str = ""


Redact = Callable[[str], str]
"""Function that replaces the secrets in a text."""
MakeRedact = Callable[[Mapping[str, str]], Redact]
"""Function that returns one for the values of variables with the name of a secret."""


class ServerPlace(Struct, frozen=True):
    """Where a server works.

    Arguments:
        folder: the workspace, and working directory of the process.
        environ: variables of the session.
        logins: folder of the stored logins of HTTP servers.
        redact: for the error output of the process, and for errors.
        note_headers: called with the headers of HTTP requests before the first one is sent.
    """

    folder: str
    environ: Mapping[str, str]
    logins: str = ""
    redact: Redact = str
    note_headers: Callable[[Mapping[str, str]], object] = dict


def list_secrets(spec: ServerSpec, environ: Mapping[str, str]) -> dict[str, str]:
    """Return variables; those with the name of a secret have a secret of a server as their value.

    Every header is one, with and without its scheme.

    Arguments:
        environ: variables of the session.
    """
    variables = {**environ, **spec.env}
    for name, value in spec.headers.items():
        variables[f"{name}_TOKEN"] = value
        variables[f"{name}_SECRET"] = value.rpartition(" ")[2]
    variables["MCP_BEARER_TOKEN"] = environ.get(spec.bearer_token_variable, "")
    variables["MCP_CLIENT_SECRET"] = str(spec.oauth.get("client_secret", ""))
    return variables
