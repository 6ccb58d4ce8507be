"""Tests of a resume on the command line: the record is read once, however long it is."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path

import pytest

from mudroom._adapters.journals.sqlite import reader
from mudroom._adapters.journals.sqlite.store import SqliteStore
from mudroom._cli.main import run
from mudroom._core.events import SessionOpened, StoredEvent
from mudroom._core.messages import TextBlock
from mudroom.testing.event_builders import (
    run_finished,
    run_started,
    tool_call,
    tool_call_events,
    turn_events,
)

SESSION = "0b5e8a52-6f0c-4b6e-9d0e-3f1c2d4e5a6b"
QUESTION = "Which testing framework does this project use?"


async def write_session(home: Path, folder: Path, *, is_finished: bool) -> None:
    call = tool_call("c1", "read", path="pyproject.toml")
    events: list[StoredEvent] = [
        SessionOpened(at=0.0, session=SESSION, cwd=str(folder), version="0"),
        run_started("1", prompt=QUESTION),
        *turn_events("1", call),
        *tool_call_events("1", call, "[tool.pytest.ini_options]"),
    ]
    if is_finished:
        events += [*turn_events("1", TextBlock("pytest."), turn=2), run_finished("1")]
    journal = await SqliteStore(home).create(SESSION)
    await journal.append(*events)
    await journal.close()


@pytest.mark.parametrize(
    ("arguments", "is_finished"),
    [
        (["--resume", SESSION, "-p", QUESTION], True),
        (["--resume", SESSION, "-p", QUESTION], False),
        (["resume", SESSION], False),
    ],
)
def test_the_command_line_reads_each_answer_of_the_record_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], is_finished: bool
) -> None:
    home = tmp_path / "home"
    folder = tmp_path / "project"
    folder.mkdir()
    folder.joinpath("pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    monkeypatch.setenv("MUDROOM_HOME", str(home))
    monkeypatch.setenv("MUDROOM_MODEL", "offline")
    monkeypatch.chdir(folder)
    asyncio.run(write_session(home, folder, is_finished=is_finished))
    reads: Counter[bytes] = Counter()
    decode = reader.decode_event

    def count(body: bytes) -> StoredEvent:
        reads[body] += 1
        return decode(body)

    monkeypatch.setattr(reader, "decode_event", count)
    with open(os.devnull, encoding="utf-8") as no_input:
        monkeypatch.setattr("sys.stdin", no_input)
        run(arguments)
    answers = [number for body, number in reads.items() if b'"turn_finished"' in body]
    assert answers
    assert set(answers) == {1}
