"""Replay: a recorded run tree gives the same events without model and effects."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from mudroom import Reason, Session
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.replay_model import remove_varying_text
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._core.events import StoredEvent
from mudroom._platform.private_files import make_spill_file
from mudroom._replay import replay
from mudroom.testing import load_replay_model


def answer_as_family(request: Request) -> Answer:
    if request.prompt == "PARENT":
        tasks = [
            call("task", prompt=f"CHILD {n}", agent="general" if n else "explore", max_turns=2)
            for n in range(3)
        ]
        return [*tasks, call("task", prompt="x", agent="nobody")] if request.turn == 0 else "done"
    if request.turn == 0:
        return [
            call("write", file_path=f"{request.prompt[-1]}.txt", content="x" * 20),
            call("nothing_like_it"),
            call("read", wrong=1),
        ]
    if "CHILD 2" in request.prompt and request.tools:
        return [call("bash", command="echo hello")]
    return f"report of {request.prompt}" * (500 if request.prompt == "CHILD 1" else 1)


async def record_session(folder: Path) -> list[StoredEvent]:
    journal = MemoryJournal()
    async with Session(
        model=ScriptedModel(answer_as_family),
        cwd=str(folder),
        home=str(folder / "home"),
        journal=journal,
    ) as session:
        assert (await session.run("PARENT")).reason is Reason.GOAL
        await session.run("PARENT")
    return journal.events


def encode_events(events: list[StoredEvent]) -> list[bytes]:
    return [msgspec.json.encode(event) for event in events]


async def test_a_run_tree_is_replayed_byte_for_byte(tmp_path: Path) -> None:
    events = await record_session(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    assert encode_events(await replay(events)) == encode_events(events)
    assert sorted(tmp_path.rglob("*")) == before


async def test_a_recorded_session_serves_as_a_model(tmp_path: Path) -> None:
    fixture = tmp_path / "fixture.jsonl"
    fixture.write_bytes(b"\n".join(encode_events(await record_session(tmp_path))))
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    async with Session(
        model=load_replay_model(fixture),
        cwd=str(fresh),
        home=str(tmp_path / "home"),
        journal="memory",
    ) as session:
        report = await session.run("PARENT")
    assert (report.text, report.reason) == ("done", Reason.GOAL)
    assert (fresh / "1.txt").read_text() == "x" * 20


async def test_the_first_different_request_is_shown(tmp_path: Path) -> None:
    fixture = tmp_path / "fixture.jsonl"
    fixture.write_bytes(b"\n".join(encode_events(await record_session(tmp_path))))
    async with Session(
        model=load_replay_model(fixture),
        cwd=str(tmp_path),
        home=str(tmp_path / "home"),
        journal="memory",
    ) as session:
        report = await session.run("ANOTHER")
    assert report.reason is Reason.ERROR
    assert "-PARENT" in report.error and "+ANOTHER" in report.error


@pytest.mark.parametrize("run", ["1.2.3-1.1", "1-1.1", "1-1.1~2", "1-0.alice~1", "1.1.2~3-4.1"])
def test_the_folder_and_the_random_end_of_a_spill_file_do_not_differ(
    run: str, tmp_path: Path
) -> None:
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        folder.mkdir()
    paths = [make_spill_file(str(folder), f"{run}-report") for folder in folders]
    texts = {remove_varying_text(f"the whole report is in {path}]") for path in paths}
    assert texts == {f"the whole report is in {run}-report.txt]"}
