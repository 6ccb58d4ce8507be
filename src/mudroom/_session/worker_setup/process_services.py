"""Builds the services of the runs in a worker process from the config that its session sends."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ..._adapters import agent_files
from ..._adapters.integrations.mcp_servers.spec import ServerSpec
from ..._adapters.models.pricing import PriceFile
from ..._adapters.output_filters import Redactor, mark_injection
from ..._adapters.tools._sources import load_tools
from ..._adapters.workers.remote.messages import WorkerConfig
from ..._adapters.workers.remote.rate_limits import RemoteRateLimiter
from ..._adapters.workers.remote.remote_services import (
    RemoteApprover,
    RemoteJournal,
    RemoteModel,
    SessionLink,
)
from ..._adapters.workers.remote.server_calls import RemoteServers, ServersState
from ..._adapters.workers.remote.session_calls import RemoteHooks, RemoteOutputChecks, RemoteTeams
from ..._adapters.workers.remote.session_tools import (
    make_session_tools,
)
from ..._core.ports import Board
from ..._core.tools import Tool
from ..._engine.changes.live_overlaps import LiveOverlaps
from ..._engine.changes.watch import ChangeWatch
from ..._engine.file_writes import FileVersions
from ..._engine.recorded_conversations import PastEvents
from ..._engine.session_context import SessionServices, Watchers
from ..._platform.imports import extend_import_path
from ..._platform.time_limits import SystemClock
from ...permissions.rules import Permissions
from ..context_windows import make_context_policy
from ..environments import EnvironmentFactory, SessionEnvironments
from ..model_registry import ModelRegistry
from ..open_adapters import (
    collect_tools,
    make_board_tools,
    make_isolated_opener,
    make_servers,
    make_web_tools,
    open_board,
)
from .cluster import may_be_secret, open_node_environments

if TYPE_CHECKING:
    from ..._adapters.boards.session_board import SessionBoard


class WorkerServices(NamedTuple):
    """Services of a session's runs in a worker process, and the rest to close after them."""

    services: SessionServices
    models: ModelRegistry
    board: SessionBoard | None

    async def close(self) -> None:
        """Close sandbox, models and board. Servers that an agent has were closed by its runs."""
        self.services.environments.shared.sandbox.close()
        await self.models.close()
        if self.board:
            await self.board.close()


def _collect_tools(
    config: WorkerConfig,
    permissions: Permissions,
    skills: Mapping[str, agent_files.Skill],
    board: Board | None,
    link: SessionLink,
    environments: SessionEnvironments,
) -> dict[str, Tool]:
    agents = permissions.select_agents(config.agents)
    web_tools = make_web_tools(permissions, allow_net=config.allow_net)
    board_tools = make_board_tools(board, config.board_offer)
    own = (*web_tools, *board_tools, *_load_own_tools(config, link))
    tools = collect_tools(
        own,
        agents,
        skills,
        ask=environments.shared.sandbox.tier == "ask",
        isolation=True,
        isolate=config.isolate,
        limits=config.listing_limits,
    )
    return {name: tool for name, tool in tools.items() if not permissions.denies_tool(name)}


def _load_own_tools(config: WorkerConfig, link: SessionLink) -> list[Tool]:
    """Load the caller's tools. Raises UsageError if one cannot be imported here."""
    extend_import_path(config.import_path)
    return [*load_tools(config.tool_references), *make_session_tools(config, link)]


def _open_environments(
    config: WorkerConfig,
    permissions: Permissions,
    skills: Mapping[str, agent_files.Skill],
    link: SessionLink,
) -> SessionEnvironments:
    factory = EnvironmentFactory(
        permissions=permissions,
        home=config.home,
        user_home=config.user_home,
        sandbox=config.sandbox,
        allow_net=config.allow_net,
        can_ask=config.can_ask,
        readable=tuple(skill.folder for skill in skills.values()),
        spill_folder=config.spill_folder,
    )
    if config.has_own_files:
        return open_node_environments(config, factory, link)
    shared = factory.open(config.folder, [])
    open_isolated = make_isolated_opener(
        config.home, config.session, config.folder, config.isolated_bytes
    )
    return SessionEnvironments(shared, factory, open_isolated)


