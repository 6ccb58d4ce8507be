"""Conformance suite for workers. An adapter's tests run each of `CHECKS` against it:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    async def test_worker(check, tmp_path):
        await check(open_my_worker, tmp_path)

`open_my_worker` takes SessionServices and returns an async context manager with the worker. A
worker in another process cannot use these objects there. It imports `conformance_model` and
`conformance_tools` from `worker_stage`, and asks the session's process for journal, approvals,
charges, hooks and live events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from msgspec.structs import replace

from .._adapters.journals.memory import MemoryJournal
from .._core.budgets import Budget, Grant
from .._core.events import (
    Delta,
    MessageDelivered,
    MessageSent,
    RunFinished,
    RunResumed,
    RunStarted,
    StoredEvent,
    TeamMessageSent,
    ToolCallFinished,
    TurnFinished,
)
from .._core.ports import Worker
from .._core.runs import InboxMessage, Reason
from .._engine.session_context import SessionServices
from ..errors import JournalError
from ._checks import collect_checks
from .worker_stage import WorkerStage

OpenWorker = Callable[[SessionServices], AbstractAsyncContextManager[Worker]]
Check = Callable[[OpenWorker, Path], Awaitable[None]]

_DEADLINE = 20.0  # seconds per check


class _FailingJournal(MemoryJournal):
    async def append(self, *events: StoredEvent) -> int:
        if any(isinstance(event, TurnFinished) for event in events):
            raise JournalError("the disk is full")
        return await super().append(*events)


async def check_reports_are_stored_and_returned(open_worker: OpenWorker, folder: Path) -> None:
    """Check that the handle and the journal have the same report."""
    stage = WorkerStage(folder)
    async with asyncio.timeout(_DEADLINE), open_worker(stage.services) as worker:
        handle = stage.start(worker, "ANSWER")
        assert handle.run_id == "1" and worker.find("1") is not None
        report = await handle.report()
        assert await handle.report() == report, "a report can be read again"
    assert (report.text, report.reason, report.run_id) == ("answer", Reason.GOAL, "1")
    assert report.turns == 1 and report.usage.total_tokens > 0
    assert stage.reports() == {"1": report}


async def check_an_interrupt_leaves_the_children_at_work(
    open_worker: OpenWorker, folder: Path
) -> None:
    """Check that an interrupted prompt reports so, and continues with the next message."""
    stage = WorkerStage(folder)
    async with asyncio.timeout(_DEADLINE), open_worker(stage.services) as worker:
        handle = stage.start(worker, "PARENT_BACKGROUND")
        assert not handle.interrupt(), "it has no background work yet"
        await stage.wait_for_runs("1", "1.1.1")
        child = worker.find("1.1.1")
        assert child is not None and not child.interrupt(), "a child is no prompt"
        assert handle.interrupt() and not handle.interrupt()
        report = await handle.report()
        assert report.is_interrupted and handle.is_interrupted
        assert not stage.reports(), "the child continues"
        assert handle.send(InboxMessage("m1", "go on"))
        assert not handle.is_interrupted
        stage.release()
        assert (await handle.report()).reason is Reason.GOAL
    assert stage.reports()["1.1.1"].reason is Reason.GOAL
    read = [
        event.message_id for event in stage.journal.events if isinstance(event, MessageDelivered)
    ]
    assert "m1" in read


async def check_watchers_see_events_and_deltas(open_worker: OpenWorker, folder: Path) -> None:
    """Check that watchers receive every stored event once, in order, and streamed text."""
    stage = WorkerStage(folder)
    async with asyncio.timeout(_DEADLINE), open_worker(stage.services) as worker:
        await stage.start(worker, "PARENT").report()
    stored = [event for event in stage.events if not isinstance(event, Delta)]
    for run in ("1", "1.1.1", "1.1.2"):
        expected = [event for event in stage.journal.events if event.run == run]
        assert [event for event in stored if event.run == run] == expected
    assert any(isinstance(event, Delta) for event in stage.events)


async def check_children_run_and_are_charged(open_worker: OpenWorker, folder: Path) -> None:
    """Check that children report to their parent, and its account is charged for them."""
    stage = WorkerStage(folder)
    async with asyncio.timeout(_DEADLINE), open_worker(stage.services) as worker:
        report = await stage.start(worker, "PARENT").report()
    reports = stage.reports()
    assert set(reports) == {"1", "1.1.1", "1.1.2"} and report.calls == {"task": 2}
    children = sum(reports[run].usage.total_tokens for run in ("1.1.1", "1.1.2"))
    assert children > 0
    meter = stage.services.meters.get(Grant("1", Budget()))
    assert meter.children == 2 and meter.descendant_usage.total_tokens == children
    assert report.usage == meter.usage + meter.descendant_usage


async def check_children_keep_their_parents_budget(open_worker: OpenWorker, folder: Path) -> None:
    """Check that a child ends with BUDGET when its parent's tokens run out.

    One answer of 100 tokens may exceed the limit; the parent's last turn is held.
    """
    stage = WorkerStage(folder)
    budget = Budget(depth=1, output_tokens=500)
    async with asyncio.timeout(_DEADLINE), open_worker(stage.services) as worker:
        report = await stage.start(worker, "PARENT_SPEND", budget).report()
    child = stage.reports()["1.1.1"]
    assert (child.reason, bool(report.text)) == (Reason.BUDGET, True)
    assert 200 <= report.usage.output_tokens <= 600


async def check_find_returns_running_runs(open_worker: OpenWorker, folder: Path) -> None:
    """Check that `find` returns running runs at every depth, and None before and after."""
    stage = WorkerStage(folder)
    async with asyncio.timeout(_DEADLINE), open_worker(stage.services) as worker:
        assert worker.find("1") is None
        handle = stage.start(worker, "PARENT_WAIT")
        await stage.wait_for_runs("1.1.1", "1.1.2")
        child = worker.find("1.1.2")
        assert child is not None and child.run_id == "1.1.2" and worker.find("1.1.3") is None
        stage.release()
        await handle.report()
        await asyncio.sleep(0)
        assert worker.find("1") is None and worker.find("1.1.2") is None


async def check_cancel_ends_all_runs_below(open_worker: OpenWorker, folder: Path) -> None:
    """Check that cancelled runs end with CANCELLED and that a second cancel changes nothing."""
    stage = WorkerStage(folder)
    async with asyncio.timeout(_DEADLINE), open_worker(stage.services) as worker:
        handle = stage.start(worker, "PARENT_WAIT")
        await stage.wait_for_runs("1.1.1", "1.1.2")
        assert handle.cancel() and not handle.cancel()
        report = await handle.report()
        assert not handle.cancel() and not handle.wrap_up()
    assert report.reason is Reason.CANCELLED and not report.recovered
    reasons = {run: report.reason for run, report in stage.reports().items()}
    assert reasons == dict.fromkeys(("1", "1.1.1", "1.1.2"), Reason.CANCELLED)


async def check_a_stop_has_one_reason(open_worker: OpenWorker, folder: Path) -> None:
    """Check that all runs stopped by a time limit have the reason TIMEOUT."""
    stage = WorkerStage(folder)
    async with asyncio.timeout(_DEADLINE), open_worker(stage.services) as worker:
        handle = stage.start(worker, "PARENT_WAIT")
        await stage.wait_for_runs("1.1.1", "1.1.2")
        assert handle.cancel(Reason.TIMEOUT)
        report = await handle.report()
    assert report.reason is Reason.TIMEOUT and not report.recovered
    reasons = {run: report.reason for run, report in stage.reports().items()}
    assert reasons == dict.fromkeys(("1", "1.1.1", "1.1.2"), Reason.TIMEOUT)


async def check_one_child_is_cancelled(open_worker: OpenWorker, folder: Path) -> None:
    """Check that a cancelled child gives its parent a report and that the others continue."""
    stage = WorkerStage(folder)
    async with asyncio.timeout(_DEADLINE), open_worker(stage.services) as worker:
        handle = stage.start(worker, "PARENT_WAIT")
        await stage.wait_for_runs("1.1.1", "1.1.2")
        child = worker.find("1.1.1")
        assert child is not None and child.cancel()
        await stage.wait_until(lambda: "1.1.1" in stage.reports())
        stage.release()
        report = await handle.report()
    reports = stage.reports()
    assert reports["1.1.1"].reason is Reason.CANCELLED and reports["1.1.2"].ok and report.ok


async def check_wrap_up_gives_a_summary(open_worker: OpenWorker, folder: Path) -> None:
    """Check that a run asked to wrap up stops its calls and gives a summary."""
    stage = WorkerStage(folder)
    async with asyncio.timeout(_DEADLINE), open_worker(stage.services) as worker:
        handle = stage.start(worker, "WAIT")
        await stage.wait_for_runs("1")
        assert handle.wrap_up() and not handle.wrap_up()
        report = await handle.report()
    assert (report.reason, report.recovered, report.text) == (Reason.CANCELLED, True, "summary")


async def check_a_cancelled_waiter_ends_its_run(open_worker: OpenWorker, folder: Path) -> None:
    """Check that cancelling the task awaiting a report ends the run before it returns."""
    stage = WorkerStage(folder)
    async with asyncio.timeout(_DEADLINE), open_worker(stage.services) as worker:
        waiter = asyncio.create_task(stage.start(worker, "PARENT_WAIT").report())
        await stage.wait_for_runs("1.1.1", "1.1.2")
        waiter.cancel()
        await asyncio.wait((waiter,))
        assert waiter.cancelled()
    reasons = {run: report.reason for run, report in stage.reports().items()}
    assert reasons == dict.fromkeys(("1", "1.1.1", "1.1.2"), Reason.CANCELLED)


async def check_a_wait_can_be_released(open_worker: OpenWorker, folder: Path) -> None:
    """Check that `release` ends a wait, `detach` does so for a child, and the runs continue."""
    stage = WorkerStage(folder)
    async with asyncio.timeout(_DEADLINE), open_worker(stage.services) as worker:
        handle = stage.start(worker, "PARENT_WAIT")
        waiter = asyncio.create_task(handle.wait())
        await stage.wait_for_runs("1.1.1", "1.1.2")
        handle.release()
        assert not await waiter
        assert handle.detach("1.1.1")
        await stage.wait_until(lambda: "1.1.1" in _list_background_children(stage))
        assert worker.find("1.1.1") is not None
        stage.release()
        assert await handle.wait() and (await handle.report()).ok
    assert _list_background_children(stage) == ["1.1.1"]


def _list_background_children(stage: WorkerStage) -> list[str]:
    """List the children whose calls returned before their end."""
    results = [e.result.detail for e in stage.journal.events if isinstance(e, ToolCallFinished)]
    return [detail["run"] for detail in results if detail.get("background")]


async def check_each_message_is_delivered_once(open_worker: OpenWorker, folder: Path) -> None:
    """Check that a message is stored, delivered once, and refused after the run's end."""
    stage = WorkerStage(folder)
    async with asyncio.timeout(_DEADLINE), open_worker(stage.services) as worker:
        handle = stage.start(worker, "WAIT")
        await stage.wait_for_runs("1")
        assert handle.send(InboxMessage("m1", "first")) and handle.send(
            InboxMessage("m2", "second")
        )
        assert handle.send(InboxMessage("m1", "first"))
        assert await handle.wait_until_stored("m2")
        stored = [e.message.id for e in stage.journal.events if isinstance(e, MessageSent)]
        assert stored == ["m1", "m2"]
        assert await handle.wait_until_stored("m1")
        stage.release()
        await handle.report()
        assert not await handle.wait_until_stored("m3")
        assert not handle.send(InboxMessage("m3", "too late"))
    events = stage.journal.events
    sent = [event.message.id for event in events if isinstance(event, MessageSent)]
    delivered = [event.text for event in events if isinstance(event, MessageDelivered)]
    assert sent == ["m1", "m2"] and delivered == ["first", "second"]


