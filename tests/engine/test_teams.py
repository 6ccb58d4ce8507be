"""Named children: their names, their next runs, and the messages between them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.conftest import Stage, block_texts
from tests.engine.test_background import check_record, list_notifications
from tests.engine.test_inbox import list_texts

from mudroom import Agent, Budget, Reason, ToolCallBlock
from mudroom._core.events import MessageDelivered, RunStarted, TeamMessageSent
from mudroom.models.scripted import Answer, Request, call

Arguments = dict[str, Any]


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
    async with stage.open(script) as session:
        report = await session.run("PARENT")
        await check_record(stage)
    assert (report.text, report.reason) == ("all is known", Reason.GOAL)
    assert stage.runs == ["1", "1.1.1", "1.2.1"]
    assert stage.results[1].text == "Sent to alice, who works again with it (run 1.2.1)."
    brief = next(e.brief for e in stage.events if isinstance(e, RunStarted) and e.run == "1.2.1")
    assert (brief.name, brief.continues, brief.message_ids) == ("alice", "1.1.1", ("1.2.1",))
    last = stage.list_requests("ALICE")[-1]
    assert list_texts(last)[-1] == '<message from="parent">\nand the window?\n</message>'
    assert [str(message.content) for message in last.messages][1].count("the door is green") == 1
    (notification,) = list_notifications(stage)
    assert "<name>alice</name>" in notification and "the window is blue" in notification


async def test_a_child_at_work_reads_a_message_by_name_with_its_next_request(stage: Stage) -> None:
    async def child(request: Request) -> Answer:
        if request.turn == 0:
            await stage.wait_until(lambda: len(stage.results) >= 2)
            return [call("todo", todos=[])]
        return f"I read: {list_texts(request)[-1]}"

    async def write(request: Request) -> Answer:
        await stage.wait_until(lambda: stage.list_requests("ALICE"))
        return [call("SendMessage", to="Alice", message="mind the gap")]

    script = {
        "PARENT": [[name("alice", "ALICE", background=True)], write, "I wait.", "the end"],
        "ALICE": [child],
    }
    async with stage.open(script) as session:
        await session.run("PARENT")
        await check_record(stage)
    assert stage.results[1].text == "Sent to alice, who reads it after the current tool calls."
    assert stage.runs == ["1", "1.1.1"]
    assert 'I read: <message from="parent">\nmind the gap' in list_notifications(stage)[0]


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
    async with stage.open(script) as session:
        report = await session.run("PARENT")
        await check_record(stage)
    assert report.ok
    assert stage.runs == ["1", "1.1.1", "1.1.2", "1.1.1~2"]
    assert '<message from="alice">\nyes, line 4\n</message>' in stage.reports["1.1.2"].text
    sent = [event for event in stage.events if isinstance(event, TeamMessageSent)]
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
    async with stage.open(script) as session:
        await session.run("PARENT")
        await check_record(stage)
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
    assert not [e for e in stage.events if isinstance(e, MessageDelivered)]


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ("lead", "'lead' is reserved"),
        ("9lives", "'9lives' is not a letter and up to 31"),
        ("a" * 33, "is not a letter and up to 31"),
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
    async with stage.open(script) as session:
        await session.run("PARENT")
        await check_record(stage)
    assert "'alice' is the name of a child that works" in stage.results[1].text
    assert stage.reports["1.5.1"].text == "still the newer one"


async def test_an_unknown_name_is_refused_and_a_near_one_suggested(stage: Stage) -> None:
    script = {
        "PARENT": [[name("alice", "ALICE")], [send("alcie", "hello")], "the end"],
        "ALICE": ["done"],
    }
    await stage.run(script)
    assert stage.results[1].error and "alice" in stage.results[1].text
    assert not [e for e in stage.events if isinstance(e, TeamMessageSent)]


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
    async with stage.open(script, agents=[agent]) as session:
        await session.run("PARENT")
        await check_record(stage)
    assert stage.reports["1.2.1"].text == "two"


async def test_a_named_child_works_again_in_a_later_prompt(stage: Stage) -> None:
    def parent(request: Request) -> Answer:
        (last, *_) = block_texts(request.messages[-1])
        if last == "PARENT":
            return [name("alice", "ALICE")]
        if last == "again":
            return [send("alice", "go on")]
        return "the end"

    script = {"PARENT": [parent] * 9, "ALICE": ["first", "second"]}
    async with stage.open(script) as session:
        await session.run("PARENT")
        await session.run("again")
        await check_record(stage)
    assert stage.runs == ["1", "1.1.1", "2", "2.1.1"]
    assert stage.reports["2.1.1"].text == "second"
