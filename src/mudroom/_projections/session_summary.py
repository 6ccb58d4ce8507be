"""The summary of one session for lists: the terminal and the viewer show the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import msgspec
from msgspec import Struct, field
from msgspec.structs import replace

from .._core.events import (
    AnyEvent,
    RunFinished,
    RunStarted,
    SessionClosed,
    SessionOpened,
    StoredEvent,
)
from .._core.json_values import clean_text, get_decoder
from .._core.runs import Report, find_root_id, list_above

# All a summary needs; readers may leave out other events.
SUMMARY_TYPES = (SessionOpened, RunStarted, RunFinished)


class SessionSummary(Struct, frozen=True, kw_only=True):
    """One session in a list.

    Arguments:
        when: time of the last write, seconds since 1970.
        size: bytes on disk.
        model, prompt: of the first root run.
        reason: why the last root run ended; "" if it has not finished.
        prompts: number of root runs.
        children: number of child runs.
        tokens: input and output tokens of all finished runs.
        usd: their costs in US dollars; None if any price is unknown.
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
    """Everything a summary needs from the events up to a position.

    A store can save it, so that a list reads only the events after it.

    Attributes:
        position: position of the last event; set by its caller.
        open_roots: root runs without an end, each with the tokens of its finished runs by run id;
            a run's tokens include those of the runs below it.
        tokens, seconds: sums of the finished root runs.
        usd: sum of the known costs of finished root runs. priced: how many costs are known.
        size: number of runs in `open_roots`.
    """

    position: int = 0
    folder: str = ""
    model: str = ""
    prompt: str = ""
    prompts: int = 0
    children: int = 0
    last_root: str = ""
    reason: str = ""
    open_roots: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])
    tokens: int = 0
    usd: float = 0.0
    priced: int = 0
    seconds: float = 0.0
    size: int = 0

    def apply(self, event: AnyEvent) -> None:
        if isinstance(event, SessionOpened):
            self.folder = clean_text(event.cwd)
        elif isinstance(event, RunStarted) and event.brief.parent:
            self.children += 1
        elif isinstance(event, RunStarted):
            self._start_root(event)
        elif isinstance(event, RunFinished):
            self._finish(clean_text(event.run), event.report)

    def _finish(self, run: str, report: Report) -> None:
        if run in self.open_roots:
            # This report includes the tokens of the runs below, so forget theirs.
            self.size -= 1 + len(self.open_roots.pop(run))
            self.tokens += report.usage.total_tokens
            self.seconds += report.seconds
            if report.usd is not None:
                self.usd += report.usd
                self.priced += 1
        elif (below := self.open_roots.get(find_root_id(run))) is not None:
            self.size += run not in below
            below[run] = report.usage.total_tokens
        if run == self.last_root:
            self.reason = report.reason.value

    def _start_root(self, event: RunStarted) -> None:
        if not self.prompts:
            self.model = clean_text(event.brief.model)
            self.prompt = clean_text(event.brief.prompt)
        self.prompts += 1
        self.last_root = clean_text(event.run)
        self.reason = ""
        self.open_roots[self.last_root] = {}
        self.size += 1

    @property
    def costs(self) -> float | None:
        """Costs of the finished root runs; None if any price is unknown."""
        finished = self.prompts - len(self.open_roots)
        return self.usd if self.priced and self.priced == finished else None

    def drop_counted_runs(self) -> None:
        """Forget the tokens of runs below a finished run, whose own include them."""
        for root, finished in self.open_roots.items():
            self.open_roots[root] = {
                run: tokens
                for run, tokens in finished.items()
                if not any(above in finished for above in list_above(run))
            }
        self.size = sum(1 + len(below) for below in self.open_roots.values())

    def complete(self, summary: SessionSummary, *, is_live: bool) -> SessionSummary:
        self.drop_counted_runs()
        return replace(
            summary,
            folder=self.folder,
            model=self.model,
            prompt=self.prompt,
            reason=self.reason,
            prompts=self.prompts,
            children=self.children,
            tokens=self.tokens + sum(sum(below.values()) for below in self.open_roots.values()),
            usd=self.costs,
            seconds=round(self.seconds, 3),
            state="live" if is_live else "interrupted" if self.open_roots else "finished",
        )


