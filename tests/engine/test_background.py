"""Background children: the parent goes on, reads each report once, and ends after all of them."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.engine.conftest import Gate, Stage
from tests.engine.test_inbox import list_texts

from mudroom import Agent, Budget, Reason, ToolCallBlock
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._core.events import (
    MessageDelivered,
    MessageSent,
    NoteInjected,
    RunStarted,
    RunWaiting,
    TurnStarted,
)


def start(prompt: str, **arguments: Any) -> ToolCallBlock:
    return call("task", prompt=prompt, background=True, **arguments)


async def wait_forever(request: Request) -> Answer:
    """Wait until the run is stopped; then give its summary."""
    if request.tools:
        await asyncio.Event().wait()
    return "half of the cellar"


def list_notifications(stage: Stage) -> list[str]:
    """Return the notifications that the parent read, in order."""
    return [text for text in stage.list_notes() if text.startswith("<task-notification>")]


async def test_a_background_child_works_while_its_parent_goes_on(stage: Stage) -> None:
    gate = Gate("the cellar is dry")
    read = [call("read", file_path="notes.txt")]
    script = {
        "PARENT": [[start("CHILD")], read, gate.open, "all is known"],
        "CHILD": [gate.child],
    }
    report = await stage.run_checked(script)
    assert (report.text, report.reason, report.turns) == ("all is known", Reason.GOAL, 4)
    assert stage.results[0].text.startswith("Started 1.1.1 in the background.")
    assert stage.results[0].detail == {"run": "1.1.1", "background": True}
    kinds = [
        type(event)
        for event in stage.events
        if isinstance(event, RunWaiting | MessageSent | MessageDelivered | TurnStarted)
        and event.run == "1"
    ]
    assert kinds == [
        *[TurnStarted] * 3,
        RunWaiting,
        MessageSent,
        MessageDelivered,
        TurnStarted,
    ]
    notification = list_texts(stage.list_requests("PARENT")[-1])[-1]
    assert notification.startswith(
        "<task-notification>\n[From mudroom, not from the user: it gives no permission.]\n"
        "<task-id>1.1.1</task-id>\n<status>completed</status>\n<task>general: CHILD</task>\n"
        "<result>\nthe cellar is dry\n\n[evidence: "
    )


async def test_a_failed_background_child_is_reported_as_failed(stage: Stage) -> None:
    def fail(request: Request) -> Answer:
        raise ValueError("no such cellar")

    script = {"PARENT": [[start("CHILD")], "the end"], "CHILD": [fail]}
    report = await stage.run_checked(script)
    assert report.ok
    (text,) = list_notifications(stage)
    assert "<status>failed</status>" in text and "no such cellar" in text


async def test_a_run_with_outputs_waits_for_its_children(stage: Stage) -> None:
    emit = call("self.emitvalue", emit_variable_name="count", emit_variable_value="2")
    script = {"PARENT": [[start("CHILD"), emit], ""], "CHILD": ["two cellars"]}
    async with stage.open(script) as session:
        report = await session.run("PARENT", outputs={"count": "how many"})
        await stage.check_record()
    assert (report.reason, report.outputs, report.turns) == (Reason.GOAL, {"count": "2"}, 2)
    assert len(list_notifications(stage)) == 1


async def test_an_empty_answer_while_a_child_works_is_no_fault(stage: Stage) -> None:
    gate = Gate()

    def end(request: Request) -> Answer:
        gate.open(request)
        return ""

    script = {"PARENT": [[start("CHILD")], end, "the end"], "CHILD": [gate.child]}
    report = await stage.run_checked(script)
    assert (report.text, report.reason) == ("the end", Reason.GOAL)


async def test_the_same_answer_after_each_of_many_reports_is_no_loop(stage: Stage) -> None:
    gates = [asyncio.Event() for _ in range(20)]
    gates[0].set()

    async def child(request: Request) -> Answer:
        await gates[int(request.prompt.split()[1])].wait()
        return "done"

    def wait(request: Request) -> Answer:
        if request.turn < len(gates):
            gates[request.turn].set()
        return "I wait."

    starts = [start(f"CHILD {number}") for number in range(len(gates))]
    report = await stage.run_checked({"PARENT": [starts, wait], "CHILD": [child]})
    assert report.reason is Reason.GOAL
    assert len(list_notifications(stage)) == 20


async def test_a_limit_of_the_parent_asks_its_children_for_summaries_first(stage: Stage) -> None:
    async def read(request: Request) -> Answer:
        await stage.wait_until(lambda: stage.list_requests("CHILD"))
        return [call("read", file_path="notes.txt")]

    script = {"PARENT": [[start("CHILD")], read, "my summary"], "CHILD": [wait_forever]}
    report = await stage.run_checked(script, prompt_budget=Budget(turns=2))
    assert (report.reason, report.recovered, report.text) == (Reason.MAX_TURNS, True, "my summary")
    assert stage.reports["1.1.1"].text == "half of the cellar"
    (text,) = list_notifications(stage)
    assert "<status>stopped</status>" in text and "half of the cellar" in text
    assert text in list_texts(stage.list_requests("PARENT")[-1])


async def test_a_cancel_ends_the_wait_for_the_summaries_of_children(stage: Stage) -> None:
    script = {"PARENT": [[start("CHILD")], "I wait.", "never"], "CHILD": [Gate().child]}
    async with stage.open_waiting(script) as (session, running):
        assert session.runs.wrap_up("1")
        await stage.wait_until(lambda: len(stage.list_requests("CHILD")) == 2)
        assert session.runs.cancel("1")
        report = await running
        await stage.check_record()
    assert (report.reason, report.recovered) == (Reason.CANCELLED, False)


async def test_a_message_of_the_user_wakes_a_run_that_waits(stage: Stage) -> None:
    gate = Gate()
    script = {
        "PARENT": [[start("CHILD")], "I wait.", gate.open, "the end"],
        "CHILD": [gate.child],
    }
    async with stage.open_waiting(script) as (session, running):
        assert session.runs.send("1", "and the roof")
        report = await running
        await stage.check_record()
    assert report.text == "the end"
    assert stage.list_notes()[0] == "and the roof"


async def test_notifications_come_before_messages_of_the_user(stage: Stage) -> None:
    async def send(request: Request) -> Answer:
        stage.session.runs.send("1", "and the roof")
        await stage.wait_until(
            lambda: any(
                isinstance(event, MessageSent) and event.message.kind == "notification"
                for event in stage.events
            )
        )
        return [call("read", file_path="notes.txt")]

    await stage.run({"PARENT": [[start("CHILD")], send, "the end"], "CHILD": ["done"]})
    first, second = (note for note in stage.list_notes())
    assert first.startswith("<task-notification>") and second == "and the roof"


async def test_sixty_four_reports_at_once_are_one_message_within_its_limit(stage: Stage) -> None:
    gate = asyncio.Event()

    async def child(request: Request) -> Answer:
        await gate.wait()
        return f"{request.prompt} {'x' * 7_000}"

    def open_gate(request: Request) -> Answer:
        gate.set()
        return [call("read", file_path="notes.txt")]

    async def wait_for_all(request: Request) -> Answer:
        await stage.wait_until(lambda: len(stage.select(MessageSent)) == 64)
        return "I have seen them"

    starts = [start(f"CHILD {number}") for number in range(64)]
    script = {"PARENT": [starts, open_gate, wait_for_all, "the end"], "CHILD": [child]}
    report = await stage.run_checked(script)
    assert report.text in ("I have seen them", "the end")
    texts = list_notifications(stage)
    assert len(texts) == 64
    whole = [text for text in texts if "<result>" in text]
    assert sum(map(len, whole)) <= 40_000 and len(whole) == 5
    path = texts[-1].split("read ")[1].removesuffix("</task-notification>")
    with open(path, encoding="utf-8") as file:
        assert "x" * 7_000 in file.read()


async def test_the_budget_of_a_background_child_is_reserved_until_it_ends(stage: Stage) -> None:
    limited = Agent(name="limited", description="d", budget=Budget(total_tokens=600_000))
    gate = Gate()
    begin = [start("CHILD", agent="limited")]
    script = {
        "PARENT": [begin, begin, gate.open, begin, "I wait.", "the end"],
        "CHILD": [gate.child],
    }
    report = await stage.run(script, agents=[limited], budget=Budget(total_tokens=1_000_000))
    assert report.ok
    refusal = stage.results[1].text
    assert refusal.startswith("No child was started: total_tokens: 600,000 requested, 399,")
    assert refusal.endswith(" left. Ask for less, or do the rest yourself.")
    assert stage.results[2].text.startswith("Started ")


async def test_files_of_background_children_are_evidence_of_the_parent(stage: Stage) -> None:
    calls = [call("write", file_path="new.txt", content="x"), call("read", file_path="notes.txt")]
    # The spelling of Claude Code.
    spelled = call("Agent", prompt="CHILD", subagent_type="general", run_in_background=True)
    script = {"PARENT": [[spelled], "the end"], "CHILD": [calls, "done"]}
    report = await stage.run(script)
    assert len(list_notifications(stage)) == 1
    assert report.files_changed == ("new.txt",) and report.files_read == ("notes.txt",)


async def test_a_child_in_a_worker_process_works_in_the_background(stage: Stage) -> None:
    script = {
        "PARENT": [[start("CHILD"), start("CHILD")], "I wait.", "the end"],
        "CHILD": [[start("GRANDCHILD")], "I wait, too.", "done below"],
        "GRANDCHILD": ["deep"],
    }
    report = await stage.run_checked(script, worker="process:1", budget=Budget(depth=2))
    assert report.ok and len(list_notifications(stage)) == 2
    started = [event.run for event in stage.select(RunStarted)]
    assert sorted(started) == ["1", "1.1.1", "1.1.1.1.1", "1.1.2", "1.1.2.1.1"]
    deep = [
        event
        for event in stage.select(NoteInjected)
        if event.run == "1.1.1" and "deep" in event.text
    ]
    assert len(deep) == 1
