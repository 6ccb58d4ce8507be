"""`mudroom replay`: background work matches; of other records it shows the first difference."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from typing import Any

import pytest

from mudroom import AssistantMessage, Budget, Session, Usage
from mudroom._adapters.journals.sessions import open_store, read_events
from mudroom._adapters.models.scripted import Request, ScriptedModel
from mudroom._adapters.models.scripted import call as make_call
from mudroom._core.events import RunFinished, StoredEvent, ToolCallFinished
from mudroom._core.messages import StopReason, TextBlock, ToolCallBlock

from .conftest import Run

MODEL = "anthropic:claude-sonnet-4-5"
ECHO = make_call("bash", command="echo hi")
SLOW = make_call("bash", command="sleep 0.3; echo hi")


def task(prompt: str, **arguments: Any) -> ToolCallBlock:
    return make_call("task", prompt=prompt, description="part", **arguments)


def begin(prompt: str) -> ToolCallBlock:
    return task(prompt, background=True)


SCENES: dict[str, tuple[list[ToolCallBlock], Budget]] = {
    "beside a slow command": ([begin("CHILD 1"), SLOW], Budget()),
    "beside a foreground child": ([begin("CHILD 1"), task("CHILD 3")], Budget()),
    "money": ([begin(f"CHILD {n}") for n in (9, 9, 9)], Budget(usd=0.05)),
}


async def record(project: Path, calls: list[ToolCallBlock], budget: Budget) -> str:
    """Run a parent that makes calls at once, and return the id of its session."""

    async def answer(request: Request) -> AssistantMessage:
        usage = Usage(700, 50)
        if request.prompt == "PARENT":
            blocks = calls if request.turn == 0 and request.tools else []
        else:
            is_working = request.turn < int(request.prompt.split()[1]) and request.tools
            blocks = [ECHO] if is_working and request.turn % 2 else []
            await asyncio.sleep(0.02)
        if not blocks:
            return AssistantMessage((TextBlock("ALL DONE"),), StopReason.END, usage)
        named = [
            ToolCallBlock(f"c{request.turn}-{place}", each.name, each.arguments)
            for place, each in enumerate(blocks)
        ]
        return AssistantMessage(tuple(named), StopReason.CALLS, usage)

    async with Session(
        model=ScriptedModel(answer, MODEL),
        cwd=str(project),
        home=find_home(project),
        environ={},
        sandbox="off",
        budget=budget,
    ) as session:
        await session.run("PARENT")
        return session.id


@pytest.mark.parametrize("scene", SCENES)
def test_background_work_replays(call: Run, project: Path, scene: str) -> None:
    session_id = asyncio.run(record(project, *SCENES[scene]))
    code, _, err = call("replay", session_id)
    assert code == 0 and "every event identical" in err, err


def find_home(project: Path) -> str:
    return str(project.parent / "state")


async def store_changed(project: Path, events: list[StoredEvent]) -> str:
    """Store events as a session of their own, and return its id."""
    changed_id = str(uuid.uuid4())
    changed = await open_store(find_home(project)).create(changed_id)
    await changed.append(*events)
    await changed.close()
    return changed_id


@pytest.mark.parametrize("removed", [ToolCallFinished, RunFinished])
def test_the_first_difference_of_a_damaged_record_is_readable(
    call: Run, project: Path, removed: type[StoredEvent]
) -> None:
    session_id = asyncio.run(record(project, *SCENES["beside a slow command"]))
    events = asyncio.run(read_events(open_store(find_home(project)), session_id))
    del events[next(n for n, event in enumerate(events) if isinstance(event, removed))]
    code, out, err = call("replay", asyncio.run(store_changed(project, events)))
    assert (code, out) == (1, "") and "bug in mudroom" not in err
    assert "run 1" in err and "record" in err
