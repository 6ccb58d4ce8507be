"""Requirement W1: a session with worker processes leaves the record of one without them."""

from __future__ import annotations

import re
import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from mudroom import Budget, Effect, ToolContext, tool
from mudroom.permissions.rules import Permissions
from mudroom.testing import Answer, MemoryJournal, Request, ScriptedModel, call
from mudroom.testing.invariants import find_violations

from ..worker_kinds import RAY, SHARED_RAY, open_session, open_workers

DIFFERING = {"at", "seconds", "parts", "worker"}
"""Times, texts of prompts (each process records those that it sends first), and the worker."""
_CHANGING = re.compile(r"\d+(\.\d+)? s\b|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}")
"""Times and ids in texts."""


@tool(effect=Effect.PURE)
def shout(word: str) -> str:
    "Shout a word."
    return word.upper()


@tool
def where(context: ToolContext, word: str) -> str:
    "Say the run."
    return f"{word} in {context.run_id}"


@tool
def fail(word: str) -> str:
    "Raise an exception."
    raise RuntimeError(f"no {word}")


STEPS: list[list[Any]] = [
    [call("write", path="made.txt", content="one\ntwo\n")],
    [call("read", path="paper.md")],
    [call("edit", path="made.txt", old_string="two", new_string="three")],
    [call("grep", pattern="mud", path=".")],
    [call("glob", pattern="*.md")],
    [call("shout", word="a")],
    [call("fail", word="b")],
    [call("bash", command="echo out; echo err >&2; exit 3")],
    [call("read", path="missing.txt")],
    [call("nothing", x=1), call("read", offset="x")],
    [call("bash", command="rm -rf made.txt")],
    [call("where", word="here")],
    [call("todo", todos=[{"content": "count", "status": "pending"}])],
    [call("task", prompt="GRANDCHILD")],
]


def answer(request: Request) -> Answer:
    """Answer as a parent of two children, as one that uses many tools, or as its child."""
    if request.prompt == "PARENT":
        if request.turn < 2:
            return call("task", prompt=("CHILD", "WANDERER")[request.turn])
        return " | ".join(result.text.splitlines()[0] for result in request.results)
    if request.prompt == "WANDERER":
        return call("shout", word="again")
    if request.prompt == "CHILD" and request.turn < len(STEPS):
        return STEPS[request.turn]
    return f"{request.prompt} is done"


async def record(folder: Path, worker: str) -> dict[str, list[Any]]:
    """Return what a session records in a new folder, by run."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "paper.md").write_text("It is about mud.\n")
    journal = MemoryJournal()
    async with (
        open_workers(worker) as options,
        open_session(
            folder,
            ScriptedModel(answer),
            journal=journal,
            tools=[shout, fail, f"{__name__}:where"],
            permissions=Permissions.of(deny=["Bash(rm *)"]),
            prompt_budget=Budget(depth=2),
            **options,
        ) as session,
    ):
        await session.run("PARENT")
        await session.task("CHILD")
    events = [event async for event in journal.read()]
    assert not find_violations(events)
    runs: dict[str, list[Any]] = defaultdict(list)
    for event in events:
        runs[event.run].append((type(event).__name__, clean(msgspec.to_builtins(event))))
    return runs


def clean(value: Any) -> Any:
    """Return a value without what differs between two runs of the same session."""
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {key: clean(each) for key, each in items if key not in DIFFERING}
    if isinstance(value, list | tuple):
        return [clean(each) for each in cast("list[Any]", value)]
    if isinstance(value, str):
        return _CHANGING.sub("N", value)
    return value


@pytest.mark.parametrize("worker", ["process:2", "shared process:2", RAY, SHARED_RAY])
async def test_a_record_is_equal_in_all_but_times(worker: str, tmp_path: Path) -> None:
    here = await record(tmp_path / "project", "local")
    there = await record(tmp_path / "project", worker)
    assert sorted(there) == sorted(here)
    for run, events in here.items():
        for event, other in zip(events, there[run], strict=True):
            assert other == event, run
