"""Runs the MCP server: turns settings and flags into the session of its tasks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import partial
from typing import Any

from mudroom_hosts.mcp.host_tasks import DEFAULT_PARALLEL, Owner
from mudroom_hosts.mcp.server import McpOptions, McpServer, require_package
from mudroom_serve.state.tokens import TokenRecords

from ..._adapters.integrations.mcp_servers.server_process import NESTING_VARIABLE
from ..._core.budgets import Budget
from ..._core.ports import Approver
from ..._platform.event_loop import run_event_loop
from ..._session.session import Session
from ...driving import ListenOptions, Refusal, ServerAddress
from ...errors import UsageError
from ..output.notices.log import show_log
from ..output.notices.start import select_new_notices
from ..output.progress import make_notice_printer
from ..output.signals import handle_signals
from .listen_flags import take_listen_options
from .load_permissions import load_permissions
from .load_settings import load_settings
from .open_session import create_session, to_budget
from .programs.load_programs import list_server_names, load_programs
from .session_store import delete_expired_sessions
from .user_store import open_server_state

# Name of the server's folder, for tokens limited to some workspaces.
_WORKSPACE = "default"
_WRONG_TOKEN = Refusal(
    401,
    "wrong_token",
    "the token is missing or wrong. Send the header `Authorization: Bearer TOKEN`; "
    "`mudroom serve token add OWNER` makes a token",
)


def serve_mcp(
    cwd: str,
    *,
    parallel: int | None,
    total_tokens: int | None,
    total_usd: float | None,
    quiet: bool,
    **flags: Any,
) -> int:
    """Serve a host on stdin and stdout, or hosts over HTTP; totals limit all tasks together.

    Raises UsageError for wrong flags, and without the package `mcp`.
    """
    require_package()
    listening = take_listen_options(flags)
    settings = load_settings(cwd, **flags)
    programs = load_programs(settings, cwd)
    loaded = load_permissions(settings, cwd, can_ask=True, servers=list_server_names(programs))
    nesting = _read_nesting(os.environ)
    options = McpOptions(
        limits=to_budget(settings),
        parallel=parallel or DEFAULT_PARALLEL,
        nesting=nesting,
    )

    def make_session(approver: Approver) -> Session:
        return create_session(
            settings,
            cwd,
            loaded,
            programs=programs,
            approver=approver,
            budget=Budget(total_tokens=total_tokens, usd=total_usd),
            prices=True,
            # A server may start mudroom as its own MCP server; the count ends such a chain.
            environ={**os.environ, NESTING_VARIABLE: str(nesting + 1)},
        )

    show = make_notice_printer(quiet=quiet)

    async def serve() -> int:
        if notice := await delete_expired_sessions(settings):
            show(notice)
        server = McpServer(make_session, options, show)
        server.select_notices = lambda notices: select_new_notices(settings.home, cwd, notices)
        with handle_signals(server.stop, exits_after=True) as signals, show_log(show):
            if listening:
                await _serve_http(server, listening, settings.home, show)
            else:
                await server.serve_stdio()
        return 128 + signals[0] if signals else 0

    return run_event_loop(serve())


async def _serve_http(
    server: McpServer, options: ListenOptions, home: str, show: Callable[[str], object]
) -> None:
    def show_address(address: ServerAddress) -> None:
        print(address.url, flush=True)
        show("Serving. Press Ctrl+C to stop.")
        if not tokens.list():
            show("no host can use it yet: mudroom serve token add OWNER makes a token")

    with closing(open_server_state(home)) as state:
        tokens = TokenRecords(state)
        await server.serve_http(options, partial(find_owner, tokens), show_address)


async def find_owner(tokens: TokenRecords, secret: str) -> Owner | Refusal:
    """Find the owner of a `mudroom serve` token, or why a task needs more than it allows."""
    token = await tokens.find(secret)
    if token is None:
        return _WRONG_TOKEN
    if "run" not in token.scopes:
        return Refusal(403, "wrong_scope", "the token does not have the scope run")
    if token.workspaces and _WORKSPACE not in token.workspaces:
        message = f"the token is not for the workspace {_WORKSPACE}"
        return Refusal(403, "wrong_workspace", message)
    if token.usd_per_day is not None or token.tokens_per_day is not None:
        return Refusal(
            403,
            "daily_limits",
            "the token has limits for each day, which only `mudroom serve` counts. Use a token "
            "without them, and --max-budget-usd and --total-usd",
        )
    return Owner(name=token.owner, agents=token.agents, can_answer="answer" in token.scopes)


def _read_nesting(environ: Mapping[str, str]) -> int:
    text = environ.get(NESTING_VARIABLE, "") or "0"
    if not text.isdecimal():
        raise UsageError(f"{text!r} is no number", where=f"${NESTING_VARIABLE}", remedy="Unset it.")
    return int(text)
