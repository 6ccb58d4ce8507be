"""Replay: a recorded run tree gives the same events without model and effects."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.engine.conftest import Stage

from mudroom import Reason, Report, Session
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.replay_model import remove_varying_text
from mudroom._adapters.models.scripted import Answer, Request, call
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


async def record_session(stage: Stage) -> list[StoredEvent]:
    journal = MemoryJournal()
    async with stage.open(answer_as_family, journal=journal) as session:
        assert (await session.run("PARENT")).reason is Reason.GOAL
        await session.run("PARENT")
    return journal.events


def encode_events(events: list[StoredEvent]) -> list[bytes]:
    return [msgspec.json.encode(event) for event in events]


async def test_a_run_tree_is_replayed_byte_for_byte(stage: Stage, tmp_path: Path) -> None:
    events = await record_session(stage)
    before = sorted(tmp_path.rglob("*"))
    assert encode_events(await replay(events)) == encode_events(events)
    assert sorted(tmp_path.rglob("*")) == before


async def test_a_recorded_session_serves_as_a_model_and_shows_the_first_different_request(
    stage: Stage, tmp_path: Path
) -> None:
    fixture = tmp_path / "fixture.jsonl"
    fixture.write_bytes(b"\n".join(encode_events(await record_session(stage))))
    (fresh := tmp_path / "fresh").mkdir()
    reports: list[Report] = []
    for prompt in ("PARENT", "ANOTHER"):
        async with Session(
            model=load_replay_model(fixture),
            cwd=str(fresh),
            home=str(fresh),
            environ={},
            journal="memory",
            sandbox="off",
        ) as session:
            reports.append(await session.run(prompt))
    same, other = reports
    assert (same.text, same.reason) == ("done", Reason.GOAL)
    assert (fresh / "1.txt").read_text() == "x" * 20
    assert other.reason is Reason.ERROR
    assert "-PARENT" in other.error and "+ANOTHER" in other.error


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
