"""The program of a worker process: executes a session's runs.

It builds their services from the config that the session sends.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, cast

from msgspec.structs import replace

from ..._adapters.models.pricing import PriceFile
from ..._adapters.output_filters import Redactor, mark_injection
from ..._adapters.tools._sources import load_tools
from ..._adapters.workers.remote.messages import (
    AskNode,
    StartFailed,
    ToProcess,
    ToWorker,
    WorkerConfig,
)
from ..._adapters.workers.remote.node_check import describe_node
from ..._adapters.workers.remote.rate_limits import RemoteRateLimiter
from ..._adapters.workers.remote.remote_services import (
    RemoteApprover,
    RemoteJournal,
    RemoteModel,
    SessionLink,
)
from ..._adapters.workers.remote.serve import RunServer
from ..._adapters.workers.remote.session_calls import (
    RemoteHooks,
    RemoteOutputChecks,
    RemoteServers,
    RemoteTeams,
    make_session_tool,
)
from ..._core.json_values import make_binary_decoder
from ..._core.ports import Board, RunLink
from ..._core.tools import Tool
from ..._engine.changes.live_overlaps import LiveOverlaps
from ..._engine.changes.watch import ChangeWatch
from ..._engine.file_writes import FileVersions
from ..._engine.recorded_conversations import PastEvents
from ..._engine.session_context import SessionServices, Watchers
from ..._peers import MessageStream
from ..._platform.imports import extend_import_path
from ..._platform.own_process import collect_garbage_less_often, raise_open_file_limit
from ..._platform.private_files import make_private_folder
from ..._platform.time_limits import SystemClock
from ...errors import MudroomError, UsageError, WorkspaceError
from ..config import find_home
from ..context_windows import make_context_policy
from ..environments import EnvironmentFactory, NodeEnvironments, SessionEnvironments
from ..model_registry import ModelRegistry
from ..open_adapters import (
    collect_tools,
    make_board,
    make_board_tools,
    make_isolated_opener,
    make_servers,
    make_web_tools,
)
from .setup import ProcessSetup, get_environ

if TYPE_CHECKING:
    from ..._adapters.boards.session_board import SessionBoard


_DECODER = make_binary_decoder(ProcessSetup)


async def serve(link: RunLink) -> None:
    """Execute runs until the other end closes the link. Their session's config comes first."""
    _prepare_process()
    stream = MessageStream[ToProcess](link, ToProcess)
    try:
        await _serve_session(link, stream)
    except MudroomError as error:
        stream.send(StartFailed(str(error)))
        stream.flush()


@cache
def _prepare_process() -> None:
    # Several sessions may share the process.
    collect_garbage_less_often()
    raise_open_file_limit()


async def _serve_session(link: RunLink, stream: MessageStream[ToProcess]) -> None:
    message = await stream.receive()
    if isinstance(message, AskNode):
        stream.send(await describe_node(message))
        message = await stream.receive()
    if not isinstance(message, WorkerConfig):
        return  # the session is closed
    to_session = SessionLink(stream.send, link.check_lease)
    past_events = PastEvents()
    try:
        built = build_worker_services(message, to_session, past_events)
    except MudroomError:
        raise
    except Exception as error:  # for the session to report; others may use the process as well
        text = f"a worker process cannot prepare the session: {type(error).__name__}: {error}"
        raise UsageError(text, where="worker") from error
    link.start_beats()  # not earlier: the caller's modules may take long to import
    runs = RunServer(to_session, built.services, past_events, message.max_children)
    await runs.serve(cast("MessageStream[ToWorker]", stream))
    await built.close()


def _adapt_to_node(config: WorkerConfig, setup: ProcessSetup) -> tuple[WorkerConfig, ProcessSetup]:
    """Adapt both to a machine without the folders, which has its own state folder.

    The task board and earlier file contents stay on the session's machine.
    """
    home = find_home(os.environ)
    folder = _find_node_folder(home, platform.node(), config.session)
    try:
        make_private_folder(Path(folder))
    except OSError as error:
        raise UsageError(
            f"this machine has no folder for files of its own: {error}",
            where="worker",
            remedy="Make the folder writable, or set MUDROOM_HOME on this machine to another one.",
        ) from error
    spill_folder = os.path.join(folder, "spill")
    setup = replace(setup, spill_folder=spill_folder, versions_folder="", board_offer="")
    return replace(config, home=home), setup


class WorkerServices(NamedTuple):
    """The services of a session's runs in a worker process, and what to close after them."""

    services: SessionServices
    models: ModelRegistry
    board: SessionBoard | None

    async def close(self) -> None:
        self.services.environments.shared.sandbox.close()
        await self.models.close()
        if self.board:
            await self.board.close()


def _collect_tools(
    setup: ProcessSetup, own: Sequence[Tool], board: Board | None, environments: SessionEnvironments
) -> dict[str, Tool]:
    permissions = setup.permissions
    tools = collect_tools(
        (
            *make_web_tools(permissions, allow_net=setup.allow_net),
            *make_board_tools(board, setup.board_offer),
            *own,
        ),
        permissions.select_agents(setup.agents),
        setup.skills,
        ask=environments.shared.sandbox.tier == "ask",
        isolation=True,
        isolate=setup.isolation.each_child,
        limits=setup.listing_limits,
    )
    return {name: tool for name, tool in tools.items() if not permissions.denies_tool(name)}


