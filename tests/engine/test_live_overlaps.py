"""Warnings about files that another running run changed in the shared workspace."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import msgspec
import pytest

from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._adapters.workspaces.shared import SharedWorkspace
from mudroom._core.events import ToolCallFinished
from mudroom._core.tools import ToolResult
from mudroom._engine.changes.live_overlaps import LiveOverlaps
from mudroom._replay import replay
from mudroom.testing import FakeClock

from .conftest import Stage


@pytest.mark.parametrize(("name", "label"), [("alice", "alice (1.1.1)"), ("", "run 1.1.1")])
async def test_a_call_reads_which_lines_a_running_sibling_changed(
    stage: Stage, name: str, label: str
) -> None:
    has_begun = asyncio.Event()
    has_written = asyncio.Event()
    has_read = asyncio.Event()

    async def write_late(_: Request) -> Answer:
        await has_begun.wait()
        return [call("edit", file_path="notes.txt", old_string="two", new_string="TWO\n2")]

    async def end_late(_: Request) -> Answer:
        has_written.set()
        await has_read.wait()
        return "Written."

    async def read_late(_: Request) -> Answer:
        has_begun.set()
        await has_written.wait()
        return [call("read", file_path="notes.txt")]

    async def end_after_read(_: Request) -> Answer:
        has_read.set()
        return "Read."

    named = {"name": name} if name else {}
    journal = MemoryJournal()
    script = {
        "PARENT": [[call("task", prompt="A", **named), call("task", prompt="B")], "Done."],
        "A": [[call("read", file_path="notes.txt")], write_late, end_late],
        "B": [read_late, end_after_read],
    }
    await stage.run(script, journal=journal)
    texts = [
        (event.run, event.result.text)
        for event in stage.select(ToolCallFinished)
        if "also changed" in event.result.text
    ]
    assert [run for run, _ in texts] == ["1.1.2"]
    pattern = rf"\n\[also changed by {re.escape(label)} \d+ s ago: lines 2-3\]$"
    assert re.search(pattern, texts[0][1])
    encoded = [msgspec.json.encode(event) for event in journal.events]
    assert [msgspec.json.encode(event) for event in await replay(journal.events)] == encoded


class Room:
    """A folder with three running runs that are written to by hand."""

    def __init__(self, folder: Path) -> None:
        self.clock = FakeClock()
        self.overlaps = LiveOverlaps(self.clock)
        self.folder = folder
        self.workspace = SharedWorkspace(str(folder))
        self.write("", "".join(f"{n}\n" for n in range(1, 31)))

    def start(self, run: str, name: str = "") -> None:
        self.overlaps.start(run, name)

    def write(self, run: str, text: str) -> None:
        before = self.overlaps.read_before(run, self.workspace, "a.txt", "x") if run else None
        (self.folder / "a.txt").write_text(text)
        if run:
            self.overlaps.add_write(run, self.workspace, "a.txt", before)

    def change(self, run: str, first: int, last: int) -> None:
        lines = (self.folder / "a.txt").read_text().splitlines()
        lines[first - 1 : last] = [f"{line} {run}" for line in lines[first - 1 : last]]
        self.write(run, "\n".join(lines) + "\n")

    def warn(self, run: str) -> str:
        return self.overlaps.warn(run, ["a.txt"], ToolResult("ok")).text


@pytest.fixture
def room(tmp_path: Path) -> Room:
    return Room(tmp_path)


def test_a_warning_names_the_age_and_the_lines(room: Room) -> None:
    room.start("1.3.2", "alice")
    room.start("1.3.3")
    room.change("1.3.2", 10, 24)
    room.clock.advance(40)
    assert room.warn("1.3.3") == "ok\n[also changed by alice (1.3.2) 40 s ago: lines 10-24]"
    assert room.warn("1.3.2") == "ok"


def test_lines_move_with_later_changes(room: Room) -> None:
    room.start("1.3.2")
    room.start("1.3.3")
    room.change("1.3.2", 10, 12)
    room.change("1.3.2", 20, 20)
    text = (room.folder / "a.txt").read_text()
    room.write("1.3.3", f"new\nnew\n{text}")
    assert room.warn("1.3.3") == "ok\n[also changed by run 1.3.2 0 s ago: lines 12-14, 22]"


def test_runs_above_and_below_are_not_warned_of(room: Room) -> None:
    for run in ("1", "1.3.2", "1.3.2.1.1"):
        room.start(run)
        room.change(run, 2, 2)
    assert [room.warn(run) for run in ("1", "1.3.2", "1.3.2.1.1")] == ["ok"] * 3


def test_changes_before_the_start_and_of_ended_runs_give_no_warning(room: Room) -> None:
    room.start("1.3.2")
    room.change("1.3.2", 2, 2)
    room.clock.advance(1)
    room.start("1.3.3")
    assert room.warn("1.3.3") == "ok"
    room.change("1.3.2", 8, 8)
    assert room.warn("1.3.3") == "ok\n[also changed by run 1.3.2 0 s ago: line 8]"
    room.overlaps.end("1.3.2")
    assert room.warn("1.3.3") == "ok"
    assert not room.overlaps


def test_a_large_file_has_no_lines(room: Room) -> None:
    room.start("1.3.2")
    room.start("1.3.3")
    room.write("1.3.2", "x\n" * (1 << 20))
    assert room.warn("1.3.3") == "ok\n[also changed by run 1.3.2 0 s ago]"
