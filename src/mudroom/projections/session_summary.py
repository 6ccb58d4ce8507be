"""Summary of one session for lists: the terminal and the viewer show the same."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from .._core.events import AnyEvent, RunFinished, RunStarted, SessionOpened

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


def summarize_session(
    summary: SessionSummary, events: Iterable[AnyEvent], *, is_live: bool = False
) -> SessionSummary:
    """Complete a summary from the events of the session.

    Arguments:
        summary: id, time, size and name, which events do not have.
        is_live: a process is writing the session.
    """
    folder = ""
    roots: list[RunStarted] = []
    children = 0
    finished: dict[str, RunFinished] = {}
    for event in events:
        if isinstance(event, SessionOpened):
            folder = event.cwd
        elif isinstance(event, RunStarted) and event.brief.parent:
            children += 1
        elif isinstance(event, RunStarted):
            roots.append(event)
        elif isinstance(event, RunFinished):
            finished[event.run] = event
    is_finished = all(root.run in finished for root in roots)
    state = "live" if is_live else "finished" if is_finished else "interrupted"
    return replace(
        summary,
        folder=folder,
        model=roots[0].brief.model if roots else "",
        prompt=roots[0].brief.prompt if roots else "",
        reason=_find_last_reason(roots, finished),
        prompts=len(roots),
        children=children,
        tokens=_count_tokens(finished),
        state=state,
    )


def _find_last_reason(roots: list[RunStarted], finished: dict[str, RunFinished]) -> str:
    if not roots or roots[-1].run not in finished:
        return ""
    return finished[roots[-1].run].report.reason.value


def _count_tokens(finished: dict[str, RunFinished]) -> int:
    """Add up the reports; the usage of a run includes that of the runs below it."""
    total = 0
    for run, event in finished.items():
        if not _has_finished_ancestor(run, finished):
            total += event.report.usage.total_tokens
    return total


def _has_finished_ancestor(run: str, finished: dict[str, RunFinished]) -> bool:
    # "1.3.2" is a child that the third turn of run "1" started.
    while "." in run:
        run = run.rsplit(".", 2)[0]
        if run in finished:
            return True
    return False
