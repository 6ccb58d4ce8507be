"""Cost of a turn, counted in calls of Python functions, which do not depend on the machine."""

from __future__ import annotations

import sys
from pathlib import Path
from types import FrameType

from mudroom import Session
from mudroom.models.scripted import Answer, ScriptedModel, call

MAX_CALLS_PER_TURN = 168
"""Calls of one turn with one call of `read`. Raise it only for something that every turn needs."""

COUNTED_FOLDERS = {"_engine", "journals", "permissions", "tools", "workers", "workspaces"}


async def count_calls(folder: Path, turns: int) -> int:
    """Return the calls of functions in a run that reads a file in each turn."""
    (folder / "notes.txt").write_text("one\ntwo\nthree\n")
    script: list[Answer] = [
        *([call("read", file_path="notes.txt", offset=turn + 1)] for turn in range(turns)),
        "done",
    ]
    count = 0

    def add_call(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        folders = Path(frame.f_code.co_filename).parts
        count += event == "call" and not COUNTED_FOLDERS.isdisjoint(folders)

    model = ScriptedModel(script)
    home = str(folder / "home")
    async with Session(model=model, cwd=str(folder), home=home, journal="memory") as session:
        profiler = sys.getprofile()
        sys.setprofile(add_call)
        try:
            report = await session.run("Read the notes.")
        finally:
            sys.setprofile(profiler)
    assert report.ok
    assert report.turns == turns + 1
    return count


async def test_a_turn_without_limits_and_watchers_takes_few_calls(tmp_path: Path) -> None:
    await count_calls(tmp_path, 2)  # fills caches, and imports modules
    few = await count_calls(tmp_path, 2)
    many = await count_calls(tmp_path, 12)
    assert (many - few) / 10 <= MAX_CALLS_PER_TURN