async def check_a_named_child_starts_another_one(open_worker: OpenWorker, folder: Path) -> None:
    """Check that a child's message to an idle one starts that one's next run."""
    stage = WorkerStage(folder)
    async with asyncio.timeout(_DEADLINE), open_worker(stage.services) as worker:
        handle = stage.start(worker, "TEAM")
        await stage.wait_for_runs("1.1.2")
        await stage.wait_until(lambda: "1.1.1" in stage.reports())
        stage.release()
        assert (await handle.report()).ok
    reports = stage.reports()
    assert reports["1.1.2"].failed == 0 and reports["1.1.1~2"].text == "ANN has read it"
    briefs = {e.run: e.brief for e in stage.journal.events if isinstance(e, RunStarted)}
    assert (briefs["1.1.1~2"].parent, briefs["1.1.1~2"].continues) == ("1", "1.1.1")
    sent = [event for event in stage.journal.events if isinstance(event, TeamMessageSent)]
    assert [event.message.id for event in sent] == list(briefs["1.1.1~2"].message_ids)


async def check_the_approver_is_asked(open_worker: OpenWorker, folder: Path) -> None:
    """Check that a call that needs confirmation reaches the session's approver."""
    stage = WorkerStage(folder)
    async with asyncio.timeout(_DEADLINE), open_worker(stage.services) as worker:
        report = await stage.start(worker, "CONFIRM").report()
    assert report.calls == {"confirm": 1} and report.failed == 0
    assert [(request.run_id, request.tool) for request in stage.requests] == [("1", "confirm")]


