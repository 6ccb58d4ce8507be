"""Bounds of teams: sizes of requests, waits in circles, and messages in each state of a child."""

from __future__ import annotations

import asyncio
import itertools
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace
from tests.engine.conftest import Stage, block_texts
from tests.engine.test_teams import name, send

from mudroom import Budget, Children, Reason, Session, TextBlock, ToolCallBlock
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, Request, ScriptedConversation, call
from mudroom._core.events import Delta, MessageDelivered, RunStarted, TeamMessageSent
from mudroom._core.ports import StreamChunk
from mudroom.testing.clock import VirtualLoop
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

LONG = bool(os.environ.get("MUDROOM_LONG"))
CHILD_SIZE = 2_377
NAMED_CHILD_SIZE = 2_800
"""Bytes of tools and system prompt in the request of a child."""


async def measure_child(
    folder: Path, *, first: ToolCallBlock | None = None, **arguments: Any
) -> tuple[int, ServerRequest]:
    """Return the bytes of tools and system prompt in a child's request, and the request.

    Arguments:
        first: call of the parent before the child starts; it starts another child.
        arguments: of the child.
    """
    arguments.update(prompt="look", agent="general")
    start = ToolCallBlock("call_1", "task", arguments)
    calls = [replace(first, id="call_0"), start] if first else [start]

    def answer(request: ServerRequest) -> ServerAnswer:
        # Each of the calls before has a request of the parent, and one of its child.
        number, is_child = divmod(len(server.requests) - 1, 2)
        return (TextBlock("done"),) if is_child or number >= len(calls) else (calls[number],)

    async with ModelServer(answer) as server:
        environ = {"ANTHROPIC_API_KEY": "k-test", "ANTHROPIC_BASE_URL": server.url}
        async with Session(
            model="anthropic:m",
            cwd=str(folder),
            home=str(folder / "home"),
            environ=environ,
            journal=MemoryJournal(),
            sandbox="off",
            budget=Budget(depth=1),
        ) as session:
            await session.run("PARENT")
    child = server.requests[2 * len(calls) - 1]
    head = {key: child.json[key] for key in ("tools", "system")}
    return len(msgspec.json.encode(head)), child


async def test_only_the_request_of_a_named_child_itself_is_larger(
    tmp_path: Path,
) -> None:
    size, child = await measure_child(tmp_path)
    named_size, named = await measure_child(tmp_path, name="alice")
    assert set(named.tools) - set(child.tools) == {"send_message"}
    assert named_size - size <= NAMED_CHILD_SIZE - CHILD_SIZE, (size, named_size)
    assert "alice" not in str(child.json["system"])
    _, beside = await measure_child(tmp_path, first=name("alice", "LOOK"))
    assert beside.tools == child.tools
    assert beside.json == child.json


RUNS = ("1", "1.1.1", "1.1.2", "1.1.1.1.1")
"""A root run, two children, and a child of the first one."""


def make_waiting_script(waits: dict[str, str]) -> dict[str, Any]:
    """Return a script for four runs: each waits for one other, or for none.

    A run that cannot wait ends.
    """

    def wait(run: str) -> list[Answer]:
        target = waits.get(run)
        return [[call("wait", **{"for": [target], "timeout": 600})]] if target else []

    return {
        "PARENT": [
            [name("one", "ONE", background=True), name("two", "TWO", background=True)],
            *wait("1"),
            "the end",
        ],
        "ONE": [[name("deep", "DEEP", background=True)], *wait("1.1.1"), "one ends"],
        "TWO": [*wait("1.1.2"), "two ends"],
        "DEEP": [*wait("1.1.1.1.1"), "deep ends"],
    }


def list_circles() -> list[dict[str, str]]:
    """Return all pairs, and with MUDROOM_LONG all triples, of waits among the four runs."""
    sizes = (2, 3) if LONG else (2,)
    return [
        dict(zip(runs, targets, strict=True))
        for size in sizes
        for runs in itertools.combinations(RUNS, size)
        for targets in itertools.product(RUNS, repeat=size)
    ]


def test_no_waits_among_four_runs_last_a_second(tmp_path: Path) -> None:
    async def run(waits: dict[str, str], number: int) -> tuple[float, list[str]]:
        folder = tmp_path / str(number)
        folder.mkdir()
        stage = Stage(folder)
        began = asyncio.get_running_loop().time()
        report = await stage.run(make_waiting_script(waits), budget=Budget(depth=2))
        assert report.ok, waits
        return asyncio.get_running_loop().time() - began, [each.text for each in stage.results]

    circles = list_circles()
    refused = 0
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        for number, waits in enumerate(circles):
            seconds, results = runner.run(run(waits, number))
            assert seconds < 1, waits
            refused += any("it waits for you" in text for text in results)
    assert len(circles) >= 96 and refused > 0


