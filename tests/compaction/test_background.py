"""Background work during a compaction: nothing starts twice, and the facts name all of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

from mudroom import Children, Reason
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._core.events import MessageDelivered, RunStarted
from mudroom._replay import replay
from mudroom.testing.invariants import find_violations

from .conftest import Stage, is_summary, join_request, list_message_texts

CHILDREN = [f"1.1.{number}" for number in range(1, 6)]
COMMANDS = {"1.1.6": "first", "1.1.7": "second"}
MESSAGES = [f"message {number} of the user" for number in range(3)]
READS = 14


def make_command(name: str) -> str:
    return f"echo {name} >> effects.txt; until test -e go; do sleep 0.05; done"


async def test_open_work_and_unread_messages_survive_a_compaction(stage: Stage) -> None:
    stage.write_files(READS)
    is_compacted = asyncio.Event()
    step = 0

    async def answer(request: Request) -> Answer:
        nonlocal step
        if is_summary(request):
            assert all(session.runs.send("1", text) for text in MESSAGES)
            return "the notes"
        if request.prompt.startswith("CHILD"):
            await is_compacted.wait()
            return f"{request.prompt} is done"
        step += 1
        if step == 1:
            tasks = [call("task", prompt=f"CHILD {n}", background=True) for n in CHILDREN]
            names = COMMANDS.values()
            subjects = ("parse", "print", "test")
            return [
                *tasks,
                *(call("bash", command=make_command(name), background=True) for name in names),
                *(call("task_create", subject=subject) for subject in subjects),
                *(call("claim_task", task_id=number) for number in (1, 2, 3)),
            ]
        if step == 2:
            return [call("complete_task", task_id=2), call("read", file_path="0.txt")]
        if step <= READS:
            return [f"thought {step} {'y' * 5_000}", call("read", file_path=f"{step - 1}.txt")]
        is_compacted.set()
        (stage.folder / "go").touch()
        ended = join_request(request).count("<task-notification>")
        return "done" if ended == len(CHILDREN) + len(COMMANDS) else [call("wait", until="all")]

    async with stage.open(answer, children=Children(board=True)) as session:
        report = await session.run("Read all files.")
    assert report.reason is Reason.GOAL
    assert stage.compactions
    first = next(
        request
        for request in stage.model.requests
        if "the notes" in join_request(request) and not is_summary(request)
    )
    facts = list_message_texts(first.messages[0])
    text = "\n".join(facts)
    assert all(f"- {child} (general)" in text for child in CHILDREN)
    assert all(f"- {place}: bash {make_command(name)}" in text for place, name in COMMANDS.items())
    assert "## Tasks of the board that you work on\n- #1 parse\n- #3 test\n" in text
    assert "#2 print" not in text
    assert all(message in join_request(first) for message in MESSAGES)
    started = Counter(event.run for event in stage.select(RunStarted) if ".c" not in event.run)
    assert started == Counter(["1", *CHILDREN])
    assert sorted((stage.folder / "effects.txt").read_text().split()) == ["first", "second"]
    read = Counter(event.message_id for event in stage.select(MessageDelivered))
    assert set(read.values()) == {1} and len(read) == len(MESSAGES) + len(CHILDREN) + len(COMMANDS)
    assert not find_violations(stage.events)
    assert await replay(stage.events) == stage.events


async def test_all_prompts_of_a_named_child_survive_a_compaction(stage: Stage) -> None:
    stage.write_files(READS + 2)
    prompts = ["find the door\n  and its key", "now the window", "now the roof"]
    second, third = ([call("send_message", to="alice", message=text)] for text in prompts[1:])
    parent: Iterator[Answer] = iter(
        [[call("task", prompt=prompts[0], name="alice")], second, "wait", third, "wait", "done"]
    )
    thoughts: list[Answer] = [
        [f"thought {n} {'y' * 5_000}", call("read", file_path=f"{n}.txt")] for n in range(READS + 2)
    ]
    child = iter([thoughts[0], "a door", thoughts[1], "a window", *thoughts[2:], "a roof"])

    def answer(request: Request) -> Answer:
        if is_summary(request):
            return "the notes"
        return next(parent if request.prompt == "PARENT" else child)

    async with stage.open(answer) as session:
        report = await session.run("PARENT")
    assert (report.reason, report.text) == (Reason.GOAL, "done")
    assert {event.run for event in stage.compactions} == {"1.4.1"}
    requests = [each for each in stage.model.requests if "the notes" in join_request(each)]
    last = join_request(requests[-1])
    places = [last.index(text) for text in prompts]
    assert places == sorted(places)
    assert last.index("# Your earlier tasks") < places[0]
    assert places[1] < last.index("# Your task,") < places[2]
    assert not find_violations(stage.events)
    assert await replay(stage.events) == stage.events
