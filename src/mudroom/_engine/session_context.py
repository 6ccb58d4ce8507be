"""What a session's runs share: services, watchers, and the recorder of events."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from hashlib import sha256
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct, field

from .._core.agents import Agent, WorkspaceSpec
from .._core.budgets import Limit
from .._core.events import (
    AnyEvent,
    CheckFinished,
    Compacted,
    Delta,
    Event,
    ResultsCleared,
    RunResumed,
    RunStarted,
    StoredEvent,
    WorkMerged,
)
from .._core.json_values import clean_json
from .._core.messages import Usage
from .._core.options import Children, Isolation, ModelOptions
from .._core.ports import (
    Approver,
    Board,
    Clock,
    Environment,
    Environments,
    Hooks,
    Journal,
    Model,
    RequestConfig,
    Toolbox,
    ToolServers,
)
from .._core.runs import Brief, Report, RequestHead, ToolDescription
from .._projections.safe_text import redact_event
from .._projections.trace_ids import TraceIds
from ..errors import UsageError
from .changes.live_overlaps import LiveOverlaps
from .changes.watch import ChangeWatch
from .context_policy import ContextPolicy
from .file_writes import FileVersions
from .meters.meter import Meter
from .meters.request_gate import Meters
from .meters.run_timer import SilenceWatch
from .recorded_conversations import PastEvents
from .structured_output import OutputChecks
from .team_registry import Teams

E = TypeVar("E", bound=Event)


class Recorder:
    """Writes a run's events; `RunContext.go_to_turn` sets the turn they carry."""

    def __init__(self, services: SessionServices, run_id: str) -> None:
        self.turn = 0
        self._run_id = run_id
        self._prompt_id_prefix = f"{services.session}#{run_id}#"
        self._journal = services.journal
        self._clock = services.clock
        self._watchers = services.watchers
        self._watching = services.watchers.functions
        self._forward = services.forward_events
        self._observe = services.teams.observe
        self._unsaved: list[StoredEvent] = []
        self._unshown: list[StoredEvent] = []

    def make_event(self, kind: type[E], /, **fields: Any) -> E:
        return kind(
            at=self._clock.now(),
            run=self._run_id,
            turn=self.turn,
            prompt_id=f"{self._prompt_id_prefix}{self.turn}",
            **fields,
        )

    async def record(self, *events: StoredEvent) -> None:
        """Store these events and those kept by `record_later`, then show them.

        If the calling task is cancelled, the journal still stores them, and the next `record` shows
        them.
        """
        unsaved = [*self._unsaved, *events]
        unshown = [*self._unshown, *events]
        self._unsaved = []
        self._unshown = []
        for event in unsaved:
            self._observe(event)
        if self._forward is not None:
            await self._forward(unsaved, len(unsaved) - len(unshown))
            return
        try:
            await self._journal.append(*unsaved)
        except asyncio.CancelledError:
            self._unshown[:0] = unshown
            raise
        if self._watching:
            for event in unshown:
                self._watchers.show(event)

    def record_later(self, event: StoredEvent, *, show: bool = False) -> None:
        """Store an event with the next `record`, for facts that no effect depends on.

        Arguments:
            show: show the event now rather than when it is stored, unless an earlier one waits.
        """
        self._unsaved.append(event)
        if not show or self._unshown:
            self._unshown.append(event)
        elif self._watching:
            self._watchers.show(event)

    def show_delta(self, kind: str, text: str, call_id: str = "") -> None:
        if self._watching:
            self._watchers.show(self.make_event(Delta, kind=kind, text=text, call_id=call_id))


# Takes the place of a tool's name in permission decisions.
CHECK = "merge check"


class CheckResults:
    """Check results of a session, and the check commands the user has allowed."""

    def __init__(self) -> None:
        self._allowed: set[str] = set()
        self._is_unused_known = False
        self._results: dict[tuple[str, str], CheckFinished] = {}

    def observe(self, event: StoredEvent) -> None:
        if type(event) is CheckFinished:
            self._results[event.command, event.tree] = event

    def find(
        self, command: str, tree: str, past_events: Iterable[StoredEvent]
    ) -> CheckFinished | None:
        """Find the result of running a command on a tree; None if it has not run.

        `past_events`, of an earlier process, are read only if needed.
        """
        if (command, tree) not in self._results:
            for event in past_events:
                self.observe(event)
        return self._results.get((command, tree))

    def allow(self, command: str) -> None:
        self._allowed.add(command)

    def is_allowed(self, command: str) -> bool:
        return command in self._allowed

    def is_first_unused(self) -> bool:
        """Return True once, if no check has run yet, so that the caller tells the user."""
        is_first = not self._results and not self._is_unused_known
        self._is_unused_known = True
        return is_first


