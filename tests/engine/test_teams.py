"""Named children: their names, their next runs, and the messages between them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.engine.conftest import Stage, block_texts
from tests.engine.test_background import list_notifications, start
from tests.engine.test_inbox import list_texts

from mudroom import Agent, Budget, Mode, Reason, ToolCallBlock
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._core.events import MessageDelivered, RunStarted, TeamMessageSent, ToolCallFinished
from mudroom._core.runs import Brief
from mudroom._engine.child_report import format_evidence
from mudroom._engine.team_registry import MAX_RUNS, check_name, make_agent_name
from mudroom._projections.team import normalize_name
from mudroom.errors import UnknownName
from mudroom.testing.clock import VirtualLoop


def send(to: str, message: str, **arguments: Any) -> ToolCallBlock:
    return call("send_message", to=to, message=message, **arguments)


def name(child: str, prompt: str, **arguments: Any) -> ToolCallBlock:
    return call("task", prompt=prompt, name=child, **arguments)


async def test_a_message_starts_the_next_run_of_a_named_child_in_its_conversation(
    stage: Stage,
) -> None:
    script = {
        "PARENT": [
            [name("alice", "ALICE find the door")],
            [send("alice", "and the window?")],
            "I wait.",
            "all is known",
        ],
        "ALICE": ["the door is green", "the window is blue"],
    }
    report = await stage.run_checked(script)
    assert (report.text, report.reason) == ("all is known", Reason.GOAL)
    assert stage.runs == ["1", "1.1.1", "1.2.1"]
    assert stage.results[1].text == "Sent to alice, who works again with it (run 1.2.1)."
    brief = next(e.brief for e in stage.select(RunStarted) if e.run == "1.2.1")
    assert (brief.name, brief.continues, brief.message_ids) == ("alice", "1.1.1", ("1.2.1",))
    last = stage.list_requests("ALICE")[-1]
    assert list_texts(last)[-1] == '<message from="parent">\nand the window?\n</message>'
    assert [str(message.content) for message in last.messages][1].count("the door is green") == 1
    (notification,) = list_notifications(stage)
    assert "<name>alice</name>" in notification and "the window is blue" in notification


def test_a_name_has_one_form() -> None:
    assert normalize_name(" @Ａlice Ｂ ") == "alice-b"
    assert normalize_name("É") == normalize_name("E\u0301")
    for code in range(0x3000):
        once = normalize_name(f"a{chr(code)}b")
        assert normalize_name(once) == once


async def test_siblings_write_to_each_other_and_an_idle_one_works_again(stage: Stage) -> None:
    async def bob(request: Request) -> Answer:
        if request.turn == 0:
            await stage.wait_until(lambda: "1.1.1" in stage.reports)
            return [send("alice", "is the schema in db.py?")]
        if request.turn == 1:
            await stage.wait_until(lambda: "1.1.1~2" in stage.reports)
        return f"bob ends: {list_texts(request)[-1]}"

    def alice(request: Request) -> Answer:
        if request.turn == 0:
            return "alice is idle"
        return [[send("bob", "yes, line 4")], "alice has answered"][request.turn - 1]

    script = {
        "PARENT": [
            [name("alice", "ALICE", background=True), name("bob", "BOB", background=True)],
            "I wait.",
        ],
        "ALICE": [alice],
        "BOB": [bob],
    }
    report = await stage.run_checked(script)
    assert report.ok
    assert stage.runs == ["1", "1.1.1", "1.1.2", "1.1.1~2"]
    assert '<message from="alice">\nyes, line 4\n</message>' in stage.reports["1.1.2"].text
    sent = stage.select(TeamMessageSent)
    assert [(each.run, each.to, each.message.sender) for each in sent] == [
        ("1", "alice", "1.1.2"),
        ("1", "bob", "1.1.1~2"),
    ]
    assert len(list_notifications(stage)) == 3


async def test_a_background_child_writes_to_its_parent_and_ends_its_wait(stage: Stage) -> None:
    def alice(request: Request) -> Answer:
        return [[send("main", "half is done")], "all is done"][request.turn]

    script = {
        "PARENT": [[name("alice", "ALICE", background=True)], [call("wait")], "I wait.", "the end"],
        "ALICE": [alice],
    }
    await stage.run_checked(script)
    assert '<message from="alice">\nhalf is done\n</message>' in stage.list_notes()


async def test_a_child_that_its_parent_waits_for_is_told_to_end_with_its_question(
    stage: Stage,
) -> None:
    def alice(request: Request) -> Answer:
        if request.turn == 0:
            return [send("parent", "which door?")]
        return block_texts(request.messages[-1])[0]

    await stage.run({"PARENT": [[name("alice", "ALICE")], "the end"], "ALICE": [alice]})
    assert "End with your question as your report" in stage.reports["1.1.1"].text
    assert not stage.select(MessageDelivered)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("lead", "'lead' is reserved"),
        ("9lives", "'9lives' is not a letter and up to 31"),
        ("a" * 33, "is not a letter and up to 31"),
        ("红" * 33, "is not a letter and up to 31"),
        ("小/红", "is not a letter and up to 31"),
        ("a\u3164", "is not a letter and up to 31"),
        ("a\u202e", "is not a letter and up to 31"),
    ],
)
async def test_a_wrong_name_is_refused(stage: Stage, wrong: str, reason: str) -> None:
    await stage.run({"PARENT": [[name(wrong, "CHILD")], "the end"]})
    assert stage.results[0].error and reason in stage.results[0].text
    assert stage.runs == ["1"]


async def test_a_name_is_taken_while_its_child_works_and_free_afterwards(stage: Stage) -> None:
    async def wait(request: Request) -> Answer:
        await stage.wait_until(lambda: len(stage.results) >= 2)
        return "done"

    script = {
        "PARENT": [
            [name("alice", "FIRST", background=True)],
            [name("alice", "SECOND")],
            [call("wait")],
            [name("alice", "THIRD")],
            [send("alice", "who are you?")],
            "I wait.",
        ],
        "FIRST": [wait],
        "THIRD": ["the newer one", "still the newer one"],
    }
    await stage.run_checked(script)
    assert "'alice' is the name of a child that works" in stage.results[1].text
    assert stage.reports["1.5.1"].text == "still the newer one"


async def test_an_unknown_name_is_refused_and_a_near_one_suggested(stage: Stage) -> None:
    script = {
        "PARENT": [[name("alice", "ALICE")], [send("alcie", "hello")], "the end"],
        "ALICE": ["done"],
    }
    await stage.run(script)
    assert stage.results[1].error and "alice" in stage.results[1].text
    assert not stage.select(TeamMessageSent)


async def test_a_named_child_knows_its_team_and_has_only_the_tool_for_messages(
    stage: Stage,
) -> None:
    script = {
        "PARENT": [[name("alice", "ALICE"), name("bob", "BOB", agent="explore")], "the end"],
        "ALICE": ["done"],
        "BOB": ["done"],
    }
    await stage.run(script, budget=Budget(depth=1))
    (alice,) = stage.list_requests("ALICE")
    assert "You are alice; your lead is parent, teammates: bob (explore)." in alice.system
    assert {"task", "wait", "send_message", "task_stop"} & set(alice.tools) == {"send_message"}


async def test_an_agent_may_ask_for_its_name(stage: Stage) -> None:
    agent = Agent(name="Reviewer", description="reviews", is_teammate=True)
    script = {
        "PARENT": [
            [call("task", prompt="CHILD", agent="Reviewer")],
            [send("reviewer", "again")],
            "I wait.",
        ],
        "CHILD": ["one", "two"],
    }
    await stage.run_checked(script, agents=[agent])
    assert stage.reports["1.2.1"].text == "two"


async def rewind_second(
    stage: Stage, prompts: dict[str, Answer], children: dict[str, Any]
) -> dict[str, Brief]:
    """Run the prompts "PARENT", "second", "third", with a rewind of the second before the third.

    Arguments:
        prompts: calls of the parent for each of them.

    Returns:
        The briefs of all runs.
    """

    def parent(request: Request) -> Answer:
        return prompts.get(block_texts(request.messages[-1])[0], "the end")

    async with stage.open({"PARENT": [parent], **children}) as session:
        await session.run("PARENT")
        removed = await session.run("second")
        session.rewind(removed.run_id)
        await session.run("third")
        await stage.check_record()
    return {event.run: event.brief for event in stage.select(RunStarted)}


async def test_a_rewind_removes_runs_and_messages_of_a_named_child(stage: Stage) -> None:
    prompts: dict[str, Answer] = {
        "PARENT": [name("alice", "ALICE")],
        "second": [send("alice", "the removed word"), name("bob", "BOB")],
        "third": [send("alice", "the new word"), send("bob", "who are you?")],
    }
    children = {"ALICE": ["one", "removed", "two"], "BOB": ["done"]}
    briefs = await rewind_second(stage, prompts, children)
    assert (briefs["2.1.1"].continues, briefs["3.1.1"].continues) == ("1.1.1", "1.1.1")
    last = stage.list_requests("ALICE")[-1]
    assert "the new word" in str(last.messages) and "removed" not in str(last.messages)
    assert stage.results[-1].error and "No child 'bob'" in stage.results[-1].text


async def test_after_a_rewind_a_stopped_child_is_idle_again(stage: Stage) -> None:
    prompts: dict[str, Answer] = {
        "PARENT": [name("alice", "ALICE")],
        "second": [call("task_stop", to="alice")],
        "third": [send("alice", "the new word")],
    }
    await rewind_second(stage, prompts, {"ALICE": ["one", "two"]})
    assert stage.results[-1].text == "Sent to alice, who works again with it (run 3.1.1)."


async def test_after_a_rewind_an_answered_plan_is_open_again(stage: Stage) -> None:
    approve = send("alice", "", approve=True)
    prompts: dict[str, Answer] = {
        "PARENT": [name("alice", "ALICE", plan=True)],
        "second": [approve],
        "third": [call("wait", timeout=0), name("bob", "BOB", background=True), approve],
    }
    children = {"ALICE": ["a plan", "done", "done again"], "BOB": ["done"]}
    briefs = await rewind_second(stage, prompts, children)
    waited = next(e for e in stage.select(ToolCallFinished) if e.name == "wait")
    assert "alice (general, 1.1.1): waits for approval" in waited.result.text
    assert (briefs["3.1.3"].continues, briefs["3.1.3"].is_plan) == ("1.1.1", False)


def test_an_agent_with_a_name_of_other_letters_gives_a_valid_name() -> None:
    assert check_name(make_agent_name("研究员")) == ""
    assert make_agent_name("研究员") == "研究员"


async def test_a_plan_is_only_read_planned_again_and_approved_in_the_mode_of_the_parent(
    stage: Stage,
) -> None:
    def write(text: str) -> Answer:
        return [call("write", file_path="plan.txt", content=text)]

    script = {
        "PARENT": [
            [name("alice", "ALICE", plan=True)],
            [call("review_plan", request_id="1.1.1", approve=False, feedback="smaller")],
            "I wait.",
            [send("alice", "good", approve=True)],
            "I wait.",
            "the end",
        ],
        "ALICE": [write("too early"), "a plan", "a smaller plan", write("approved"), "done"],
    }
    await stage.run_checked(script)
    briefs = {e.run: e.brief for e in stage.select(RunStarted)}
    mode = briefs["1"].mode
    assert [
        (run, briefs[run].mode, briefs[run].is_plan) for run in ("1.1.1", "1.2.1", "1.4.1")
    ] == [
        ("1.1.1", Mode.PLAN, True),
        ("1.2.1", Mode.PLAN, True),
        ("1.4.1", mode, False),
    ]
    assert 'approve="false">\nsmaller' in briefs["1.2.1"].prompt
    assert "send_message(to='alice', approve=true or false" in stage.results[0].text
    assert (stage.folder / "plan.txt").read_text() == "approved"
    first = [e for e in stage.select(ToolCallFinished) if e.run == "1.1.1"]
    assert first[0].refused and first[0].result.error


async def test_the_user_refuses_and_approves_a_plan(stage: Stage) -> None:
    async def parent(request: Request) -> Answer:
        if request.turn == 0:
            return [name("alice", "ALICE", plan=True)]
        await stage.wait_until(lambda: "1.1.1~3" in stage.reports)
        return "the end"

    script = {"PARENT": [parent] * 9, "ALICE": ["a plan", "a smaller plan", "done"]}
    async with stage.open(script) as session:
        running = asyncio.create_task(session.run("PARENT"))
        await stage.wait_until(lambda: len(stage.results) == 1)
        assert session.runs.teammates[0].state == "waits for approval"
        assert not await session.runs.send_durably("1", "the lead has no plan", approve=True)
        assert await session.runs.send_durably("alice", "smaller", approve=False)
        await stage.wait_until(lambda: "1.1.1~2" in stage.reports)
        assert await session.runs.send_durably("alice", approve=True)
        await stage.wait_until(lambda: "1.1.1~3" in stage.reports)
        assert not await session.runs.send_durably("alice", approve=True)
        await running
        await stage.check_record()
    briefs = {e.run: e.brief for e in stage.select(RunStarted)}
    assert [(briefs[run].prompt, briefs[run].is_plan) for run in ("1.1.1~2", "1.1.1~3")] == [
        ("smaller", True),
        ("Approved.", False),
    ]
    assert briefs["1.1.1~3"].mode is briefs["1"].mode
    sent = [event.message for event in stage.select(TeamMessageSent)]
    assert [(each.sender, each.approve) for each in sent] == [("user", False), ("user", True)]


async def test_only_an_open_request_is_answered_and_only_by_the_parent(stage: Stage) -> None:
    async def bob(request: Request) -> Answer:
        await stage.wait_until(lambda: "1.1.1" in stage.reports)
        calls = [[send("alice", "fine", approve=True)], [send("parent", "no", approve=False)], "ok"]
        return calls[request.turn]

    script = {
        "PARENT": [
            [name("alice", "ALICE", plan=True), name("bob", "BOB", background=True)],
            [call("wait", until="all")],
            [send("bob", "well done", approve=True)],
            "the end",
        ],
        "ALICE": ["a plan"],
        "BOB": [bob],
    }
    await stage.run_checked(script)
    refusals = [event.result.text for event in stage.select(ToolCallFinished) if event.result.error]
    assert refusals == [
        "Nothing was sent to alice: only its parent approves a plan",
        "Nothing was sent: no request is open that you could answer.",
        "Nothing was sent to bob: it has no open request that you could approve or refuse",
    ]


def run_with_virtual_clock(stage: Stage, script: dict[str, Any], **options: Any) -> float:
    """Run a prompt in a loop whose time passes at once; return its seconds. Check the record."""

    async def run() -> float:
        async with stage.open(script, **options) as session:
            began = asyncio.get_running_loop().time()
            await session.run("PARENT")
            seconds = asyncio.get_running_loop().time() - began
            await stage.check_record(timed=False)
        return seconds

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(run())


async def work_in_turns(request: Request) -> Answer:
    """Take a turn every 25 seconds, until a summary is requested."""
    if not request.tools:
        return "half of it"
    await asyncio.sleep(25)
    return [call("read", file_path="notes.txt", offset=request.turn % 3 + 1)]


def test_a_child_that_does_not_answer_a_request_to_stop_is_stopped(stage: Stage) -> None:
    script = {
        "PARENT": [
            [name("alice", "ALICE", background=True)],
            [call("shutdown_request", teammate="alice", reason="the work is done")],
            "I wait.",
            [send("alice", "one more thing")],
            [name("alice", "SECOND")],
            "the end",
        ],
        "ALICE": [work_in_turns],
        "SECOND": ["a new alice"],
    }
    seconds = run_with_virtual_clock(stage, script)
    child = stage.reports["1.1.1"]
    assert (child.reason, child.recovered, child.text) == (Reason.CANCELLED, True, "half of it")
    assert 50 <= seconds < 90
    assert any("the work is done" in text for text in stage.list_notes("1.1.1"))
    assert stage.results[2].error and "it was stopped" in stage.results[2].text
    assert stage.results[3].text.startswith("a new alice")


def test_a_child_may_refuse_to_stop_once(stage: Stage) -> None:
    async def alice(request: Request) -> Answer:
        if not request.tools:
            return "stopped in the end"
        await asyncio.sleep(25)
        asked = "[You are asked to stop." in str(request.messages[-1])
        if asked:
            return [send("parent", "I am nearly done", approve=False)]
        return [call("read", file_path="notes.txt", offset=request.turn % 3 + 1)]

    script = {
        "PARENT": [
            [name("alice", "ALICE", background=True)],
            [call("task_stop", to="alice", how="ask")],
            [call("wait")],
            [call("task_stop", to="alice", how="ask")],
            "I wait.",
            "the end",
        ],
        "ALICE": [alice],
    }
    run_with_virtual_clock(stage, script)
    assert '<message from="alice" approve="false">\nI am nearly done\n</message>' in (
        stage.list_notes()
    )
    errors = [e.result.text for e in stage.select(ToolCallFinished) if e.result.error]
    assert "Nothing was sent: you have refused to stop before. Finish, and report." in errors
    assert stage.reports["1.1.1"].reason is Reason.CANCELLED


def test_a_child_that_agrees_to_stop_is_stopped_at_once(stage: Stage) -> None:
    async def alice(request: Request) -> Answer:
        if "[You are asked to stop." in str(request.messages[-1]) and request.tools:
            return [call("shutdown_response", approve=True)]
        return await work_in_turns(request)

    script = {
        "PARENT": [
            [name("alice", "ALICE", background=True)],
            [call("task_stop", to="alice", how="ask")],
            "I wait.",
            "the end",
        ],
        "ALICE": [alice],
    }
    assert run_with_virtual_clock(stage, script) < 60
    assert stage.reports["1.1.1"].text == "half of it"


async def test_an_idle_child_is_stopped_at_once_and_its_name_is_free(stage: Stage) -> None:
    script = {
        "PARENT": [
            [name("alice", "ALICE")],
            [call("task_stop", to="alice")],
            [send("alice", "go on")],
            [call("list_teammates")],
            "the end",
        ],
        "ALICE": ["done"],
    }
    async with stage.open(script) as session:
        await session.run("PARENT")
        await stage.check_record()
        assert [each.state for each in session.runs.teammates] == ["stopped"]
    assert stage.results[1].text == "alice is idle, and is not started again: its name is free."
    assert stage.results[2].error and "it was stopped" in stage.results[2].text
    assert stage.results[3].text == "alice (general, 1.1.1): stopped"


async def test_two_children_that_only_write_to_each_other_are_warned_and_stopped(
    stage: Stage,
) -> None:
    results: list[str] = []

    def chat(other: str) -> Callable[[Request], Answer]:
        def answer(request: Request) -> Answer:
            last = "\n".join(block_texts(request.messages[-1]))
            if "Nothing was sent to" in last:
                results.append(last)
                return "I stop."
            if "<message" in last or (other == "bob" and request.turn == 0):
                return [send(other, f"turn {request.turn}")]
            return "I wait."

        return answer

    def bob(request: Request) -> Answer:
        return chat("alice")(request) if request.turn else "here"

    script = {
        "PARENT": [
            [name("bob", "BOB")],
            [name("alice", "ALICE", background=True)],
            "I wait.",
        ],
        "ALICE": [chat("bob")],
        "BOB": [bob],
    }
    report = await stage.run_checked(script)
    assert report.ok
    sent = stage.select(TeamMessageSent)
    warned = [n for n, event in enumerate(sent, 1) if event.message.notes]
    assert len(sent) == 12 and warned == list(range(6, 13))
    assert "12 messages in a row between you two" in results[0]


async def test_a_name_has_twenty_runs_for_one_prompt(stage: Stage) -> None:
    def parent(request: Request) -> Answer:
        if request.turn == 0:
            return [name("alice", "ALICE")]
        has_report = request.turn == 1 or "<task-id>" in str(request.messages[-1])
        return [send("alice", "again")] if has_report else "I wait."

    script = {"PARENT": [parent], "ALICE": ["done"]}
    async with stage.open(script) as session:
        report = await session.run("PARENT")
        assert report.ok and report.unread_messages == {}
        await stage.check_record()
    assert sum(run != "1" for run in stage.runs) == MAX_RUNS
    (error,) = [result.text for result in stage.results if result.error]
    assert error == "Nothing was sent to alice: it has had 20 runs for this prompt, the maximum"


async def test_the_budget_of_a_next_run_is_reserved_from_the_parent(stage: Stage) -> None:
    script = {
        "PARENT": [[name("alice", "ALICE")], [send("alice", "again")], "the end"],
        "ALICE": ["done"],
    }
    report = await stage.run_checked(script, prompt_budget=Budget(children=1))
    assert stage.runs == ["1", "1.1.1"] and report.ok
    assert stage.results[1].text == (
        "Nothing was sent to alice: the budget of 1 children is used up"
    )
    assert not stage.select(TeamMessageSent)


async def test_the_user_writes_to_a_name_and_stops_it(stage: Stage) -> None:
    async def parent(request: Request) -> Answer:
        if request.turn == 0:
            return [name("alice", "ALICE")]
        if request.turn == 1:
            await stage.wait_until(lambda: "1.1.1~2" in stage.reports)
        return "the end"

    async def alice(request: Request) -> Answer:
        if request.turn == 0:
            return "idle"
        if request.tools:
            await asyncio.Event().wait()
        return f"I read: {block_texts(request.messages[-2])[-1]}"

    async with stage.open({"PARENT": [parent], "ALICE": [alice]}) as session:
        running = asyncio.create_task(session.run("PARENT"))
        await stage.wait_until(lambda: len(stage.results) == 1)
        assert await session.runs.send_durably("@Alice", "look at the roof")
        await stage.wait_until(lambda: len(stage.list_requests("ALICE")) == 2)
        (row,) = session.runs.teammates
        assert (row.name, row.state, row.run_id) == ("alice", "working", "1.1.1~2")
        assert session.runs.send(" ALICE ", "and at the door")
        assert session.runs.wrap_up("alice")
        await running
        await stage.check_record()
        assert await session.runs.send_durably("alice", "no prompt runs")
        wrong_name = r"unknown teammate '@alcie'.*Did you mean alice"
        with pytest.raises(UnknownName, match=wrong_name):
            await session.runs.send_durably("@alcie", "and the window")
        with pytest.raises(UnknownName, match=wrong_name):
            session.runs.send("@alcie", "and the window")
        for stop in (session.runs.wrap_up, session.runs.cancel, session.runs.detach):
            with pytest.raises(UnknownName, match=wrong_name):
                stop("@alcie")
    sent = next(event for event in stage.select(TeamMessageSent))
    assert (sent.message.sender, sent.message.name) == ("user", "")
    brief = next(e.brief for e in stage.select(RunStarted) if e.run == "1.1.1~2")
    assert brief.prompt == "look at the roof"
    assert "and at the door" in str(list_texts(stage.list_requests("ALICE")[-1]))


async def test_messages_that_are_never_read_are_in_the_evidence(stage: Stage) -> None:
    async def alice_at_work(request: Request) -> Answer:
        await asyncio.Event().wait()
        return ""

    async def write(request: Request) -> Answer:
        await stage.wait_until(lambda: stage.list_requests("ALICE"))
        return [send("alice", "do you read this?")]

    async def cancel(request: Request) -> Answer:
        stage.session.runs.cancel("1")
        return "the end"

    script = {
        "PARENT": [[name("alice", "ALICE", background=True)], write, cancel],
        "ALICE": [alice_at_work],
    }
    report = await stage.run_checked(script)
    assert report.unread_messages == {"alice": 1}
    assert "messages that were not read: 1 to alice" in format_evidence(report)


async def test_a_broadcast_reaches_all_children_at_work_and_idle_named_ones(stage: Stage) -> None:
    async def work(request: Request) -> Answer:
        if request.turn == 0:
            await stage.wait_until(lambda: len(stage.results) >= 4)
            return [call("todo", todos=[])]
        return block_texts(request.messages[-1])[-1]

    async def write(request: Request) -> Answer:
        await stage.wait_until(lambda: stage.list_requests("BOB") and stage.list_requests("CAROL"))
        return [call("broadcast", content="phase 1 is complete")]

    script = {
        "PARENT": [
            [name("alice", "ALICE")],
            [name("bob", "BOB", background=True), start("CAROL")],
            write,
            "I wait.",
        ],
        "ALICE": ["idle", "thank you"],
        "BOB": [work],
        "CAROL": [work],
    }
    await stage.run_checked(script)
    assert stage.runs == ["1", "1.1.1", "1.2.1", "1.2.2", "1.1.1~2"]
    assert all("phase 1 is complete" in stage.reports[run].text for run in ("1.2.1", "1.2.2"))
    assert stage.reports["1.1.1~2"].text == "thank you"


async def test_a_sibling_that_knew_an_older_child_of_the_name_is_told(stage: Stage) -> None:
    async def bob(request: Request) -> Answer:
        if request.turn == 0:
            await stage.wait_until(lambda: "1.3.1" in stage.reports)
            return [send("alice", "as we agreed")]
        return block_texts(request.messages[-1])[0]

    script = {
        "PARENT": [
            [name("alice", "FIRST")],
            [name("bob", "BOB", background=True)],
            [name("alice", "SECOND")],
            "I wait.",
        ],
        "FIRST": ["the older alice"],
        "BOB": [bob],
        "SECOND": ["the newer alice"],
    }
    async with stage.open(script) as session:
        await session.run("PARENT")
        await stage.check_record()
        assert [(each.name, each.is_replaced) for each in session.runs.teammates] == [
            ("alice", True),
            ("bob", False),
            ("alice", False),
        ]
    note = "this is a newer alice, who knows nothing of the one before"
    assert note in stage.reports["1.2.1"].text
    assert "1.3.1~2" in stage.runs


async def test_a_child_that_a_call_waits_for_is_detached_by_its_name(stage: Stage) -> None:
    async def alice(request: Request) -> Answer:
        await stage.wait_until(lambda: len(stage.results) == 1)
        return "done"

    script = {"PARENT": [[name("alice", "ALICE")], "I go on.", "the end"], "ALICE": [alice]}
    async with stage.open(script) as session:
        running = asyncio.create_task(session.run("PARENT"))
        await stage.wait_until(lambda: stage.list_requests("ALICE"))
        assert session.runs.detach("@Alice")
        await running
        await stage.check_record()
    assert len(list_notifications(stage)) == 1
