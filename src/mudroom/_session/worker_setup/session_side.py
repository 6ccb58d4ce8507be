"""The worker of a session with worker processes, and what it sends to them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from ..._adapters import agent_files
from ..._adapters.tools._sources import load_tools
from ..._adapters.workers.remote.messages import WorkerConfig
from ..._adapters.workers.remote.session_calls import describe_servers, describe_tools, is_sendable
from ..._adapters.workers.remote.worker import RemoteWorker
from ..._core.listings import ListingLimits
from ..._core.ports.board import BoardOffer
from ..._core.tools import Tool
from ..._engine.session_context import SessionServices
from ..._peers import encode
from ..._platform.time_limits import SystemClock
from ...errors import UsageError
from ...permissions.policy import RulePolicy
from ..model_registry import ModelRegistry
from ..options import SessionOptions, choose_worker
from .setup import ProcessSetup, leave_secrets_out
from .transports import connect


async def open_process_worker(
    options: SessionOptions,
    services: SessionServices,
    skills: Mapping[str, agent_files.Skill],
    *,
    home: str,
    environ: Mapping[str, str],
    limits: ListingLimits,
    models: ModelRegistry,
    board_offer: BoardOffer,
    clock: SystemClock,
) -> RemoteWorker:
    tools = load_tools(options.tools)
    _refuse_objects(options, tools)
    if choose_worker(options).kind == "ray":
        _refuse_secrets_of_servers(options, services)
    setup = _make_setup(options, services, tools, models)
    setup = replace(
        setup,
        skills=dict(skills),
        listing_limits=limits,
        board_offer=board_offer,
        clock_start=clock.start,
    )
    transport, count = await connect(options, environ)
    if transport.is_far:
        setup = replace(leave_secrets_out(setup, environ), clock_start=None)
    config = WorkerConfig(
        session=services.session,
        folder=services.environments.shared.workspace.root,
        home=home,
        max_children=options.children.parallel,
        isolated_bytes=options.isolation.max_mb << 20,
        server_agents=tuple(each.agent for each in setup.own_servers),
        import_path=tuple(map(os.path.abspath, sys.path)) if tools else (),
        tool_references=tuple(tool.reference for tool in tools if tool.reference),
        setup=encode(setup),
        is_far=transport.is_far,
    )
    worker = RemoteWorker(
        services,
        config,
        transport,
        count,
        models.get_rate_limiter,
        _make_hidden_check(services),
        can_send_files=not transport.is_far or _can_send_files(),
    )
    if transport.is_far:
        await worker.open()
    return worker


def _make_setup(
    options: SessionOptions, services: SessionServices, tools: Sequence[Tool], models: ModelRegistry
) -> ProcessSetup:
    environ = options.environ
    return ProcessSetup(
        children=options.children,
        isolation=options.isolation,
        compaction=options.compaction,
        model_options=options.model_options,
        allow_net=options.allow_net,
        sandbox=str(options.sandbox),
        permissions=options.permissions,
        can_ask=options.approver is not None,
        environ=None if environ is None else dict(environ),
        user_home=(os.environ if environ is None else environ).get("HOME", "/"),
        agents=dict(services.agents),
        context_texts=dict(services.context_texts),
        environment_text=services.environment_text,
        child_models=dict(services.child_models),
        windows=models.windows,
        images=models.images,
        bridged_models=() if isinstance(options.model, str) else (options.model.name,),
        servers=describe_servers(services.servers) if services.servers else None,
        own_servers=[each for each in options.integrations.mcp_servers if each.agent],
        session_tools=describe_tools(tools),
        has_hooks=services.hooks is not None,
        spill_folder=services.spill_folder,
        trace_ids=services.trace_ids,
        versions_folder=services.versions.folder if services.versions else "",
    )


def _make_hidden_check(services: SessionServices) -> Callable[[str], bool] | None:
    """Make a function that tells which files no run may read, so they must not leave here."""
    policy = services.environments.shared.policy
    if isinstance(policy, RulePolicy) and policy.read_denials:
        return policy.denies_reading
    return None


def _can_send_files() -> bool:
    from ..._adapters.workspaces.isolated.git import explain_unusable_git

    return not explain_unusable_git()


def _refuse_objects(options: SessionOptions, tools: Sequence[Tool]) -> None:
    is_text = isinstance(options.sandbox, str) and isinstance(options.cwd, str)
    if options.integrations.tool_sources or not is_text:
        raise UsageError(
            "worker processes cannot use tool source, workspace or sandbox objects of the caller",
            where="worker",
            remedy='Use worker="local", or leave the objects out.',
        )
    for tool in tools:
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
    """Refuse an agent's own servers if they have secrets: they start on the run's machine."""
    for server in options.integrations.mcp_servers:
        line = "\n".join((server.command, *server.args, server.url, server.headers_helper))
        has_values = server.env or server.headers or "client_secret" in server.oauth
        if server.agent and (has_values or services.redact(line) != line):
            raise UsageError(
                f"the MCP server {server.name} of the agent {server.agent} has variables, headers "
                "or secrets, and would start on another machine; secrets are not sent there",
                where="worker",
                remedy='Declare the server for the session, or use worker="process".',
            )
