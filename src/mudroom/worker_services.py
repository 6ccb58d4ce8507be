"""Worker processes: the worker that the session uses, and the services inside a worker process."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from . import agent_files
from ._core.board_tasks import BoardOffer
from ._core.compaction import CompactionOptions
from ._core.listings import ListingLimits
from ._core.ports import Board
from ._core.tools import Tool
from ._engine.changes.live_overlaps import LiveOverlaps
from ._engine.changes.versions import FileVersions
from ._engine.changes.watch import ChangeWatch
from ._engine.session_context import SessionServices, Watchers
from ._platform.imports import extend_import_path
from ._platform.system_clock import SystemClock
from .cluster_services import make_hidden_check, may_be_secret, open_node_environments
from .context_windows import make_context_policy
from .environments import EnvironmentFactory, SessionEnvironments
from .errors import UsageError
from .integrations.mcp_servers.spec import ServerSpec
from .model_registry import ModelRegistry
from .open_adapters import (
    collect_tools,
    make_board_tools,
    make_isolated_opener,
    make_servers,
    make_web_tools,
    open_board,
)
from .options import SessionOptions, parse_worker
from .output_filters.injection_marker import mark_injection
from .output_filters.redaction import Redactor
from .permissions.rules import Permissions
from .pricing import PriceFile
from .projections.past_events import PastEvents
from .tools._sources import load_tools
from .workers.process.connection import ProcessTransport
from .workers.remote.messages import WorkerConfig
from .workers.remote.rate_limits import RemoteRateLimiter
from .workers.remote.remote_services import (
    RemoteApprover,
    RemoteJournal,
    RemoteModel,
    SessionLink,
)
from .workers.remote.server_calls import RemoteServers, ServersState, describe_servers
from .workers.remote.session_calls import RemoteHooks, RemoteOutputChecks, RemoteTeams
from .workers.remote.session_tools import (
    add_tools,
    is_sendable,
    make_session_tools,
)
from .workers.remote.worker import RemoteWorker

_PROGRAM = "mudroom.worker_process:serve"
_COMMAND = (sys.executable, "-m", "mudroom.worker_process")
"""Command line of a worker process, without the number of its socket."""


def make_process_worker(
    services: SessionServices, config: WorkerConfig, models: ModelRegistry, processes: int
) -> RemoteWorker:
    """Return the worker of a session that executes children in worker processes.

    Arguments:
        models: the models of the session.
        processes: number of worker processes; 0 means one per processor.
    """
    return RemoteWorker(
        services,
        config,
        ProcessTransport(_COMMAND),
        processes or os.cpu_count() or 1,
        models.get_rate_limiter,
        make_hidden_check(services),
    )


def make_worker_config(
    options: SessionOptions,
    services: SessionServices,
    skills: Mapping[str, agent_files.Skill],
    *,
    home: str,
    limits: ListingLimits,
    models: ModelRegistry,
    board_offer: BoardOffer,
) -> WorkerConfig:
    """Return the facts from which a worker process builds its services.

    Arguments:
        home: mudroom's state folder.
        limits: what descriptions of tools may list.
        models: the models of the session.
        board_offer: runs that have the tools for the task board.

    Raises UsageError for options that another process cannot use.
    """
    _refuse_unsendable(options, services)
    environ = options.environ
    config = WorkerConfig(
        session=services.session,
        folder=services.environments.shared.workspace.root,
        home=home,
        user_home=(os.environ if environ is None else environ).get("HOME", "/"),
        environ=None if environ is None else dict(environ),
        sandbox=str(options.sandbox),
        allow_net=options.allow_net,
        can_ask=options.approver is not None,
        permissions=msgspec.json.encode(options.permissions),
        agents=dict(services.agents),
        skills=msgspec.json.encode(skills),
        spill_folder=services.spill_folder,
        environment_text=services.environment_text,
        context_texts=dict(services.context_texts),
        child_models=dict(services.child_models),
        max_output_tokens=services.max_output_tokens,
        listing_limits=limits,
        windows=models.windows,
        images=models.images,
        compaction=msgspec.convert(options, CompactionOptions, from_attributes=True),
        child_budget=services.child_budget,
        isolate=services.isolate,
        isolated_bytes=options.isolated_mb << 20,
        check=services.check,
        check_seconds=services.check_seconds,
        max_returns=services.max_returns,
        reports_costs=services.reports_costs,
        bridged_models=() if isinstance(options.model, str) else (options.model.name,),
        max_children=options.max_children,
        takes_images=options.takes_images,
        has_hooks=services.hooks is not None,
        trace_ids=services.trace_ids,
        versions_folder=services.versions.folder if services.versions else "",
        board_offer=board_offer,
    )
    return add_tools(_add_servers(config, services, options), load_tools(options.tools))


def _refuse_unsendable(options: SessionOptions, services: SessionServices) -> None:
    """Raise UsageError for options that another process cannot use or may not get."""
    _refuse_objects(options)
    if parse_worker(options.worker).kind == "ray":
        _refuse_secrets_of_servers(options, services)


def _refuse_objects(options: SessionOptions) -> None:
    has_objects = options.tool_sources or options.workspace
    if has_objects or not isinstance(options.sandbox, str):
        raise UsageError(
            "worker processes cannot use tool source, workspace or sandbox objects of the caller",
            where="worker",
            remedy='Use worker="local", or leave the objects out.',
        )
    for tool in load_tools(options.tools):
        if tool.reference.startswith("__main__:"):
            raise UsageError(
                f"the tool {tool.reference} cannot be used in worker processes: they do not import "
                "the module of the program",
                where="tools",
                remedy='Move it to another module, and give it as "module:name".',
            )
        if not tool.reference and not is_sendable(tool):
            raise UsageError(
                f"the tool {tool.name} cannot be used in worker processes: it uses its ToolContext "
                "or a function that decides before a call",
                where="tools",
                remedy='Give it by name, as in tools=["package.module:name"], or use '
                'worker="local".',
            )


def _refuse_secrets_of_servers(options: SessionOptions, services: SessionServices) -> None:
    """Refuse servers of one agent with secrets: such a server starts on the machine of its run."""
    for server in options.mcp_servers:
        line = "\n".join((server.command, *server.args, server.url, server.headers_helper))
        has_values = server.env or server.headers or "client_secret" in server.oauth
        if server.agent and (has_values or services.redact(line) != line):
            raise UsageError(
                f"the MCP server {server.name} of the agent {server.agent} has variables, headers "
                "or secrets, and would start on another machine; secrets are not sent there",
                where="worker",
                remedy='Declare the server for the session, or use worker="process".',
            )


def _collect_tools(
    config: WorkerConfig,
    permissions: Permissions,
    skills: Mapping[str, agent_files.Skill],
    board: Board | None,
    link: SessionLink,
    *,
    ask: bool,
) -> dict[str, Tool]:
    agents = permissions.select_agents(config.agents)
    web_tools = make_web_tools(permissions, allow_net=config.allow_net)
    board_tools = make_board_tools(board, config.board_offer)
    own = (*web_tools, *board_tools, *_load_own_tools(config, link))
    tools = collect_tools(
        own,
        agents,
        skills,
        ask=ask,
        isolation=True,
        isolate=config.isolate,
        limits=config.listing_limits,
    )
    return {name: tool for name, tool in tools.items() if not permissions.denies_tool(name)}


def _load_own_tools(config: WorkerConfig, link: SessionLink) -> list[Tool]:
    """Return the tools of the caller. Raises UsageError if one cannot be imported here."""
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
        readable=(config.spill_folder, *(skill.folder for skill in skills.values())),
    )
    if config.has_own_files:
        return open_node_environments(config, factory, link)
    shared = factory.open(config.folder, [])
    open_isolated = make_isolated_opener(
        config.home, config.session, config.folder, config.isolated_bytes
    )
    return SessionEnvironments(shared, factory, open_isolated)


def _open_board(config: WorkerConfig) -> Board | None:
    if not config.board_offer:
        return None
    return open_board(config.home, config.folder, config.session, is_owner=False)


def build_worker_services(
    config: WorkerConfig, link: SessionLink, past_events: PastEvents
) -> SessionServices:
    """Build the services of the runs in a worker process.

    Arguments:
        past_events: events of runs that continue here; filled before each run.
    """
    environ = _get_environ(config)
    clock = SystemClock()
    models = _open_models(config, link, environ, clock)
    skills = msgspec.json.decode(config.skills, type=dict[str, agent_files.Skill])
    permissions = msgspec.json.decode(config.permissions, type=Permissions)
    environments = _open_environments(config, permissions, skills, link)
    board = _open_board(config)
    journal = RemoteJournal(link)
    return SessionServices(
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
        toolbox=_collect_tools(
            config, permissions, skills, board, link, ask=environments.shared.sandbox.tier == "ask"
        ),
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


def _get_environ(config: WorkerConfig) -> Mapping[str, str]:
    if config.environ is None:
        return os.environ
    if config.own_variables == "all":
        return {**os.environ, **config.environ}
    if config.own_variables == "secrets":
        own = {name: text for name, text in os.environ.items() if may_be_secret(name)}
        return {**own, **config.environ}
    return config.environ


def _add_servers(
    config: WorkerConfig, services: SessionServices, options: SessionOptions
) -> WorkerConfig:
    """Add the state of the servers, and the configurations of those that one agent has."""
    if services.servers is None:
        return config
    own = [each for each in options.mcp_servers if each.agent]
    return replace(
        config,
        servers=msgspec.msgpack.encode((describe_servers(services.servers), own)),
        server_agents=tuple(each.agent for each in own),
    )


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
    """Return the models; those that exist only in the session's process are reached by the link."""
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
