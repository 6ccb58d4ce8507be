"""A user who saves a file all the time keeps the work of children out only while it lasts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.workspaces.git_projects import make_repository
from tests.workspaces.test_isolated_children import get_results, run_children, run_command

from mudroom._adapters.workspaces.isolated.workspaces import IsolatedWorkspaces
from mudroom._adapters.workspaces.shared import SharedWorkspace
from mudroom._engine.changes.merged_files import wait_until_quiet
from mudroom._session import build
from mudroom.testing import FakeClock


class SavingUser(FakeClock):
    """A user who saves a file before each sleep of the program ends, until a time."""

    def __init__(self, save: Callable[[], object], until: float) -> None:
        super().__init__()
        self._save = save
        self._until = until

    def save(self) -> None:
        if self.monotonic() < self._until:
            self._save()

    async def sleep(self, seconds: float) -> None:
        self.save()
        await super().sleep(seconds)


@pytest.mark.parametrize(("until", "expected"), [(0.0, 1.0), (3.0, 4.0), (60.0, 10.0)])
async def test_the_wait_ends_a_second_after_the_last_save_or_after_ten(
    tmp_path: Path, until: float, expected: float
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("0\n")

    def save() -> None:
        path.write_text(path.read_text() + "more\n")

    clock = SavingUser(save, until)
    await wait_until_quiet(clock, SharedWorkspace(str(tmp_path)), "a.txt")
    assert clock.monotonic() == pytest.approx(expected, abs=0.11)


@pytest.mark.parametrize("stops", [True, False])
async def test_children_land_when_the_user_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, stops: bool
) -> None:
    lines = [f"line {number}\n\n\n" for number in range(12)]
    project = make_repository(tmp_path / "project", {"a.txt": "".join(lines)})
    path = project / "a.txt"
    saves: list[str] = []

    def save() -> None:
        """Save as an editor does: the user's own line differs each time."""
        _, rest = path.read_text().split("\n", 1)
        saves.append(f"typed {len(saves)}")
        path.write_text(f"{saves[-1]}\n{rest}")

    user = SavingUser(save, 5.0 if stops else 1e9)
    plan_merge = IsolatedWorkspaces.plan_merge

    def plan_and_save(self: IsolatedWorkspaces, *arguments: Any, **options: Any) -> Any:
        plan = plan_merge(self, *arguments, **options)
        user.save()
        return plan

    monkeypatch.setattr(IsolatedWorkspaces, "plan_merge", plan_and_save)
    monkeypatch.setattr(build, "SystemClock", lambda: user)
    children = {
        f"child {number}": run_command(f"sed -i 's/^line {number}$/by {number}/' a.txt")
        for number in (3, 6, 9)
    }
    _, model = await run_children(project, children, sandbox="off")
    text = path.read_text()
    assert text.startswith(f"{saves[-1]}\n"), "a save of the user was overwritten"
    landed = [number for number in (3, 6, 9) if f"by {number}\n" in text]
    assert landed == ([3, 6, 9] if stops else [])
    for result in get_results(model):
        assert ("are in your files now" if stops else "(changed-meanwhile)") in result