async def check_an_unfinished_run_is_resumed(open_worker: OpenWorker, folder: Path) -> None:
    """Check that a run continues from its last event; finished children do not run again."""
    first = WorkerStage(folder)
    async with asyncio.timeout(_DEADLINE), open_worker(first.services) as worker:
        report = await first.start(worker, "PARENT").report()
    events = first.journal.events
    cut = next(n for n, event in enumerate(events) if isinstance(event, ToolCallFinished))
    past: dict[str, list[StoredEvent]] = {}
    for event in events[:cut]:
        past.setdefault(event.run, []).append(event)
    second = WorkerStage(folder, past_events=past)
    async with asyncio.timeout(_DEADLINE), open_worker(second.services) as worker:
        again = await second.start(worker, "PARENT").report()
    changed = {"seconds": 0.0}
    assert replace(again, **changed) == replace(report, **changed)
    new_events = second.journal.events
    assert isinstance(new_events[0], RunResumed)
    finished = {event.run for event in events[:cut] if isinstance(event, RunFinished)}
    assert finished and finished.isdisjoint(event.run for event in new_events)
    started = [event.run for event in new_events if isinstance(event, RunStarted)]
    assert set(started).isdisjoint(past)


async def check_a_run_cancelled_before_it_continues_reports_its_past(
    open_worker: OpenWorker, folder: Path
) -> None:
    """Check that the report counts what the run did before an interruption."""
    first = WorkerStage(folder)
    async with asyncio.timeout(_DEADLINE), open_worker(first.services) as worker:
        whole = await first.start(worker, "PARENT").report()
    past: dict[str, list[StoredEvent]] = {}
    for event in first.journal.events:
        if event.run != "1" or not isinstance(event, RunFinished):
            past.setdefault(event.run, []).append(event)
    second = WorkerStage(folder, past_events=past)
    async with asyncio.timeout(_DEADLINE), open_worker(second.services) as worker:
        handle = second.start(worker, "PARENT")
        assert handle.cancel()
        report = await handle.report()
    assert not second.journal.events, "the run can still be resumed"
    assert report.reason is Reason.CANCELLED and report.turns == whole.turns > 1
    assert (report.usage, report.calls) == (whole.usage, whole.calls)
    assert (report.text, report.agent, report.model) == (whole.text, whole.agent, whole.model)


async def check_a_failed_journal_is_raised(open_worker: OpenWorker, folder: Path) -> None:
    """Check that waiting for the report raises JournalError if the journal fails."""
    stage = WorkerStage(folder, journal=_FailingJournal())
    async with asyncio.timeout(_DEADLINE), open_worker(stage.services) as worker:
        try:
            await stage.start(worker, "CONFIRM").report()
        except JournalError:
            return
    raise AssertionError("no JournalError was raised")


CHECKS: tuple[Check, ...] = collect_checks(globals())