class _SavedState(Struct):
    """A state as saved in a store. Earlier versions saved states without `sums`."""

    sums: SummaryState


def encode_state(state: SummaryState) -> str:
    state.drop_counted_runs()
    return msgspec.json.encode(_SavedState(state)).decode()


def decode_state(text: str) -> SummaryState:
    """Decode a state. Any other text gives an empty state, which needs all events."""
    try:
        return get_decoder(_SavedState).decode(text).sums
    except msgspec.DecodeError:
        return SummaryState()


def find_folder(first: StoredEvent | None, summary: str) -> str:
    """Find the folder that a session last worked in, "" if no event is recorded.

    Arguments:
        first: its first event. summary: the saved state of its summary, which names the folder at
            the last opening: a project can move. "" for none.
    """
    folder = decode_state(summary).folder if summary else ""
    return folder or (first.cwd if isinstance(first, SessionOpened) else "")


def summarize_session(
    summary: SessionSummary,
    events: Iterable[AnyEvent],
    *,
    is_live: bool = False,
    state: SummaryState | None = None,
) -> SessionSummary:
    """Complete a summary, which has id, time, size and name, from the session's events.

    `events` leaves out those already in `state`.
    """
    state = state or SummaryState()
    for event in events:
        state.apply(event)
    return state.complete(summary, is_live=is_live)


# Minimum events between two saved states. A list of sessions reads about as many per session.
SAVE_INTERVAL = 256


class SummarySaver:
    """One session's summary, for the store that keeps it next to the events.

    A list of sessions needs their summaries, not their events. So a session's store saves a text
    from time to time, and a list reads only the events after it. Each open journal has a saver.

    Arguments:
        saved: the text in the store, "" for a new session.

    Example:
        from mudroom.events import SessionClosed

        saver = SummarySaver(saved="")
        recorded = []  # the events after `saver.position`, of the types in `SummarySaver.TYPES`
        for event in recorded:
            saver.catch_up(event)
        if text := saver.apply([SessionClosed(run="", at=0.0)], position=1):
            print(f"save {len(text)} characters beside the session")
    """

    TYPES: ClassVar[tuple[type[StoredEvent], ...]] = SUMMARY_TYPES

    def __init__(self, saved: str = "") -> None:
        self._state = decode_state(saved)
        self._saved_position = self._state.position

    @property
    def position(self) -> int:
        """Position of the last event that the summary includes; 0 for none."""
        return self._state.position

    def catch_up(self, event: StoredEvent) -> None:
        """Add an event recorded after the saved text."""
        self._state.apply(event)

    def apply(self, events: Iterable[StoredEvent], position: int) -> str:
        """Add new events, the last of them at `position`; return the text to save, "" for none.

        A session's last event is a reason to save, because a list then reads no events of it. So is
        an opening in another folder, because the session belongs to that folder at once.
        """
        state = self._state
        former = state.folder
        event: StoredEvent | None = None
        for event in events:
            if type(event) in SUMMARY_TYPES:
                state.apply(event)
        state.position = position
        # The interval grows with the size of the state, so that saving costs no more per event.
        is_due = position - self._saved_position >= max(SAVE_INTERVAL, state.size)
        has_moved = former not in ("", state.folder)
        if not is_due and not has_moved and type(event) is not SessionClosed:
            return ""
        self._saved_position = position
        return encode_state(state)

    def encode_unsaved(self) -> str:
        """Encode what to save when the journal closes; "" if the store already has it."""
        if self._state.position == self._saved_position:
            return ""
        self._saved_position = self._state.position
        return encode_state(self._state)
