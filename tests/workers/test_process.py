"""RemoteWorker: children in other processes on this machine, under the same promises."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mudroom import (
    AnyEvent,
    Budget,
    Integrations,
    Reason,
    Report,
    Session,
    TextBlock,
    ToolCallBlock,
    UsageError,
)
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._adapters.workers.remote.worker import RemoteWorker
from mudroom._adapters.workspaces.shared import SharedWorkspace
from mudroom._core.events import (
    Delta,
    MessageSent,
    RunFinished,
    RunStarted,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
)
from mudroom._core.ports import ApprovalDecision, ApprovalRequest, Hooks, ToolHookDecision
from mudroom._core.runs import Brief
from mudroom._replay import replay
from mudroom.permissions.rules import Permissions
from mudroom.testing.invariants import find_violations

from ..worker_kinds import open_session


def list_worker_pids(session: Session) -> tuple[int, ...]:
    """Return the ids of the worker processes that have started."""
    worker = session._require_open().resources.worker
    assert isinstance(worker, RemoteWorker)
    return worker.pids


def make_family(child: Callable[[Request], Answer], tasks: int = 1) -> ScriptedModel:
    """Return a model whose parent starts children and then reports their results."""

    def answer(request: Request) -> Answer:
        if request.prompt != "PARENT":
            return child(request)
        if not request.turn:
            return [call("task", prompt=f"CHILD {number}") for number in range(tasks)]
        return " | ".join(result.text.splitlines()[0] for result in request.results)

    return ScriptedModel(answer)


async def test_a_child_runs_in_another_process_and_its_report_comes_back(tmp_path: Path) -> None:
    model = make_family(
        lambda request: (
            request.results[0].text if request.turn else call("bash", command="echo $PPID")
        )
    )
    async with open_session(tmp_path, model) as session:
        report = await session.run("PARENT")
        (pid,) = list_worker_pids(session)
        assert pid != os.getpid()
    assert report.reason is Reason.GOAL
    assert str(pid) in report.text
    assert report.usage.total_tokens > 0


async def test_changes_by_commands_in_another_process_are_in_the_report(tmp_path: Path) -> None:
    model = make_family(
        lambda request: "done" if request.turn else call("bash", command="echo > made.txt")
    )
    async with open_session(tmp_path, model) as session:
        report = await session.run("PARENT")
    assert report.observed_changes == report.files_changed == ("made.txt",)


async def test_children_of_one_answer_run_side_by_side(tmp_path: Path) -> None:
    model = make_family(lambda request: request.prompt, tasks=5)
    async with open_session(tmp_path, model, worker="process:2") as session:
        report = await session.run("PARENT")
        assert len(list_worker_pids(session)) == 2
    assert report.text == " | ".join(f"CHILD {number}" for number in range(5))


async def test_events_of_children_reach_the_watchers_and_the_journal(tmp_path: Path) -> None:
    model = make_family(
        lambda request: "done" if request.turn else call("write", file_path="a.txt", content="x")
    )
    seen: list[AnyEvent] = []
    async with open_session(tmp_path, model) as session:
        session.watch(seen.append)
        await session.run("PARENT")
    kinds = [type(event) for event in seen if event.run == "1.1.1"]
    assert kinds[0] is RunStarted and kinds[-1] is RunFinished
    assert kinds.index(ToolCallStarted) < kinds.index(ToolCallFinished)
    assert (tmp_path / "a.txt").read_text() == "x"


async def test_a_watcher_that_comes_later_gets_the_streamed_text_of_children(
    tmp_path: Path,
) -> None:
    seen: list[AnyEvent] = []
    async with open_session(tmp_path, make_family(lambda _: "done")) as session:
        await session.task("CHILD 0")
        stop_watching = session.watch(seen.append)
        watched = await session.task("CHILD 1")
        stop_watching()
        await session.task("CHILD 2")
    assert {event.run for event in seen} == {watched.run_id}
    assert any(isinstance(event, Delta) for event in seen)


async def test_what_a_child_spends_is_charged_to_the_parent(tmp_path: Path) -> None:
    model = make_family(lambda request: "x" * 400)
    async with open_session(tmp_path, model) as session:
        report = await session.run("PARENT")
    assert report.usage.output_tokens >= 100


async def test_a_limit_of_the_parent_stops_a_child(tmp_path: Path) -> None:
    def child(request: Request) -> Answer:
        return call("bash", command=f"echo {request.turn} {'x' * 400}")

    model = make_family(child)
    budget = Budget(output_tokens=1_500)
    async with open_session(tmp_path, model, budget=budget) as session:
        report = await session.run("PARENT")
    assert report.reason is Reason.GOAL and "[BUDGET: the limit of 1,500 output" in report.text
    assert report.usage.output_tokens < 1_500


async def test_a_killed_worker_process_costs_no_step_and_repeats_no_effect(tmp_path: Path) -> None:
    log = tmp_path / "log"

    def child(request: Request) -> Answer:
        if request.turn < 3:
            return call("bash", command=f"echo {request.turn} >> {log}")
        return log.read_text().replace("\n", " ")

    model = make_family(child)
    async with open_session(tmp_path, model) as session:
        has_killed = False

        def kill_once(event: AnyEvent) -> None:
            nonlocal has_killed
            is_second = isinstance(event, ToolCallFinished) and event.run == "1.1.1"
            if is_second and event.turn == 2 and not has_killed:
                has_killed = True
                os.kill(list_worker_pids(session)[0], signal.SIGKILL)

        session.watch(kill_once)
        report = await session.run("PARENT")
    assert has_killed and report.reason is Reason.GOAL
    assert report.text.split() == ["0", "1", "2"]
    turns = [request.turn for request in model.requests if request.prompt != "PARENT"]
    assert turns in ([0, 1, 2, 3], [0, 1, 2, 2, 3])


def count_messages(request: Request) -> Answer:
    """Run three commands, then say how often the message was read."""
    if request.turn < 3:
        return call("bash", command=f"echo {request.turn}")
    texts = [
        block.text
        for message in request.messages
        for block in message.content
        if isinstance(block, TextBlock)
    ]
    return f"read {sum('look at b.txt' in text for text in texts)} time"


async def test_what_a_lost_process_has_sent_is_stored_before_its_run_starts_again(
    tmp_path: Path,
) -> None:
    class SlowJournal(MemoryJournal):
        async def append(self, *events: StoredEvent) -> int:
            if any(isinstance(event, RunFinished) and event.run == "1.1.1" for event in events):
                os.kill(list_worker_pids(session)[0], signal.SIGKILL)
                await asyncio.sleep(0.5)
            return await super().append(*events)

    journal = SlowJournal()
    model = make_family(lambda _: "done")
    async with open_session(tmp_path, model, journal=journal) as session:
        report = await session.run("PARENT")
        events = [event async for event in journal.read()]
    assert report.text == "done"
    ends = [event for event in events if isinstance(event, RunFinished) and event.run == "1.1.1"]
    assert len(ends) == 1


async def test_a_message_reaches_a_run_in_a_worker_process_once(tmp_path: Path) -> None:
    model = make_family(count_messages)
    async with open_session(tmp_path, model) as session:
        has_sent = False

        def send(event: AnyEvent) -> None:
            nonlocal has_sent
            if isinstance(event, ToolCallFinished) and event.run == "1.1.1" and not has_sent:
                has_sent = session.runs.send("1.1.1", "look at b.txt")

        session.watch(send)
        report = await session.run("PARENT")
    assert has_sent and report.text == "read 1 time"


async def test_a_durable_message_to_a_worker_process_is_in_the_journal(tmp_path: Path) -> None:
    model = make_family(count_messages)
    stored: list[bool] = []
    tasks: list[asyncio.Task[None]] = []
    journal = MemoryJournal()
    async with open_session(tmp_path, model, journal=journal) as session:

        async def send() -> None:
            assert await session.runs.send_durably("1.1.1", "look at b.txt")
            events = [event async for event in journal.read()]
            stored.append(any(isinstance(event, MessageSent) for event in events))

        def start(event: AnyEvent) -> None:
            if isinstance(event, ToolCallFinished) and event.run == "1.1.1" and not tasks:
                tasks.append(asyncio.create_task(send()))

        session.watch(start)
        await session.run("PARENT")
        await asyncio.gather(*tasks)
        assert await session.runs.send_durably("1.1.1", "too late") is False
    assert stored == [True]


async def test_a_message_survives_the_death_of_its_worker_process(tmp_path: Path) -> None:
    model = make_family(count_messages)
    async with open_session(tmp_path, model) as session:
        has_sent = False

        def send_and_kill(event: AnyEvent) -> None:
            nonlocal has_sent
            if isinstance(event, ToolCallFinished) and event.run == "1.1.1" and not has_sent:
                has_sent = session.runs.send("1.1.1", "look at b.txt")
                os.kill(list_worker_pids(session)[0], signal.SIGKILL)

        session.watch(send_and_kill)
        report = await session.run("PARENT")
    assert has_sent and report.text == "read 1 time"


async def test_a_run_whose_processes_keep_dying_is_lost(tmp_path: Path) -> None:
    async def child(request: Request) -> str:
        os.kill(pids()[-1], signal.SIGKILL)
        await asyncio.sleep(60)
        return "never"

    async def answer(request: Request) -> Answer:
        if request.prompt == "PARENT":
            return request.results[0].text if request.turn else call("task", prompt="CHILD")
        return await child(request)

    model = ScriptedModel(answer)
    async with open_session(tmp_path, model) as session:

        def pids() -> tuple[int, ...]:
            return list_worker_pids(session)

        report = await session.run("PARENT")
    assert "LOST" in report.text and report.reason is Reason.GOAL
    assert report.unknown_changes == "the worker processes of a child ended"


async def test_cancel_stops_a_child_and_its_command(tmp_path: Path) -> None:
    model = make_family(lambda _: call("bash", command="sleep 600; touch late"))
    async with open_session(tmp_path, model) as session:

        def cancel(event: AnyEvent) -> None:
            if isinstance(event, ToolCallStarted) and event.run == "1.1.1":
                session.runs.cancel("1.1.1")

        session.watch(cancel)
        async with asyncio.timeout(60):
            report = await session.run("PARENT")
    assert "CANCELLED" in report.text
    assert not (tmp_path / "late").exists()


async def test_cancelling_the_caller_ends_the_child(tmp_path: Path) -> None:
    started = asyncio.Event()
    model = make_family(lambda _: call("bash", command="sleep 60"))
    ends: list[Report[Any]] = []
    async with open_session(tmp_path, model) as session:

        def watch(event: AnyEvent) -> None:
            if isinstance(event, ToolCallStarted) and event.run == "1.1.1":
                started.set()
            if isinstance(event, RunFinished):
                ends.append(event.report)

        session.watch(watch)
        task = asyncio.create_task(session.run("PARENT"))
        await asyncio.wait_for(started.wait(), 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert {end.run_id: end.reason for end in ends} == {
        "1.1.1": Reason.CANCELLED,
        "1": Reason.CANCELLED,
    }


async def test_hooks_of_the_session_decide_in_worker_processes(tmp_path: Path) -> None:
    class NoWrites(Hooks):
        async def before_tool(self, brief: Brief, call: ToolCallBlock) -> ToolHookDecision | None:
            if brief.parent and call.name == "write":
                return ToolHookDecision(denial="Do not write.")
            return None

    model = make_family(
        lambda request: (
            request.results[0].text
            if request.turn
            else call("write", file_path="a.txt", content="x")
        )
    )
    async with open_session(
        tmp_path, model, integrations=Integrations(hooks=NoWrites())
    ) as session:
        report = await session.run("PARENT")
    assert "Do not write." in report.text and not (tmp_path / "a.txt").exists()


async def test_approval_requests_reach_the_approver_of_the_session(tmp_path: Path) -> None:
    class Refuse:
        async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
            return ApprovalDecision(False, f"No {request.tool} here.")

    model = make_family(
        lambda request: request.results[0].text if request.turn else call("bash", command="ls")
    )
    permissions = Permissions.of(ask=["Bash"])
    async with open_session(tmp_path, model, approver=Refuse(), permissions=permissions) as session:
        report = await session.run("PARENT")
    assert "No bash here." in report.text


async def test_session_tasks_run_in_worker_processes(tmp_path: Path) -> None:
    model = ScriptedModel(lambda request: f"about {request.prompt}")
    async with open_session(tmp_path, model) as session:
        reports = await session.map(["a", "b", "c"])
        assert len(list_worker_pids(session)) == 1
    assert [report.text for report in reports] == ["about a", "about b", "about c"]


async def test_no_worker_process_is_left_when_the_session_closes(tmp_path: Path) -> None:
    model = ScriptedModel(lambda _: "done")
    async with open_session(tmp_path, model) as session:
        await session.task("a")
        (pid,) = list_worker_pids(session)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_worker_process_collects_garbage_less_often_than_python() -> None:
    program = (
        "import asyncio, gc\n"
        "from mudroom._session.worker_setup.process_services import serve\n"
        "from mudroom.ports import Arrivals\n"
        "before, link = gc.get_threshold(), Arrivals()\n"
        "link.send = print\n"
        "link.end()\n"
        "asyncio.run(serve(link))\n"
        "print(*before, *gc.get_threshold())"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    before, _, _, young, _, _ = map(int, ended.stdout.split())
    assert young > 10 * before


async def test_objects_of_the_caller_that_cannot_cross_are_refused(tmp_path: Path) -> None:
    workspace = SharedWorkspace(str(tmp_path))
    with pytest.raises(UsageError, match="worker processes cannot use"):
        async with open_session(tmp_path, ScriptedModel([]), cwd=workspace):
            pass


@pytest.mark.parametrize(
    "worker",
    ["cluster", "process:x", "local:2", "process:0", "process:65", "process:100000"],
)
async def test_an_unknown_worker_is_refused(tmp_path: Path, worker: str) -> None:
    with pytest.raises(UsageError, match=r"unknown worker.*N from 1 to 64"):
        async with open_session(tmp_path, ScriptedModel([]), worker=worker):
            pass


async def test_named_children_in_other_processes_write_to_each_other(tmp_path: Path) -> None:
    def answer(request: Request) -> Answer:
        if request.prompt == "PARENT":
            if request.turn == 0:
                return [
                    call("task", prompt="ANN", name="ann"),
                    call("task", prompt="BEN", name="ben", background=True),
                ]
            return "I wait."
        if request.prompt == "BEN" and request.turn == 0:
            return [call("send_message", to="ann", message="are you there?")]
        return f"{request.prompt} read {str(request.messages[-1]).count('are you there?')}"

    async with open_session(tmp_path, ScriptedModel(answer), worker="process:2") as session:
        report = await session.run("PARENT")
        (ann, ben) = sorted(
            session.runs.teammates, key=lambda mate: mate.name
        )  # either may be first
        journal = session._require_open().resources.journal
        events = [event async for event in journal.read()]
    assert report.ok and report.unread_messages == {}
    assert (ann.state, ben.state, len(ben.briefs)) == ("idle", "idle", 1)
    texts = [event.report.text for event in events if isinstance(event, RunFinished)]
    assert "ANN read 1" in texts and "BEN read 0" in texts
    assert not find_violations(events)
    assert await replay(events) == events