def _open_environments(
    config: WorkerConfig, setup: ProcessSetup, link: SessionLink
) -> SessionEnvironments:
    factory = EnvironmentFactory(
        permissions=setup.permissions,
        home=config.home,
        user_home=setup.user_home,
        sandbox=setup.sandbox,
        allow_net=setup.allow_net,
        can_ask=setup.can_ask,
        readable=tuple(skill.folder for skill in setup.skills.values()),
        spill_folder=setup.spill_folder,
    )
    if config.has_own_files:
        return _open_node_environments(config, factory, link)
    shared = factory.open(config.folder, [])
    open_isolated = make_isolated_opener(
        config.home, config.session, config.folder, config.isolated_bytes
    )
    return SessionEnvironments(shared, factory, open_isolated)


def _open_node_environments(
    config: WorkerConfig, factory: EnvironmentFactory, link: SessionLink
) -> SessionEnvironments:
    from ..._adapters.workers.remote.tree_transfer import TreeLink
    from ..._adapters.workspaces.isolated.node_workspaces import NodeWorkspaces, remove_old_sessions

    # Sessions whose process was killed here have left their files.
    folder = _find_node_folder(config.home, platform.node(), config.session)
    remove_old_sessions(os.path.dirname(folder), config.session)
    workspaces = NodeWorkspaces(
        folder,
        config.folder,
        config.home,
        TreeLink(link, asyncio.get_running_loop()),
        config.isolated_bytes,
    )
    return NodeEnvironments(factory, config.folder, workspaces)


def _find_node_folder(home: str, host: str, session: str) -> str:
    """Return a session's folder on a machine; machines may share the state folder."""
    name = host.replace("/", "-").strip(".") or "node"
    # The id comes from another machine and must not lead out of the folder.
    for part in (name, session):
        if part != os.path.basename(part) or part in ("", ".", ".."):
            raise WorkspaceError(f"{part!r} cannot be the name of a folder")
    return os.path.join(home, "nodes", name, session)


def build_worker_services(
    config: WorkerConfig, link: SessionLink, past_events: PastEvents
) -> WorkerServices:
    """Build the runs' services. `past_events` is filled before each run."""
    setup = _DECODER.decode(config.setup)
    if config.has_own_files:
        config, setup = _adapt_to_node(config, setup)
    environ = get_environ(setup)
    clock = SystemClock(setup.clock_start)
    models = _open_models(setup, link, environ, clock)
    board = None
    if setup.board_offer:
        board = make_board(config.home, config.folder, config.session, is_owner=False)
    environments = _open_environments(config, setup, link)
    extend_import_path(config.import_path)
    in_session = (make_session_tool(spec, link) for spec in setup.session_tools)
    own_tools = (*load_tools(config.tool_references), *in_session)
    journal = RemoteJournal(link)
    prices = PriceFile(config.home)
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
        servers=_open_servers(config, setup, link, environ),
        toolbox=_collect_tools(setup, own_tools, board, environments),
        agents=setup.agents,
        spill_folder=setup.spill_folder,
        versions=FileVersions(setup.versions_folder) if setup.versions_folder else None,
        environment_text=setup.environment_text,
        context_texts=setup.context_texts,
        child_models=setup.child_models,
        children=setup.children,
        isolation=setup.isolation,
        model_options=setup.model_options,
        compute_price=prices.calculate_cost,
        past_events=past_events,
        watchers=Watchers((link.show,)),
        hooks=RemoteHooks(link) if setup.has_hooks else None,
        change_watch=ChangeWatch(config.home),
        live_overlaps=LiveOverlaps(clock),
        output_checks=RemoteOutputChecks(link),
        teams=RemoteTeams(link),
        context_policy=make_context_policy(models, setup.compaction, config.home, prices),
        board=board,
        trace_ids=setup.trace_ids,
    )
    return WorkerServices(services, models, board)


def _open_servers(
    config: WorkerConfig, setup: ProcessSetup, link: SessionLink, environ: Mapping[str, str]
) -> RemoteServers | None:
    if setup.servers is None:
        return None
    own = make_servers(setup.own_servers, setup.permissions, config.folder, config.home, environ)
    return RemoteServers(
        link, setup.servers, lambda agent: own.open_own(agent, is_root=False) if own else None
    )


def _open_models(
    setup: ProcessSetup, link: SessionLink, environ: Mapping[str, str], clock: SystemClock
) -> ModelRegistry:
    """Open the models; those that exist only in the session's process are reached by the link."""
    models = ModelRegistry(
        environ,
        clock,
        lambda name: RemoteModel(link, name),
        takes_images=setup.model_options.takes_images,
        windows=setup.windows,
        images=setup.images,
        make_rate_limiter=lambda provider: RemoteRateLimiter(link, provider),
    )
    for name in setup.bridged_models:
        models.register(RemoteModel(link, name))
    return models
