"""Builds a session's services: chooses the adapters that the options call for.

`model_registry.py` chooses model adapters, `worker_setup` those of a worker process, and
`_replay/` those of a replay.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AsyncExitStack, suppress
from types import CoroutineType
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from .._adapters import agent_files
from .._adapters.models import providers
from .._adapters.models.pricing import PriceFile
from .._adapters.output_filters import Redactor, mark_injection
from .._adapters.tools._sources import SessionToolSources, load_tools
from .._adapters.workers.local import LocalWorker
from .._core.agents import Agent
from .._core.events import SessionOpened, StoredEvent
from .._core.listings import ListingLimits, count_listed_characters
from .._core.notices import Notice
from .._core.ports import ApprovalDecision, ApprovalRequest, Environment, Journal, SessionServers
from .._core.ports.board import BoardOffer
from .._core.tools import Tool
from .._engine.changes.live_overlaps import LiveOverlaps
from .._engine.changes.watch import ChangeWatch
from .._engine.recorded_conversations import PastEvents
from .._engine.session_context import SessionServices, Watchers
from .._platform.time_limits import SystemClock
from ..errors import JournalError, SessionPaused, UsageError
from .agent_catalog import AgentCatalog, describe_platform, load_catalog, resolve_child_models
from .context_windows import make_context_policy
from .environments import EnvironmentFactory, SessionEnvironments
from .model_registry import (
    ModelRegistry,
    explain_offline,
    explain_unusable,
    make_missing_model_error,
    make_replay_model,
)
from .open_adapters import (
    add_hooks,
    check_isolation,
    choose_board_offer,
    collect_tools,
    explain_missing_search,
    make_board,
    make_board_tools,
    make_isolated_opener,
    make_servers,
    make_web_tools,
    open_journal,
    open_store,
    open_tracing,
    open_versions,
)
from .options import SessionOptions, choose_worker
from .recorded_options import find_folder, find_home, get_environ

if TYPE_CHECKING:
    from .._adapters.boards.session_board import SessionBoard
    from .._adapters.integrations.tracing.session_tracing import SessionTracing
    from .._adapters.workers.remote.worker import RemoteWorker


class SessionResources(Struct, frozen=True, kw_only=True):
    """Everything an open session uses and must close."""

    services: SessionServices
    board: SessionBoard | None
    board_offer: BoardOffer
    journal: SessionJournal
    worker: LocalWorker | RemoteWorker
    models: ModelRegistry
    root_agent: Agent
    model: str
    output_style: str = ""
    mcp_servers: SessionServers | None = None
    context_files: agent_files.ContextFiles | None = None
    notices: tuple[Notice, ...] = ()
    tool_sources: SessionToolSources
    tracing: SessionTracing | None = None

    @property
    def board_name(self) -> str:
        """File name of the task board offered to all runs, "" for none."""
        return self.board.name if self.board and self.board_offer == "all" else ""

    async def close(self) -> None:
        # First whatever still starts runs and records events, last what they depend on.
        await self.worker.close()
        await self.tool_sources.close()
        if self.mcp_servers:
            await self.mcp_servers.close()
        if self.board:
            await self.board.close(keeps_tasks=self.journal.is_sealed)
        self.services.environments.shared.sandbox.close()
        await self.models.close()
        try:
            await self.journal.close()
        finally:
            if self.tracing:
                await self.tracing.close()


async def open_resources(
    options: SessionOptions,
    watchers: Watchers,
    past_events: PastEvents,
    *,
    allows_offline: bool = False,
) -> SessionResources:
    """Choose and open everything a session uses. If it raises, nothing stays open.

    `watchers` may change later; `past_events`, the interrupted runs' events by run id, is filled
    before the first run. Raises UsageError or JournalError.
    """
    builder = _Builder(options, allows_offline=allows_offline)
    async with builder.undo:
        resources = await builder.build(watchers, past_events)
        builder.undo.pop_all()
    return resources


class _Builder:
    """Builds a session. `undo` closes whatever is open; empty it once everything is built."""

    def __init__(self, options: SessionOptions, *, allows_offline: bool) -> None:
        self._options = options
        self._allows_offline = allows_offline
        self._environ = get_environ(options)
        self._folder = find_folder(options)
        self._home = find_home(options)
        self._clock = SystemClock()
        self._models = ModelRegistry(
            self._environ,
            self._clock,
            lambda name: make_replay_model(name, open_store(options.store, self._home)),
            takes_images=options.model_options.takes_images,
        )
        self._notices: list[Notice] = []
        self._servers = make_servers(
            options.integrations.mcp_servers,
            options.permissions,
            self._folder,
            self._home,
            self._environ,
        )
        self.undo = AsyncExitStack()
        self.undo.push_async_callback(self._models.close)
        if self._servers:
            self.undo.push_async_callback(self._servers.close)
        self._board: SessionBoard | None = None
        self._board_offer: BoardOffer = ""
        self._tracing: SessionTracing | None = None

    async def build(self, watchers: Watchers, past_events: PastEvents) -> SessionResources:
        catalog = load_catalog(
            self._options,
            self._folder,
            self._environ.get("HOME", ""),
            lambda model: explain_unusable(model, self._environ),
            self._notices,
        )
        model = await self._choose_root_model(catalog.root_agent)
        searching_model = self._models.get_model(model)
        check_isolation(self._options, catalog.agents.values(), self._folder, self._notices)
        self._notices += explain_missing_search(catalog.root_agent, searching_model, self._options)
        child_models = await self._choose_child_models(catalog.agents)
        toolbox: dict[str, Tool] = {}
        journal = await self._open_journal()
        limits = self._choose_listing_limits(model)
        self._choose_board(catalog)
        services = self._build_services(
            catalog, journal, watchers, past_events, toolbox, limits, child_models
        )
        services = add_hooks(
            self._options, services, model, self._environ, self._home, self._servers
        )
        sources = SessionToolSources(
            self._options.integrations.tool_sources,
            toolbox,
            lambda name: not self._options.permissions.denies_tool(name),
        )
        self.undo.push_async_callback(sources.close)
        self._notices.extend(await sources.open())
        self._start_tracing(watchers)
        await self._open_needed_board()
        return SessionResources(
            services=services,
            board=self._board,
            board_offer=self._board_offer,
            journal=journal,
            worker=await self._choose_worker(services, catalog, limits),
            models=self._models,
            root_agent=catalog.root_agent,
            model=model,
            output_style=catalog.output_style,
            mcp_servers=self._servers,
            context_files=catalog.context_files,
            notices=tuple(self._notices),
            tool_sources=sources,
            tracing=self._tracing,
        )

    def _choose_board(self, catalog: AgentCatalog) -> None:
        agents = (catalog.root_agent, *catalog.agents.values())
        self._board_offer = choose_board_offer(self._options, agents)
        if self._board_offer:
            self._board = make_board(self._home, self._folder, self._options.id)
            self.undo.push_async_callback(self._board.close)

    async def _open_needed_board(self) -> None:
        # Claims by worker processes need the session's lock from the start.
        has_workers = choose_worker(self._options).kind != "local"
        if self._board and (self._options.children.board or has_workers):
            await self._board.open()

    def _start_tracing(self, watchers: Watchers) -> None:
        if self._tracing:
            self.undo.push_async_callback(self._tracing.close)
            self._tracing.start()
            watchers.append(self._tracing.observe)

    async def _open_journal(self) -> SessionJournal:
        journal = await open_journal(self._options, self._home)
        self.undo.push_async_callback(journal.close)
        self._notices += (Notice("record", text) for text in getattr(journal, "notices", ()))
        return SessionJournal(journal)

    def _build_services(
        self,
        catalog: AgentCatalog,
        journal: Journal,
        watchers: Watchers,
        past_events: PastEvents,
        toolbox: dict[str, Tool],
        limits: ListingLimits,
        child_models: Mapping[str, str],
    ) -> SessionServices:
        """Open the services and fill the toolbox."""
        options = self._options
        spill_folder = os.path.join(self._home, "spills", options.id)
        skill_folders = tuple(skill.folder for skill in catalog.skills.values())
        environments = self._open_environments(skill_folders, spill_folder)
        redact = watchers.redact = Redactor({**os.environ, **self._environ})
        self._tracing = open_tracing(options, self._environ, redact, self._notices)
        toolbox.update(self._collect_tools(catalog, environments.shared, limits))
        prices = PriceFile(self._home)
        return SessionServices(
            session=options.id,
            get_model=self._models.get_model,
            journal=journal,
            environments=environments,
            clock=self._clock,
            approver=options.approver or DenyAllApprover(),
            redact=redact,
            mark_report=mark_injection,
            toolbox=toolbox,
            servers=self._servers,
            agents=catalog.agents,
            spill_folder=spill_folder,
            environment_text=describe_platform(self._folder),
            context_texts=catalog.context_texts,
            children=options.children,
            isolation=options.isolation,
            model_options=options.model_options,
            compute_price=prices.calculate_cost,
            past_events=past_events,
            child_models=child_models,
            watchers=watchers,
            change_watch=ChangeWatch(self._home),
            live_overlaps=LiveOverlaps(self._clock),
            versions=open_versions(options, self._home),
            context_policy=make_context_policy(
                self._models, options.compaction, self._home, prices
            ),
            board=self._board,
            trace_ids=self._tracing.ids if self._tracing else None,
        )

    def _collect_tools(
        self, catalog: AgentCatalog, shared: Environment, limits: ListingLimits
    ) -> dict[str, Tool]:
        options = self._options
        own = (
            *make_web_tools(options.permissions, allow_net=options.allow_net),
            *make_board_tools(self._board, self._board_offer),
            *load_tools(options.tools),
        )
        tools = collect_tools(
            own,
            options.permissions.select_agents(catalog.agents),
            catalog.skills,
            ask=shared.sandbox.tier == "ask",
            isolation=shared.trees is not None,
            isolate=options.isolation.each_child,
            limits=limits,
        )
        denies = options.permissions.denies_tool
        return {name: tool for name, tool in tools.items() if not denies(name)}

    def _choose_listing_limits(self, model: str) -> ListingLimits:
        window = getattr(self._models.get_model(model), "context_window", 0)
        models = providers.list_usable_models(self._environ)
        return ListingLimits(count_listed_characters(window), tuple(models))

    async def _choose_root_model(self, agent: Agent) -> str:
        requested = self._options.model
        if not isinstance(requested, str):
            requested = self._models.register(requested)
        if requested == "auto" and agent.model != "inherit":
            requested = agent.model
        if requested == "auto":
            requested = await self._models.choose_default() or self._use_offline_model()
        else:
            await self._models.ask_servers(requested)
        if self._options.model_options.fallback:
            await self._models.ask_servers(self._options.model_options.fallback)
            requested = f"{requested},{self._options.model_options.fallback}"
        return self._models.get_model(requested).name

    def _use_offline_model(self) -> str:
        if not self._allows_offline:
            raise make_missing_model_error()
        self._notices.append(Notice("offline", explain_offline(self._environ)))
        return "offline"

    async def _choose_child_models(self, agents: Mapping[str, Agent]) -> dict[str, str]:
        options = self._options
        models = resolve_child_models(
            options.children.model,
            agents,
            options.integrations.origins.get("child_model", ""),
            self._notices,
        )
        return {
            agent: model and await self._models.prepare(model, f"child_model of {agent}")
            for agent, model in models.items()
        }

    def _open_environments(
        self, readable: tuple[str, ...], spill_folder: str
    ) -> SessionEnvironments:
        options = self._options
        factory = EnvironmentFactory(
            permissions=options.permissions,
            home=self._home,
            user_home=self._environ.get("HOME", "/"),
            sandbox=options.sandbox,
            allow_net=options.allow_net,
            can_ask=options.approver is not None,
            readable=readable,
            spill_folder=spill_folder,
        )
        workspace = None if isinstance(options.cwd, str) else options.cwd
        shared = factory.open(self._folder, self._notices, workspace=workspace)
        self.undo.callback(shared.sandbox.close)
        if not isinstance(options.sandbox, str) or workspace is not None:
            if options.isolation.each_child or options.isolation.check:
                raise UsageError(
                    "isolated workspaces cannot use workspace or sandbox objects of the caller",
                    where="Isolation(each_child=...)"
                    if options.isolation.each_child
                    else "Isolation(check=...)",
                    remedy="Leave the objects out, or each_child and check.",
                )
            return SessionEnvironments(shared)
        open_isolated = make_isolated_opener(
            self._home, options.id, self._folder, options.isolation.max_mb << 20
        )
        return SessionEnvironments(shared, factory, open_isolated)

    async def _choose_worker(
        self, services: SessionServices, catalog: AgentCatalog, limits: ListingLimits
    ) -> LocalWorker | RemoteWorker:
        options = self._options
        if choose_worker(options).kind == "local":
            return LocalWorker(services, options.children.parallel)
        from .worker_setup.session_side import open_process_worker

        return await open_process_worker(
            options,
            services,
            catalog.skills,
            home=self._home,
            environ=self._environ,
            limits=limits,
            models=self._models,
            board_offer=self._board_offer,
            clock=self._clock,
        )


class DenyAllApprover:
    """The port Approver if there is nobody to ask."""

    async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
        return ApprovalDecision(False, "no user is present to confirm it")


class SessionJournal:
    """A journal that stores the opening of a session together with the next events.

    So the record of a new session begins with its opening and first prompt, or not at all.

    Attributes:
        observe: called with each event except the opening, before it is stored.
        is_sealed: true once the session is paused. Every append then raises SessionPaused, so that
            no run takes another step or reaches its end: a later process finds the record as a
            crash would have left it.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._held: list[StoredEvent] = []
        self._flushing: asyncio.Task[None] | None = None
        self._appends = 0
        self.observe: Callable[[StoredEvent], None] | None = None
        self.is_sealed = False

    @property
    def is_used(self) -> bool:
        """True once there is an event after the opening."""
        return not self._held or type(self._held[-1]) is not SessionOpened

    def hold(self, opening: SessionOpened) -> None:
        self._held.append(opening)

    def append_soon(self, event: StoredEvent) -> None:
        """Store an event in the next step of the event loop, before all later events.

        If it cannot be stored, the next `append` stores it first or raises. It is dropped if later
        events have been stored meanwhile, since it would be read as the latest.
        """
        if self.is_sealed:
            raise _make_pause_error()
        if self.observe is not None:
            self.observe(event)
        self._held.append(event)
        self._flushing = asyncio.get_running_loop().create_task(self._flush())

    def append(self, *events: StoredEvent) -> CoroutineType[Any, Any, int]:
        if self.is_sealed:
            raise _make_pause_error()
        if self.observe is not None:
            for event in events:
                self.observe(event)
        self._appends += 1
        if not self._held or not events:
            return self._journal.append(*events)
        return self._append_after_held(events)

    async def _flush(self) -> None:
        if self.is_used:  # a pause drops nothing that was accepted before it
            with suppress(JournalError):  # the events are held again
                await self._append_after_held(())

    async def _append_after_held(self, events: tuple[StoredEvent, ...]) -> int:
        held = self._held
        self._held = []
        appends = self._appends
        try:
            return await self._journal.append(*held, *events)
        except JournalError:
            if self._appends == appends:
                self._held = held + self._held
            raise

    def read(
        self, after: int = 0, *, types: Collection[type[StoredEvent]] = ()
    ) -> AsyncIterator[StoredEvent]:
        return self._journal.read(after, types=types)

    def follow(self, after: int = 0) -> AsyncIterator[StoredEvent]:
        return self._journal.follow(after)

    async def close(self) -> None:
        # An opening with nothing after it is not stored.
        await self._flush()
        await self._journal.close()


def _make_pause_error() -> SessionPaused:
    return SessionPaused(
        "the session is paused", remedy="Resume it: its runs continue where they stopped."
    )
