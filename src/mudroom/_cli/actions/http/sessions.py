"""What the HTTP server needs from the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from mudroom_serve.setup import CommandLine, ListedAgent, SessionPlan

from ...._core.ports import Approver, SessionStore, WorkerProcesses
from ...._session.session import Session
from ..agents import list_usable_agents
from ..load_permissions import load_permissions
from ..load_settings import load_settings
from ..open_session import create_session
from ..programs.load_programs import list_server_names, load_programs
from ..session_start import SessionStart


def make_command_line(
    flags: Mapping[str, object], workers: WorkerProcesses | None = None
) -> CommandLine:
    """Bundle the functions for the server.

    Arguments:
        flags: settings given as flags, for all sessions.
        workers: worker processes of all sessions; None if each session follows the settings.
    """

    def prepare(plan: SessionPlan, approver: Approver, store: SessionStore) -> Session:
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


def _list_agents(folder: str) -> Sequence[ListedAgent]:
    return [
        ListedAgent(name=agent.name, description=agent.description)
        for agent in list_usable_agents(folder)
    ]
