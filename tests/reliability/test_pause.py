"""S17: SIGTERM at the real command line keeps what kill -9 keeps, whatever works at the moment."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from pathlib import Path

import pytest

from mudroom import ToolCallBlock
from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom._core.events import MessageDelivered, RunFinished, RunStarted
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest

from ..waiting import find_processes, wait_until
from .command_line import MODEL, run
from .conftest import CheckRecord
from .test_signals import read_last_record

CHILDREN = ("1.1.1", "1.1.2", "1.2.1")
CASES = [
    ("resume", "request", "local"),
    ("-c", "command", "process:1"),
    ("resume", "command", "local"),
    ("-c", "wait", "local"),
    ("resume", "wait", "process:1"),
]
"""How the work goes on, what works at the moment of the signal, and the worker."""
MORE_CASES = [
    (way, moment, worker)
    for way in ("resume", "-c")
    for moment in ("request", "command", "wait")
    for worker in ("local", "process:1")
]


class Story:
    """Answers of a parent with two background children and one that it waits for.

    Arguments:
        moment: what hangs, until `is_released`: "request" (of a child), "command" (of a child) or
            "wait" (the last background child while the parent waits for its end).
    """

    def __init__(self, moment: str, mark: str) -> None:
        self.moment = moment
        self.mark = mark
        self.is_released = False
        self.has_hung = False
        self.requests = Counter[str]()

    def __call__(self, request: ServerRequest) -> ServerAnswer:
        body = request.body.decode()
        name = next((name for name in ("A", "B", "C") if f"CHILD {name}" in body), "")
        if "task" in request.tools:
            return self._answer_parent(request, body)
        self.requests[f"{name} {request.turn}"] += 1
        if request.turn == 0:
            return (ToolCallBlock(f"e{name}", "bash", {"command": f"echo {name} >> effects.txt"}),)
        if not self.is_released:
            if self.moment == "request" and name in "AC":
                self.has_hung = name == "C" or self.has_hung
                return Fault(delay=60)
            if self.moment == "wait" and name == "A":
                self.has_hung = True
                return Fault(delay=60)
        if request.turn == 1:
            command = f": {self.mark}; echo {name}2 >> effects.txt"
            if self.moment == "command" and not self.is_released:
                command += "; (setsid sleep 61 &); sleep 60"
            return (ToolCallBlock(f"s{name}", "bash", {"command": command}),)
        return f"child {name} is done"

    def _answer_parent(self, request: ServerRequest, body: str) -> ServerAnswer:
        self.requests[f"parent {request.turn}"] += 1
        if request.turn == 0:
            return tuple(
                ToolCallBlock(f"t{n}", "task", {"prompt": f"CHILD {n}", "background": True})
                for n in "AB"
            )
        if request.turn == 1:
            return (ToolCallBlock("tC", "task", {"prompt": "CHILD C"}),)
        return "all three are done" if body.count("<task-id>") >= 2 else "I wait."


@pytest.mark.parametrize(
    ("way", "moment", "worker"), MORE_CASES if os.environ.get("MUDROOM_LONG") else CASES
)
async def test_s17_what_sigterm_stops_goes_on_in_the_next_process(
    tmp_path: Path, way: str, moment: str, worker: str, check_record: CheckRecord
) -> None:
    story = Story(moment, f"pause-{moment}-{worker.replace(':', '-')}-{tmp_path.name}")

    def hangs() -> bool:
        if moment == "command":
            path = tmp_path / "work" / "effects.txt"
            return path.exists() and {"A2", "B2", "C2"} <= set(path.read_text().split())
        return story.has_hung

    async with ModelServer(story) as server:
        words = ("-p", "PARENT", "--worker", worker, *MODEL)
        stopped = await run(tmp_path, server.url, *words, until=hangs, by=[signal.SIGTERM])
        assert stopped[0] == 143, stopped
        assert "mudroom resume" in stopped[2]
        assert server.in_flight == 0
        await wait_until(lambda: not find_processes(story.mark))
        effects = (tmp_path / "work" / "effects.txt").read_text()
        record = list(open_reader(read_last_record(tmp_path)).read())
        assert "1" not in {event.run for event in record if isinstance(event, RunFinished)}
        story.is_released = True
        listed = await run(tmp_path, server.url, "runs", "--json")
        assert json.loads(listed[1])[0]["state"] == "interrupted", listed
        if way == "resume":
            resumed = await run(tmp_path, server.url, "resume")
            assert (resumed[0], resumed[1]) == (0, "all three are done\n"), resumed
        else:
            resumed = await run(tmp_path, server.url, "-c", "-p", "GO ON", *MODEL)
            assert resumed[0] == 0, resumed
    done = Counter((tmp_path / "work" / "effects.txt").read_text().split())
    assert max(done.values()) == 1 and (tmp_path / "work" / "effects.txt").read_text().startswith(
        effects
    )
    events = list(open_reader(read_last_record(tmp_path)).read())
    started = Counter(event.run for event in events if isinstance(event, RunStarted))
    assert dict.fromkeys(("1", *CHILDREN), 1).items() <= started.items()
    texts = {e.run: e.report.text for e in events if isinstance(e, RunFinished)}
    assert {texts[run] for run in CHILDREN} == {f"child {name} is done" for name in "ABC"}
    read = Counter(event.message_id for event in events if isinstance(event, MessageDelivered))
    assert read == Counter(("1.1.1#end", "1.1.2#end"))
    await check_record(events)


async def test_s17_sighup_pauses_as_sigterm_does_and_ctrl_c_still_ends_the_prompt(
    tmp_path: Path,
) -> None:
    story = Story("wait", "unused")
    codes = {signal.SIGHUP: (129, "interrupted"), signal.SIGINT: (130, "finished")}
    previous = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup makes children ignore it
    try:
        for number, (code, state) in codes.items():
            folder = tmp_path / number.name
            folder.mkdir()
            story.has_hung = False
            async with ModelServer(story) as server:
                words = ("-p", "PARENT", "-o", "stream-json", *MODEL)
                done = await run(
                    folder, server.url, *words, until=lambda: story.has_hung, by=[number]
                )
                assert done[0] == code, done
                result = json.loads(done[1].splitlines()[-1])
                assert (result["type"], result["reason"]) == ("result", "CANCELLED")
                assert result["report"].get("is_interrupted", False) is (state == "interrupted")
                listed = await run(folder, server.url, "runs", "--json")
            assert json.loads(listed[1])[0]["state"] == state
    finally:
        signal.signal(signal.SIGHUP, previous)
