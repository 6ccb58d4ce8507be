"""Summary of one session for lists: the terminal and the viewer show the same."""

from __future__ import annotations

from collections.abc import Container, Iterable

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from .._core.events import AnyEvent, RunFinished, RunStarted, SessionOpened
from .._core.json_values import clean_text
from .._core.run_ids import list_above

SUMMARY_TYPES = (SessionOpened, RunStarted, RunFinished)
"""The event types that a summary needs; a reader may leave out all others."""


class SessionSummary(Struct, frozen=True, kw_only=True):
    """One session in a list.

    Arguments:
        when: time of the last write, seconds since 1970.
        size: bytes on disk.
        name: given by the user, "" for none.
        folder: working folder.
        model, prompt: model string and prompt of the first root run.
        reason: why the last root run ended; "" if it has not finished.
        prompts: number of root runs.
        children: number of child runs.
        tokens: input and output tokens of all finished runs.
        usd: their costs in US dollars; None if the price of one is not known.
        seconds: sum of the durations of finished root runs.
        state: "live" while a process writes it, "interrupted" if a run has no end, else "finished";
            "" if it cannot be read.
        error: why it cannot be read, "" if it can.
    """

    id: str
    when: float
    size: int = 0
    name: str = ""
    folder: str = ""
    model: str = ""
    prompt: str = ""
    reason: str = ""
    prompts: int = 0
    children: int = 0
    tokens: int = 0
    state: str = ""
    error: str = ""
    usd: float | None = None
    seconds: float = 0.0

    @property
    def topic(self) -> str:
        """The first paragraph of the prompt; instructions, data and attached files follow it."""
        return self.prompt.strip().partition("\n\n")[0]


class SummaryState(Struct):
    """Everything that a summary needs of the events up to a position.

    A store can save it, so that a list reads only the events after it.

    Attributes:
        position: position of the last event; set by its caller.
        reason: why the last root run ended; "" if it has not finished.
        unfinished: root runs without an end.
        tokens: tokens of finished runs; those of a run include the runs below it.
        usd: costs of finished root runs; states that earlier versions saved have none.
        seconds: sum of the durations of finished root runs.
    """

    position: int = 0
    folder: str = ""
    model: str = ""
    prompt: str = ""
    prompts: int = 0
    children: int = 0
    last_root: str = ""
    reason: str = ""
    unfinished: set[str] = field(default_factory=set[str])
    tokens: dict[str, int] = field(default_factory=dict[str, int])
    usd: dict[str, float | None] = field(default_factory=dict[str, float | None])
    seconds: float = 0.0

    def apply(self, event: AnyEvent) -> None:
        """Add an event."""
        if isinstance(event, SessionOpened):
            self.folder = clean_text(event.cwd)
        elif isinstance(event, RunStarted) and event.brief.parent:
            self.children += 1
        elif isinstance(event, RunStarted):
            self._start_root(event)
        elif isinstance(event, RunFinished):
            run = clean_text(event.run)
            self.tokens[run] = event.report.usage.total_tokens
            if run in self.unfinished:
                self.usd[run] = event.report.usd
                self.seconds += event.report.seconds
            self.unfinished.discard(run)
            if run == self.last_root:
                self.reason = event.report.reason.value

    def _start_root(self, event: RunStarted) -> None:
        if not self.prompts:
            self.model = clean_text(event.brief.model)
            self.prompt = clean_text(event.brief.prompt)
        self.prompts += 1
        self.last_root = clean_text(event.run)
        self.reason = ""
        self.unfinished.add(self.last_root)

    def _sum_costs(self) -> float | None:
        costs = [usd for usd in self.usd.values() if usd is not None]
        is_known = len(costs) == self.prompts - len(self.unfinished)
        return sum(costs) if costs and is_known else None

    def drop_counted_runs(self) -> None:
        """Forget the tokens of runs below a finished run: its own include them."""
        self.tokens = {
            run: tokens
            for run, tokens in self.tokens.items()
            if not _has_finished_ancestor(run, self.tokens)
        }

    def complete(self, summary: SessionSummary, *, is_live: bool) -> SessionSummary:
        """Complete a summary that has id, time, size and name."""
        self.drop_counted_runs()
        return replace(
            summary,
            folder=self.folder,
            model=self.model,
            prompt=self.prompt,
            reason=self.reason,
            prompts=self.prompts,
            children=self.children,
            tokens=sum(self.tokens.values()),
            usd=self._sum_costs(),
            seconds=round(self.seconds, 3),
            state="live" if is_live else "interrupted" if self.unfinished else "finished",
        )


def encode_state(state: SummaryState) -> str:
    """Encode a state as JSON."""
    state.drop_counted_runs()
    return msgspec.json.encode(state).decode()


def decode_state(text: str) -> SummaryState:
    """Decode a state. A text that is no state gives an empty one, for all events."""
    try:
        return msgspec.json.decode(text, type=SummaryState)
    except msgspec.DecodeError:
        return SummaryState()


def summarize_session(
    summary: SessionSummary,
    events: Iterable[AnyEvent],
    *,
    is_live: bool = False,
    state: SummaryState | None = None,
) -> SessionSummary:
    """Complete a summary from the events of the session.

    Arguments:
        summary: id, time, size and name, which events do not have.
        is_live: a process is writing the session.
        state: state after earlier events, which `events` leaves out.
    """
    state = state or SummaryState()
    for event in events:
        state.apply(event)
    return state.complete(summary, is_live=is_live)


def _has_finished_ancestor(run: str, finished: Container[str]) -> bool:
    return any(above in finished for above in list_above(run))
