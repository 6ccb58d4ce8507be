"""A check of a task: the task has reached its goal only if a command succeeds with its files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from mudroom import Reason, Session
from mudroom._core.events import CheckFinished, CheckStarted, RunFinished, StoredEvent
from mudroom._replay import replay
from mudroom.errors import UsageError
from mudroom.permissions.rules import Permissions
from mudroom.testing import Answer, MemoryJournal, ScriptedModel, call

CHECK = "cat code.txt; touch trace.txt; ! grep -q bad code.txt"


async def run_task(
    folder: Path, answers: list[Answer], *, permissions: Permissions | None = None, **options: Any
) -> tuple[Any, list[StoredEvent]]:
    """Run a task with a check; return its report and the events, which replay."""
    journal = MemoryJournal()
    project = folder / "project"
    project.mkdir()
    model = ScriptedModel(answers)
    arguments: dict[str, Any] = {"check": CHECK, **options}
    async with Session(
        model=model,
        cwd=str(project),
        home=str(folder / "home"),
        environ={},
        journal=journal,
        permissions=permissions or Permissions(),
        sandbox="auto",
    ) as session:
        report = await session.task("Write code.txt.", **arguments)
    events = [event async for event in journal.read()]
    assert await replay(events) == events
    return report, events


def write(text: str) -> list[Answer]:
    return [[call("write", file_path="code.txt", content=text)], "written"]


async def test_a_task_reaches_its_goal_if_its_check_succeeds(tmp_path: Path) -> None:
    report, events = await run_task(tmp_path, write("good"))
    assert (report.reason, report.text) == (Reason.GOAL, "written")
    types = [type(event) for event in events]
    assert types.index(CheckStarted) < types.index(CheckFinished) < types.index(RunFinished)
    (check,) = [event for event in events if isinstance(event, CheckFinished)]
    assert (check.run, check.command, check.exit_code, check.output) == ("1", CHECK, 0, "good")
    assert not (tmp_path / "project/trace.txt").exists()


async def test_a_task_fails_with_the_output_of_its_check(tmp_path: Path) -> None:
    report, _ = await run_task(tmp_path, write("bad"))
    assert (report.reason, report.text) == (Reason.ERROR, "written")
    assert report.error.startswith(f"a check failed: {CHECK} (exit code 1, ")
    assert report.error.endswith(" s):\nbad")
    assert (tmp_path / "project/code.txt").read_text() == "bad"


async def test_a_check_that_needs_a_confirmation_does_not_run_without_one(tmp_path: Path) -> None:
    command = "touch trace.txt"
    rules = Permissions.of(ask=["Bash(touch *)"])
    report, _ = await run_task(tmp_path, ["done"], check=command, permissions=rules)
    assert report.ok
    shutil.rmtree(tmp_path / "project")
    report, events = await run_task(
        tmp_path, ["done"], check=command, confirm_check=True, permissions=rules
    )
    assert report.reason is Reason.ERROR
    assert report.error.startswith(f"the check {command!r} may not run: ")
    assert not [event for event in events if isinstance(event, CheckStarted)]


async def test_a_task_that_does_not_reach_its_goal_is_not_checked(tmp_path: Path) -> None:
    report, events = await run_task(tmp_path, ["", ""])
    assert report.error == "the model gave an empty answer twice"
    assert not [event for event in events if isinstance(event, CheckStarted)]


async def test_a_check_is_a_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="check"):
        await run_task(tmp_path, write("good"), check=3)
