"""Runs the HTTP server: turns settings and flags into its options."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from typing import Any

from msgspec.structs import asdict, replace

from mudroom_serve.server import HttpServer
from mudroom_serve.setup import CommandLine, ServedSessionPlan, ServiceOptions
from mudroom_serve.state.tokens import TokenRecords

from ..._core.agents import Agent
from ..._core.ports import Approver, SessionStore, WorkerProcesses
from ..._platform.event_loop import run_event_loop
from ..._session.config import Settings
from ..._session.model_registry import make_missing_model_error
from ..._session.session import Session
from ...driving import ServerAddress
from ...errors import UsageError
from ..output.notices.log import show_log
from ..output.progress import make_notice_printer
from ..output.signals import handle_signals
from .agents import collect_agents, load_agents
from .listen_flags import take_listen_options
from .load_permissions import load_permissions
from .load_settings import load_settings, require_folder
from .open_session import create_session, has_model, to_budget
from .programs.load_programs import list_server_names, load_programs
from .session_start import SessionStart
from .session_store import delete_expired_sessions
from .user_store import open_server_state, open_store

# Fraction of the slots that one owner may take, without --parallel-owner.
_OWN_PART = 0.75
DEFAULT_WORKSPACE = "default"


def serve_http(
    cwd: str,
    *,
    workspaces: Sequence[str],
    parallel: int,
    per_owner: int | None,
    drain_seconds: float,
    login_header: str | None,
    login_networks: tuple[str, ...],
    login_usd_per_day: float | None,
    login_tokens_per_day: int | None,
    quiet: bool,
    **flags: Any,
) -> int:
    """Serve until a signal arrives. Raises UsageError.

    `cwd` is the default workspace, each of `workspaces` is NAME=DIR, and `per_owner` defaults to a
    fraction of `parallel`.
    """
    listening = take_listen_options(flags)
    assert listening is not None
    settings = load_settings(cwd, **flags)
    options = ServiceOptions(
        **asdict(listening),
        home=settings.home,
        workspaces=parse_workspaces(cwd, workspaces),
        limits=to_budget(settings),
        login_header=login_header or "",
        login_networks=login_networks,
        login_usd_per_day=login_usd_per_day,
        login_tokens_per_day=login_tokens_per_day,
        parallel=parallel,
        per_owner=per_owner or max(1, int(parallel * _OWN_PART)),
        drain_seconds=drain_seconds,
    )
    require_models(flags, options.workspaces.values())
    show = make_notice_printer(quiet=quiet)

    def show_address(address: ServerAddress) -> None:
        # Flush: programs that start the server read the address from a pipe.
        print(address.url, flush=True)
        show("Serving. Press Ctrl+C to stop.")
        if not is_usable:
            show("no client can use it yet: mudroom serve token add OWNER makes a token")

    async def serve() -> int:
        if notice := await delete_expired_sessions(settings):
            show(notice)
        async with open_workers(settings) as workers:
            command_line = make_command_line(flags, workers)
            store, state = open_store(settings.home), open_server_state(settings.home)
            server = HttpServer(command_line, options, store, show, state)
            with handle_signals(server.stop, exits_after=True) as signals, show_log(show):
                await server.serve(show_address)
        return 128 + signals[0] if signals else 0

    is_usable = bool(login_header) or has_tokens(settings.home)
    return run_event_loop(serve())


@asynccontextmanager
async def open_workers(settings: Settings) -> AsyncGenerator[WorkerProcesses | None]:
    """Open the worker processes shared by all sessions; None if children run in this process.

    Raises UsageError.
    """
    if settings.worker == "local":
        yield None
        return
    from ... import Workers

    async with Workers(settings.worker) as workers:
        yield workers


def parse_workspaces(cwd: str, texts: Sequence[str]) -> dict[str, str]:
    """Map workspace names to folders, the default one first. Raises UsageError."""
    # With named workspaces there is no default, unless -C asks for it.
    folders = {DEFAULT_WORKSPACE: cwd} if not texts or cwd != "." else {}
    for text in texts:
        name, equals, folder = text.partition("=")
        if not (equals and name.strip() and folder) or name in folders:
            raise UsageError(
                f"{text!r} is no workspace, or its name is used already",
                where="--workspace",
                remedy="Use NAME=DIR, each name once.",
            )
        folders[name] = folder
    for folder in folders.values():
        require_folder(folder)
    return {name: os.path.realpath(folder) for name, folder in folders.items()}


def require_models(flags: Mapping[str, object], folders: Iterable[str]) -> None:
    for folder in folders:
        settings = load_settings(folder, **flags)
        # The settings' agent may have its own model; if not, each session says so.
        if not settings.agent and not has_model(settings):
            raise make_missing_model_error(folder)


def has_tokens(home: str) -> bool:
    with closing(open_server_state(home)) as state:
        return bool(TokenRecords(state).list())


def make_command_line(
    flags: Mapping[str, object], workers: WorkerProcesses | None = None
) -> CommandLine:
    """Bundle the server's functions. Without `workers`, each session follows the settings."""

    def prepare(plan: ServedSessionPlan, approver: Approver, store: SessionStore) -> Session:
        settings = load_settings(plan.cwd, **flags)
        settings = replace(settings, permission_mode=plan.mode or settings.permission_mode)
        programs = load_programs(settings, plan.cwd)
        servers = list_server_names(programs)
        loaded = load_permissions(settings, plan.cwd, can_ask=True, servers=servers)
        options: dict[str, object] = {"agent": plan.agent} if plan.agent else {}
        if workers:
            options["worker"] = workers
        start = SessionStart(
            resume=plan.id if plan.is_recorded else "", id="" if plan.is_recorded else plan.id
        )
        return create_session(
            settings,
            plan.cwd,
            loaded,
            start,
            programs=programs,
            approver=approver,
            store=store,
            prompt_budget=plan.budget,
            prices=True,
            **options,
        )

    return CommandLine(prepare=prepare, list_agents=_list_agents)


def _list_agents(folder: str) -> Sequence[Agent]:
    return list(collect_agents(load_agents(folder)).values())
