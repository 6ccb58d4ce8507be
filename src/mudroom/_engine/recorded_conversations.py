"""Recorded conversations: messages, failed model calls and briefs of the runs of a session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from .._core.events import (
    NoteInjected,
    RunFinished,
    RunResumed,
    RunStarted,
    StoredEvent,
    TurnFailed,
    TurnStarted,
)
from .._core.messages import Message, RecordedConversation, RecordedFailure
from .._core.runs import Brief, Reason, Report
from ..projections.transcript import build_transcript
from .compaction import list_continued_runs
from .normalize import normalize_conversation


def rebuild_conversations(events: Sequence[StoredEvent]) -> list[RecordedConversation]:
    """Return the recorded conversations, one per run, in the order in which the runs began."""
    by_run = group_by_run(events)
    briefs: dict[str, Brief] = {}
    failures: dict[str, list[TurnFailed]] = {}
    summary_turns: dict[str, int] = {}
    latest: dict[str, StoredEvent] = {}
    reports: dict[str, Report] = {}
    for event in events:
        run = event.run
        if isinstance(event, RunStarted):
            briefs[run] = event.brief
            failures[run] = []
        elif isinstance(event, TurnStarted) and event.summary_reason:
            summary_turns[run] = event.turn
        elif isinstance(event, TurnFailed):
            failures[run].append(event)
        elif isinstance(event, RunResumed) and isinstance(latest.get(run), TurnFailed):
            failures[run].pop()  # the next process repeated the call
        elif isinstance(event, RunFinished):
            reports[run] = event.report
        if isinstance(event, TurnFailed | TurnStarted | NoteInjected):
            latest[run] = event
    return [
        RecordedConversation(
            run,
            _rebuild_messages(run, briefs, by_run),
            tuple(
                _make_failure(event, reports.get(run), summary_turns.get(run))
                for event in failures[run]
            ),
        )
        for run in briefs
    ]


def _make_failure(
    event: TurnFailed, report: Report | None, summary_turn: int | None
) -> RecordedFailure:
    failure = RecordedFailure(event.error, event.transient, event.text)
    if report is None or event.turn == summary_turn:
        return failure
    is_fault = report.reason is Reason.ERROR and report.error != event.error
    if is_fault or report.reason in (Reason.TIMEOUT, Reason.CANCELLED):
        return replace(failure, error=report.error, stop=str(report.reason))
    return failure


def _rebuild_messages(
    run: str, briefs: Mapping[str, Brief], by_run: Mapping[str, Sequence[StoredEvent]]
) -> tuple[Message, ...]:
    """Return the messages of a run as its model received them, with those that it continues."""
    history = briefs[run].history
    earlier = (*_join_transcripts(list_continued_runs(run, briefs)[:-1], by_run), *history)
    own = build_transcript(by_run[run], run)[len(history) :]
    return (*normalize_conversation(earlier), *own)


def rebuild_briefs(events: Sequence[StoredEvent]) -> list[Brief]:
    """Return the briefs of the root runs in order, each with the conversation that it continues."""
    by_run = group_by_run(events)
    all_briefs = {event.run: event.brief for event in events if isinstance(event, RunStarted)}
    briefs: list[Brief] = []
    for run, brief in all_briefs.items():
        if "." in run:
            continue
        if brief.continues:
            earlier_runs = list_continued_runs(run, all_briefs)[:-1]
            brief = replace(brief, history=_join_transcripts(earlier_runs, by_run))
        briefs.append(brief)
    return briefs


def group_by_run(events: Iterable[StoredEvent]) -> dict[str, list[StoredEvent]]:
    """Return the events of each run by run id, in order; events of the session are left out."""
    by_run: dict[str, list[StoredEvent]] = {}
    for event in events:
        if event.run:
            by_run.setdefault(event.run, []).append(event)
    return by_run


def _join_transcripts(
    runs: Sequence[str], by_run: Mapping[str, Sequence[StoredEvent]]
) -> tuple[Message, ...]:
    return tuple(message for run in runs for message in build_transcript(by_run[run], run))
