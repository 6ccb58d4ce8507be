"""An undo brings back the permissions of files, whoever changed them, and leaves the user's own."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.workspaces.change_tool import make_change_tool
from tests.workspaces.git_projects import make_repository, run_git

from mudroom import Session, ToolContext
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._cli.interactive.slash_commands.files import diff, restore_files
from mudroom._projections.differences import FileChanges

FIRST = {
    "plain": 0o644,
    "program": 0o755,
    "edited": 0o644,
    "edited-program": 0o755,
    "removed": 0o755,
    "private": 0o700,
    "secret": 0o600,
    "made-link": 0o755,
    "made-again": 0o755,
    "kept": 0o755,
}
"""Permissions of the files before the prompt. Each holds its name."""


def change_own(folder: Path) -> None:
    """Change files as a child does with commands in its own copy of the folder."""
    (folder / "plain").chmod(0o755)
    (folder / "program").chmod(0o644)
    for name, mode in {"edited": 0o755, "edited-program": 0o644, "made-again": 0o644}.items():
        (folder / name).unlink()
        (folder / name).write_text("new")
        (folder / name).chmod(mode)
    for name in ("removed", "private", "secret", "made-link"):
        (folder / name).unlink()
    (folder / "made-link").symlink_to("kept")
    (folder / "kept").write_text("new")


def change_by_tools(context: ToolContext) -> None:
    """Change files as tools of the session do, in the folder of the user."""
    files = context.workspace
    files.write("plain", b"plain", mode=0o755)
    files.write("program", b"program", mode=0o644)
    files.write("edited", b"new", mode=0o755)
    files.write("edited-program", b"new", mode=0o644)
    for name in ("removed", "private", "secret", "made-link", "made-again"):
        files.remove(name)
    files.write("made-link", b"kept", mode=stat.S_IFLNK)
    files.write("made-again", b"new")
    files.write("kept", b"new")


def describe(folder: Path) -> dict[str, tuple[str, int] | None]:
    """Return the content and the permissions of each file, None if it is gone."""
    return {name: _describe(folder / name) for name in FIRST}


def _describe(path: Path) -> tuple[str, int] | None:
    if path.is_symlink():
        return f"-> {os.readlink(path)}", 0
    return (path.read_text(), stat.S_IMODE(path.stat().st_mode)) if path.exists() else None


SHOWN = {
    "plain: now executable",
    "program: no longer executable",
    "edited (+1 -1), now executable",
    "edited-program (+1 -1), no longer executable",
    "made-again (+1 -1), no longer executable",
}
"""What `/diff` says about execute bits."""


async def show_differences(session: Session, changes: FileChanges) -> list[str]:
    """Return the lines that `/diff` shows."""
    rows: list[Any] = []

    def write_lines(*lines: object) -> None:
        rows.extend(lines)

    scrollback = SimpleNamespace(columns=lambda: 100, write_lines=write_lines)
    conversation: Any = SimpleNamespace(
        file_changes=changes, session=session, ui=SimpleNamespace(scrollback=scrollback)
    )
    await diff(conversation, "")
    return ["".join(text for text, _ in row) for row in rows]


async def change_and_restore(
    folder: Path, who: str, meanwhile: Callable[[Path], object]
) -> tuple[FileChanges, Path, str]:
    """Let tools or a child change the files, then the user, then restore them."""
    project = make_repository(folder / "project", {})
    for name, mode in FIRST.items():
        (project / name).write_text(name)
        (project / name).chmod(mode)
    run_git(project, "add", "-A")
    run_git(project, "commit", "--quiet", "-m", "all")
    is_child = who == "child"

    def act(context: ToolContext) -> None:
        if is_child:
            change_own(Path(context.workspace.root))
        else:
            change_by_tools(context)

    def answer(request: Request) -> Answer:
        if request.turn:
            return "done"
        starts_child = is_child and request.prompt == "go"
        task = call("task", prompt="CHILD", isolation="isolated")
        return [task if starts_child else call("change")]

    changes = FileChanges()
    options: dict[str, Any] = {"home": str(folder / "home"), "environ": {}, "sandbox": "off"}
    options |= {"tools": [make_change_tool(act)]}
    async with Session(model=ScriptedModel(answer), cwd=str(project), **options) as session:
        session.watch(changes.apply)
        await session.run("go")
        shown = await show_differences(session, changes)
        assert {line for line in shown if "executable" in line} == SHOWN
        meanwhile(project)
        outcome = restore_files(session, changes.list_changes(), [])
    return changes, project, outcome


@pytest.mark.parametrize("who", ["tools", "child"])
async def test_an_undo_restores_permissions_with_and_without_contents(
    tmp_path: Path, who: str
) -> None:
    landed: dict[str, tuple[str, int] | None] = {}
    changes, project, outcome = await change_and_restore(
        tmp_path, who, lambda project: landed.update(describe(project))
    )
    assert landed["plain"] == ("plain", 0o755)
    assert landed["program"] == ("program", 0o644)
    assert landed["removed"] is None
    assert landed["made-link"] == ("-> kept", 0)
    assert describe(project) == {name: (name, mode) for name, mode in FIRST.items()}
    assert "Not restored" not in outcome
    became = {change.path: change.mode_change for change in changes.list_changes()}
    assert {name for name, change in became.items() if change} == {"plain", "edited"}
    lost = {name for name, change in became.items() if change is False}
    assert lost == {"program", "edited-program", "made-again"}


@pytest.mark.parametrize("who", ["tools", "child"])
async def test_an_undo_leaves_what_the_user_changed_since(tmp_path: Path, who: str) -> None:
    def change(project: Path) -> None:
        (project / "plain").chmod(0o644)  # as it was at first
        (project / "edited").chmod(0o600)
        (project / "kept").chmod(0o644)
        (project / "removed").write_text("the user's")

    _, project, outcome = await change_and_restore(tmp_path, who, change)
    found = describe(project)
    assert found["plain"] == ("plain", 0o644)
    assert found["edited"] == ("edited", 0o600)
    assert found["kept"] == ("kept", 0o644)
    assert found["removed"] == ("the user's", 0o644)
    assert found["program"] == ("program", 0o755)
    assert "Not restored, changed since or not kept: removed." in outcome


async def test_an_undo_keeps_hard_links_and_permissions_beside_the_execute_bit(
    tmp_path: Path,
) -> None:
    def change(project: Path) -> None:
        (project / "kept").chmod(0o700)
        os.link(project / "kept", project / "linked")

    _, project, _ = await change_and_restore(tmp_path, "tools", change)
    assert _describe(project / "kept") == _describe(project / "linked") == ("kept", 0o700)


async def test_permissions_that_a_command_changed_after_a_write_are_restored(
    tmp_path: Path,
) -> None:
    """A write and a later `chmod` of the same file are undone together."""
    (tmp_path / "project").mkdir()
    script = tmp_path / "project/script"
    script.write_text("old")
    script.chmod(0o644)
    calls = [call("write", file_path="script", content="new")]
    changes = FileChanges()
    steps: list[Answer] = [
        [call("read", file_path="script")],
        calls,
        [call("bash", command="chmod +x script")],
        "done",
    ]
    async with Session(
        model=ScriptedModel(steps),
        cwd=str(tmp_path / "project"),
        home=str(tmp_path / "home"),
        environ={"PATH": os.environ["PATH"]},
        sandbox="off",
    ) as session:
        session.watch(changes.apply)
        await session.run("go")
        assert _describe(script) == ("new", 0o755)
        restore_files(session, changes.list_changes(), [])
    assert _describe(script) == ("old", 0o644)