_ID_LENGTH = 16  # hexadecimal digits
_MAX_CACHED_HEADS = 32

_encoder = msgspec.json.Encoder(enc_hook=repr)


class RequestHeads:
    """Ids of the request heads, and their parts, that a session's record already contains."""

    def __init__(self) -> None:
        self._recorded: set[str] = set()
        # Tools are compared by identity: a cached config keeps its tools alive.
        self._cache: dict[object, tuple[RequestConfig, RequestHead]] = {}

    def load(self, events: Iterable[StoredEvent]) -> None:
        for event in events:
            if type(event) is not RunStarted and type(event) is not RunResumed:
                continue
            if event.head and event.head.system:
                self._recorded |= {event.head.id, *event.head.parts}

    def describe(self, config: RequestConfig) -> RequestHead:
        """Describe a run's head for its event, including only what is not recorded yet."""
        key = (config.system, tuple(map(id, config.tools)), config.provider_tools)
        if key in self._cache:
            return self._cache[key][1]
        head = self._describe(config)
        if len(self._cache) >= _MAX_CACHED_HEADS:
            self._cache.clear()
        self._cache[key] = (config, RequestHead(head.id))
        return head

    def _describe(self, config: RequestConfig) -> RequestHead:
        tools = [
            ToolDescription(tool.name, tool.description, tool.parameters) for tool in config.tools
        ]
        head_id = _compute_id((config.system, tools, config.provider_tools))
        if head_id in self._recorded:
            return RequestHead(head_id)
        system_id = _compute_id(config.system)
        parts: dict[str, str | ToolDescription] = {system_id: config.system}
        tool_ids = tuple(map(_compute_id, tools))
        parts.update(zip(tool_ids, tools, strict=True))
        new_parts = {name: part for name, part in parts.items() if name not in self._recorded}
        self._recorded |= {head_id, *new_parts}
        return RequestHead(head_id, system_id, tool_ids, config.provider_tools, new_parts)


def _compute_id(value: object) -> str:
    try:
        encoded = _encoder.encode(value)
    except (ValueError, OverflowError):  # a surrogate, or a number with too many digits
        encoded = _encoder.encode(clean_json(msgspec.to_builtins(value, enc_hook=repr)))
    return sha256(encoded).hexdigest()[:_ID_LENGTH]


FindRecordedEdits = Callable[
    [str, int, int], Awaitable[Sequence[tuple[ResultsCleared | Compacted, Brief | None]]]
]
"""Takes a run id, a turn and a number of refusals; returns the conversation's edits there.

Each edit comes with the brief of its summary run, if it has one.
"""


class Watchers:
    """Functions called with each event of a session, in the order they were appended.

    Attributes:
        functions: the watchers; always the same object, changed only by the methods below.
        on_change: called when the first one was added, or the last one removed.
    """

    def __init__(self, watchers: Iterable[Callable[[AnyEvent], None]] = ()) -> None:
        self._functions = list(watchers)
        self.functions: Sequence[Callable[[AnyEvent], None]] = self._functions
        self.on_change: Callable[[], None] = lambda: None
        self.redact: Callable[[str], str] = str

    def __len__(self) -> int:
        return len(self._functions)

    def __iter__(self) -> Iterator[Callable[[AnyEvent], None]]:
        return iter(self._functions)

    def show(self, event: AnyEvent) -> None:
        """Call the watchers with an event, without the secrets that only the record may have."""
        if self._functions:
            event = redact_event(event, self.redact)
        for watch in self._functions:
            watch(event)

    def append(self, watcher: Callable[[AnyEvent], None]) -> None:
        self._functions.append(watcher)
        if len(self._functions) == 1:
            self.on_change()

    def remove(self, watcher: Callable[[AnyEvent], None]) -> None:
        """Remove a watcher, if it is still there."""
        if watcher in self._functions:
            self._functions.remove(watcher)
            if not self._functions:
                self.on_change()

    def clear(self) -> None:
        if self._functions:
            self._functions.clear()
            self.on_change()


class RecordedWork(Protocol):
    """The recorded isolated workspaces, for a replay."""

    def find_workspace(self, run_id: str) -> WorkspaceSpec | None: ...

    def find_report(self, run_id: str) -> Report | None: ...

    def find_merge(self, child: str, call: str) -> WorkMerged | None: ...


