"""The worker of a session with worker processes, and the config that it sends to them."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

import msgspec
from msgspec.structs import replace

from ..._adapters import agent_files
from ..._adapters.tools._sources import load_tools
from ..._adapters.workers.process.connection import ProcessTransport
from ..._adapters.workers.remote.messages import WorkerConfig
from ..._adapters.workers.remote.server_calls import describe_servers
from ..._adapters.workers.remote.session_tools import (
    add_tools,
    is_sendable,
)
from ..._adapters.workers.remote.worker import RemoteWorker
from ..._core.listings import ListingLimits
from ..._core.ports.board import BoardOffer
from ..._engine.context_policy import CompactionOptions
from ..._engine.session_context import SessionServices
from ..._platform.time_limits import SystemClock
from ...errors import UsageError
from ..model_registry import ModelRegistry
from ..options import SessionOptions, choose_worker
from .cluster import make_hidden_check

# Without -P, Python would import modules of the current folder first, which may be a stranger's.
# The command line of a worker process, without the number of its socket.
COMMAND = (sys.executable, "-P", "-m", "mudroom._session.worker_process")


def make_process_worker(
    services: SessionServices, config: WorkerConfig, models: ModelRegistry, processes: int
) -> RemoteWorker:
    """Make the worker of a session that executes children in worker processes.

    Arguments:
        models: the session's models.
        processes: number of worker processes; 0 means one per processor.
    """
    return RemoteWorker(
        services,
        config,
        ProcessTransport(COMMAND),
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
    clock: SystemClock,
) -> WorkerConfig:
    """Collect the facts from which a worker process builds its services.

    Arguments:
        home: mudroom's state folder.
        limits: what descriptions of tools may list.
        models: the session's models.
        board_offer: runs that have the tools for the task board.
        clock: that of the session.

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
        clock_start=None if choose_worker(options).kind == "ray" else clock.start,
    )
    return add_tools(_add_servers(config, services, options), load_tools(options.tools))


def _refuse_unsendable(options: SessionOptions, services: SessionServices) -> None:
    """Raise UsageError for options that another process cannot use or may not get."""
    _refuse_objects(options)
    if choose_worker(options).kind == "ray":
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
        # In a worker process, `__main__` is another program.
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
