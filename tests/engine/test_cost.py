"""Cost of a turn, counted in calls of Python functions, which do not depend on the machine."""

from __future__ import annotations

import sys
from collections.abc import Collection, Generator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from mudroom import Children, Session
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom.events import RunFinished, SessionClosed

MAX_CALLS_PER_TURN = 185
"""Calls of one turn with one call of `read`. Raise it only for something that every turn needs."""

MAX_CALLS_PER_FINISHED_CHILD = 122
"""Calls for one finished child when the run of its parent continues in another process."""

COUNTED_FOLDERS = {"_engine", "journals", "permissions", "tools", "workers", "workspaces"}


@contextmanager
def count_functions(folders: Collection[str]) -> Generator[list[int]]:
    """Count the calls of functions in these folders inside the `with` block, in a list of one."""
    count = [0]

    def add_call(frame: FrameType, event: str, _: object) -> None:
        parts = Path(frame.f_code.co_filename).parts
        count[0] += event == "call" and not set(folders).isdisjoint(parts)

    profiler = sys.getprofile()
    sys.setprofile(add_call)
    try:
        yield count
    finally:
        sys.setprofile(profiler)


async def count_calls(folder: Path, turns: int) -> int:
    """Return the calls of functions in a run that reads a file in each turn."""
    (folder / "notes.txt").write_text("one\ntwo\nthree\n")
    script: list[Answer] = [
        *([call("read", file_path="notes.txt", offset=turn + 1)] for turn in range(turns)),
        "done",
    ]
    model = ScriptedModel(script)
    home = str(folder / "home")
    async with Session(model=model, cwd=str(folder), home=home, journal="memory") as session:
        with count_functions(COUNTED_FOLDERS) as count:
            report = await session.run("Read the notes.")
    assert report.ok
    assert report.turns == turns + 1
    return count[0]


async def count_calls_to_continue(folder: Path, children: int) -> int:
    """Return the calls to continue a session whose parent was interrupted after its children."""

    def answer(request: Request) -> Answer:
        if request.prompt == "PARENT" and not request.turn:
            return [call("task", prompt=f"CHILD {n}") for n in range(children)]
        return "done"

    options: dict[str, Any] = {
        "model": ScriptedModel(answer),
        "children": Children(parallel=children),
        "cwd": str(folder),
        "home": str(folder / "home"),
    }
    recorded = MemoryJournal()
    async with Session(journal=recorded, **options) as session:
        await session.run("PARENT")
    journal = MemoryJournal()
    for event in recorded.events:
        is_end = event.run == "1" and (isinstance(event, RunFinished) or event.turn > 1)
        if not (is_end or isinstance(event, SessionClosed)):
            await journal.append(event)
    with count_functions({"mudroom"}) as count:
        async with Session(journal=journal, resume=session.id, **options) as session:
            report = await session.resume_unfinished()
    assert report and report.calls == {"task": children}
    return count[0]


async def test_a_turn_without_limits_and_watchers_takes_few_calls(tmp_path: Path) -> None:
    await count_calls(tmp_path, 2)  # fills caches, and imports modules
    few = await count_calls(tmp_path, 2)
    many = await count_calls(tmp_path, 12)
    assert (many - few) / 10 <= MAX_CALLS_PER_TURN


async def test_a_finished_child_takes_few_calls_when_a_session_continues(tmp_path: Path) -> None:
    await count_calls_to_continue(tmp_path, 2)  # fills caches, and imports modules
    few = await count_calls_to_continue(tmp_path, 5)
    many = await count_calls_to_continue(tmp_path, 25)
    assert (many - few) / 20 <= MAX_CALLS_PER_FINISHED_CHILD