class ComputePrice(Protocol):
    def __call__(self, model: str, usage: Usage, *, uses_table: bool = True) -> float | None:
        """Return the price in US dollars, None if it is unknown.

        `uses_table`: also consult a table of prices that takes time to load.
        """
        ...


class SingleEnvironment:
    """The port Environments with a single environment for all runs; ignores the spec."""

    sees_folder = True

    def __init__(self, shared: Environment) -> None:
        self.shared = shared

    def open(self, spec: WorkspaceSpec) -> AbstractAsyncContextManager[Environment]:
        return nullcontext(self.shared)


class SessionServices(Struct, frozen=True, kw_only=True):
    """Services that all runs of a session share. They know no run's conversation.

    Arguments:
        toolbox: all tools by name, except MCP tools.
        agents: agents that `task` may call, by name.
        spill_folder: folder for output that is too long for a model.
        environment_text: platform and date, for system prompts; "" also leaves out the folder.
        context_texts: text of the context files, by the value of `Agent.context_files`.
        child_models: agent name -> model string for children whose agent says "inherit"; "*" is any
            other agent. Without an entry, children use their parent's model.
        redact: removes secrets from tool results and from what models write. An optional method
            `find_unfinished` locates the start of a secret that is still streaming.
        mark_report: marks a child's report that looks like a prompt injection.
        past_events: events of runs that an earlier process left unfinished, by run id.
        former_folders: the folder a recorded run worked in, by run id, if the project has moved
            since.
        watchers: called with each event in order, once it is stored or nothing depends on it, and
            with deltas. They must neither raise nor block.
        forward_events: sends events to the session's process, which stores and shows them; its
            second argument is how many of the first have been shown. None in the session's process.
        change_watch, versions, live_overlaps: None to compare, keep and warn of nothing.
        output_checks: checks of the outputs that runs emit.
        trace_ids: ids for the spans of tool calls; None if no traces are exported.
        in_thread: calls a function off the event loop. A replay, which must know when nothing moves
            any more, calls it directly.
        recorded_edits, recorded_work: in a replay, the record's edits and isolated workspaces;
            otherwise None, and the engine makes them.
    """

    session: str
    get_model: Callable[[str], Model]
    journal: Journal
    environments: Environments
    clock: Clock
    approver: Approver
    toolbox: Toolbox
    servers: ToolServers | None = None
    agents: Mapping[str, Agent]
    spill_folder: str
    environment_text: str
    context_texts: Mapping[str, str] = {}
    child_models: Mapping[str, str] = {}
    children: Children = Children()
    isolation: Isolation = Isolation()
    model_options: ModelOptions = ModelOptions()
    check_results: CheckResults = field(default_factory=CheckResults)
    compute_price: ComputePrice = lambda model, usage, *, uses_table=True: None
    redact: Callable[[str], str] = str
    mark_report: Callable[[str], str] = str
    past_events: PastEvents = field(default_factory=PastEvents)
    former_folders: dict[str, str] = field(default_factory=dict[str, str])
    watchers: Watchers = field(default_factory=Watchers)
    forward_events: Callable[[Sequence[StoredEvent], int], Awaitable[None]] | None = None
    hooks: Hooks | None = None
    meters: Meters = field(default_factory=Meters)
    silence_watch: SilenceWatch = field(default_factory=SilenceWatch)
    change_watch: ChangeWatch | None = None
    versions: FileVersions | None = None
    live_overlaps: LiveOverlaps | None = None
    teams: Teams = field(default_factory=Teams)
    output_checks: OutputChecks = field(default_factory=OutputChecks)
    context_policy: ContextPolicy = ContextPolicy()
    request_heads: RequestHeads = field(default_factory=RequestHeads)
    trace_ids: TraceIds | None = None
    board: Board | None = None
    in_thread: Callable[..., Awaitable[Any]] = asyncio.to_thread
    recorded_edits: FindRecordedEdits | None = None
    recorded_work: RecordedWork | None = None

    @property
    def find_unfinished_secret(self) -> Callable[[str], int]:
        """Takes a streaming text; returns where a secret may begin, or its length."""
        return getattr(self.redact, "find_unfinished", len)

    def check_price(self, model: str, meter: Meter) -> None:
        """Raise UsageError if there is a budget in dollars but no price for the model."""
        if meter.compute_amount_left(Limit.USD) is None:
            return
        if self.compute_price(model, Usage(1, 1)) is None:
            raise UsageError(
                f"the price of {model} is not known",
                remedy="Set a limit in tokens or turns instead of money.",
            )
