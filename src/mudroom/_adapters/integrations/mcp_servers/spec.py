"""An MCP server's configuration, whichever file it comes from, and where it works."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from msgspec import Struct, field

Transport = Literal["stdio", "http", "sse"]
Scope = Literal["option", "local", "project", "user", "plugin", "agent"]
"""A configuration's origin. A project folder has files of `project` and `local`."""


class ServerSpec(Struct, frozen=True, kw_only=True):
    """An MCP server's configuration.

    Variables such as `${TOKEN}` are already replaced, except in `shown` and `digest`.

    Arguments:
        name: name in the file; tools are called `mcp__NAME__TOOL`.
        origin: path of the file, or the name of the option.
        scope: where the configuration comes from.
        transport: "stdio" for a program, "http" for an address; "sse" is not supported.
        command: program of a stdio server. args: its arguments.
        env: variables the server gets in addition to the usual ones.
        cwd: working directory, "" for the session's.
        url: address of an HTTP or SSE server. headers: headers sent with requests to it.
        headers_helper: command that prints additional headers as a JSON object.
        bearer_token_variable: environment variable that holds a token.
        start_timeout: seconds within which the server must be ready.
        call_timeout: maximum seconds of a call.
        include: the only tools to use; empty for all. exclude: tools not to use.
        is_trusted: true if the server's tool annotations count.
        is_parallel: true if calls to its tools may run in parallel.
        always_load: true if the model gets all its tools in full.
        oauth: settings of the login: client_id, client_secret, callback_port, scopes, resource.
        shown: command or address as in the file, for screens.
        place: folder the file belongs to, which needs trust; "" for the user's files.
        digest: identifies the definition in the file, for the trust in a folder.
        agent: name of the agent that declares the server, which then starts for each of the agent's
            runs; "" for all agents.

    Example:
        git = ServerSpec(name="git", origin="mcp_servers", scope="option", command="mcp-server-git")
        Session(integrations=Integrations(mcp_servers=[git]))
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


Redact = Callable[[str], str]  # replaces the secrets in a text
MakeRedact = Callable[[Mapping[str, str]], Redact]
"""Makes one from variables; values whose names mark them as secret are replaced."""


class ServerPlace(Struct, frozen=True):
    folder: str  # the workspace, also the process's working directory
    environ: Mapping[str, str]
    logins: str = ""  # folder of the stored logins of HTTP servers
    redact: Redact = str  # applied to the process's error output, and to errors
    # Called with the headers of HTTP requests before the first request.
    note_headers: Callable[[Mapping[str, str]], object] = dict


def list_secrets(spec: ServerSpec, environ: Mapping[str, str]) -> dict[str, str]:
    """Collect a server's secrets as variables whose names mark them as secret.

    Every header counts as a secret, with and without its scheme.
    """
    variables = {**environ, **spec.env}
    for name, value in spec.headers.items():
        variables[f"{name}_TOKEN"] = value
        variables[f"{name}_SECRET"] = value.rpartition(" ")[2]
    variables["MCP_BEARER_TOKEN"] = environ.get(spec.bearer_token_variable, "")
    variables["MCP_CLIENT_SECRET"] = str(spec.oauth.get("client_secret", ""))
    return variables