def _open_board(config: WorkerConfig) -> SessionBoard | None:
    if not config.board_offer:
        return None
    return open_board(config.home, config.folder, config.session, is_owner=False)


def build_worker_services(
    config: WorkerConfig, link: SessionLink, past_events: PastEvents
) -> WorkerServices:
    """Build the services of the runs in a worker process.

    Arguments:
        past_events: events of runs that continue here; filled before each run.
    """
    environ = _get_environ(config)
    clock = SystemClock(config.clock_start)
    models = _open_models(config, link, environ, clock)
    board = _open_board(config)
    skills = msgspec.json.decode(config.skills, type=dict[str, agent_files.Skill])
    permissions = msgspec.json.decode(config.permissions, type=Permissions)
    environments = _open_environments(config, permissions, skills, link)
    journal = RemoteJournal(link)
    services = SessionServices(
        session=config.session,
        get_model=models.get_model,
        journal=journal,
        forward_events=journal.append_and_show,
        environments=environments,
        clock=clock,
        approver=RemoteApprover(link),
        redact=Redactor({**os.environ, **environ}),
        mark_report=mark_injection,
        servers=_open_servers(config, link, permissions, environ),
        toolbox=_collect_tools(config, permissions, skills, board, link, environments),
        agents=config.agents,
        spill_folder=config.spill_folder,
        versions=FileVersions(config.versions_folder) if config.versions_folder else None,
        environment_text=config.environment_text,
        context_texts=config.context_texts,
        child_models=config.child_models,
        max_output_tokens=config.max_output_tokens,
        child_budget=config.child_budget,
        isolate=config.isolate,
        check=config.check,
        check_seconds=config.check_seconds,
        max_returns=config.max_returns,
        compute_price=PriceFile(config.home).calculate_cost,
        reports_costs=config.reports_costs,
        past_events=past_events,
        watchers=Watchers((link.show,)),
        hooks=RemoteHooks(link) if config.has_hooks else None,
        change_watch=ChangeWatch(config.home),
        live_overlaps=LiveOverlaps(clock),
        output_checks=RemoteOutputChecks(link),
        teams=RemoteTeams(link),
        context_policy=make_context_policy(models, config.compaction, config.home),
        board=board,
        trace_ids=config.trace_ids,
    )
    return WorkerServices(services, models, board)


def _get_environ(config: WorkerConfig) -> Mapping[str, str]:
    if config.environ is None:
        return os.environ
    if config.own_variables == "all":
        return {**os.environ, **config.environ}
    if config.own_variables == "secrets":
        own = {name: text for name, text in os.environ.items() if may_be_secret(name)}
        return {**own, **config.environ}
    return config.environ


def _open_servers(
    config: WorkerConfig,
    link: SessionLink,
    permissions: Permissions,
    environ: Mapping[str, str],
) -> RemoteServers | None:
    if not config.servers:
        return None
    decoded = msgspec.msgpack.decode(config.servers, type=tuple[ServersState, list[ServerSpec]])
    state, specs = decoded
    own = make_servers(specs, permissions, config.folder, config.home, environ)
    return RemoteServers(
        link, state, lambda agent: own.open_own(agent, is_root=False) if own else None
    )


def _open_models(
    config: WorkerConfig, link: SessionLink, environ: Mapping[str, str], clock: SystemClock
) -> ModelRegistry:
    """Open the models; those that only exist in the session's process are reached by the link."""
    models = ModelRegistry(
        environ,
        clock,
        lambda name: RemoteModel(link, name),
        takes_images=config.takes_images,
        windows=config.windows,
        images=config.images,
        make_rate_limiter=lambda provider: RemoteRateLimiter(link, provider),
    )
    for name in config.bridged_models:
        models.register(RemoteModel(link, name))
    return models