STATES: dict[str, Callable[[Stage], object]] = {
    "asked": lambda stage: stage.list_requests("ALICE"),
    "streaming": lambda stage: any(
        isinstance(event, Delta) and event.run == "1.1.1" for event in stage.events
    ),
    "in a call": lambda stage: stage.list_requests("ALICE"),
    "in grace": lambda stage: any(not each.tools for each in stage.list_requests("ALICE")),
    "ended": lambda stage: "1.1.1" in stage.reports,
    "idle": lambda stage: True,
    "cancelled": lambda stage: "1.1.1" in stage.reports,
    "queued": lambda stage: stage.list_requests("FIRST"),
}
"""Conditions that are true when the child is in the state."""


class AliceInState:
    """The answers of a child that is in a state until a message to it is written."""

    def __init__(self, stage: Stage, state: str) -> None:
        self.stage = stage
        self.state = state
        self.is_written = asyncio.Event()

    async def answer(self, request: Request) -> Answer:
        if "mind the gap" in str(request.messages[-1]):
            return "I read it"
        if self.state == "in grace":
            return await self._answer_in_grace(request)
        if request.turn == 0 and self.state == "asked":
            await self.is_written.wait()
        elif request.turn == 0 and self.state == "in a call":
            return [call("bash", command="while [ ! -e written ]; do sleep 0.02; done")]
        elif request.turn == 0 and self.state == "cancelled":
            await asyncio.Event().wait()
        return "alice ends"

    async def _answer_in_grace(self, request: Request) -> Answer:
        if request.tools:
            return [call("todo", todos=[])]
        await self.is_written.wait()
        return "alice ends"

    def pause_stream(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Pause each answer after its first piece of text until the message is written."""
        request_answer = ScriptedConversation.request_answer

        async def pause(conversation: ScriptedConversation, **options: Any) -> AsyncIterator[Any]:
            async for item in request_answer(conversation, **options):
                yield item
                if isinstance(item, StreamChunk):
                    await self.is_written.wait()

        monkeypatch.setattr(ScriptedConversation, "request_answer", pause)

    async def answer_first(self, _: Request) -> Answer:
        """Answer for the child that occupies the only place."""
        await self.is_written.wait()
        return "done"

    async def write(self, _: Request) -> Answer:
        """Answer for the parent: write when the child is in its state."""
        stage = self.stage
        await stage.wait_until(lambda: stage.list_requests("ALICE") or self.state == "queued")
        if self.state == "cancelled":
            assert stage.session.runs.cancel("1.1.1")
        await stage.wait_until(lambda: STATES[self.state](stage))
        return [send("alice", "mind the gap")]

    def end(self, _: Request) -> Answer:
        """Answer for the parent: the message is written."""
        self.is_written.set()
        (self.stage.folder / "written").touch()
        return "I wait."


@pytest.mark.parametrize("state", STATES)
async def test_a_message_in_each_state_of_a_child_is_read_once(
    stage: Stage, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = AliceInState(stage, state)
    if state == "streaming":
        alice.pause_stream(monkeypatch)
    alice_task = name("alice", "ALICE", background=True, max_turns=3)
    tasks = [alice_task]
    if state == "queued":
        tasks = [call("task", prompt="FIRST", background=True), alice_task]
    idle = [[call("wait")]] if state == "idle" else []
    script: dict[str, Any] = {
        "PARENT": [tasks, *idle, alice.write, alice.end, "the end"],
        "ALICE": [alice.answer],
        "FIRST": [alice.answer_first],
    }
    report = await stage.run_checked(
        script, children=Children(parallel=1 if state == "queued" else 64)
    )
    assert report.reason is Reason.GOAL
    read = Counter(e.message_id for e in stage.select(MessageDelivered))
    for event in stage.events:
        if isinstance(event, RunStarted):
            read.update(event.brief.message_ids)
    for event in stage.events:
        if isinstance(event, TeamMessageSent):
            assert read[event.message.id] == 1, state
    sent = stage.select(TeamMessageSent)
    assert len(sent) == 1 and report.unread_messages == {}
    if state == "in a call":
        assert stage.results[1].text == "Sent to alice, who reads it after the current tool calls."
    texts = [text for request in stage.list_requests("ALICE") for text in _list_last(request)]
    assert any("mind the gap" in text for text in texts)


def _list_last(request: Request) -> list[str]:
    return block_texts(request.messages[-1])
