"""Copies of a workspace: what is in them, and that nothing of them remains."""

from __future__ import annotations

import os
import resource
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.workspaces.remote import RemoteWorkspace

from mudroom import Agent, Budget, Report, Session
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._adapters.workspaces import copy
from mudroom._adapters.workspaces.copy import make_temporary_copy
from mudroom._adapters.workspaces.shared import SharedWorkspace
from mudroom._core.agents import WorkspaceKind, WorkspaceSpec
from mudroom._core.ports import Environment, FileInfo
from mudroom._session.environments import SessionEnvironments
from mudroom.errors import UsageError, WorkspaceError


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "main.py").write_text("print(1)\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    os.chmod(folder / "run.sh", 0o755)
    (folder / ".gitignore").write_text("node_modules/\n")
    (folder / "node_modules").mkdir()
    (folder / "node_modules" / "x.js").write_text("")
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    os.symlink("/etc/passwd", folder / "users")
    return folder


def list_files(folder: str) -> list[str]:
    return [info.path for info in SharedWorkspace(folder).walk(ignored=True)]


@pytest.mark.parametrize("is_local", [True, False])
def test_a_copy_holds_the_files_that_git_does_not_ignore(source: Path, is_local: bool) -> None:
    shared = SharedWorkspace(str(source))
    workspace = shared if is_local else RemoteWorkspace(shared)
    with make_temporary_copy(workspace, threading.Event()) as (folder, _):
        assert list_files(folder) == [".gitignore", "run.sh", "src/main.py"]
        assert sorted(os.listdir(folder)) == [".gitignore", "run.sh", "src"]
        assert os.stat(f"{folder}/run.sh").st_mode & 0o777 == 0o755
        old = os.stat(source / "run.sh").st_mtime
        assert os.stat(f"{folder}/run.sh").st_mtime == pytest.approx(old)
        assert os.path.basename(folder) == "project"
    assert not os.path.exists(folder)


def test_a_change_of_the_copy_changes_nothing_else(source: Path) -> None:
    with make_temporary_copy(SharedWorkspace(str(source)), threading.Event()) as (folder, _):
        workspace = SharedWorkspace(folder, copied_from=str(source))
        workspace.write(f"{source}/src/main.py", b"changed\n")
        assert workspace.read("src/main.py", 0, 100) == b"changed\n"
        assert (source / "src" / "main.py").read_text() == "print(1)\n"


@pytest.mark.parametrize(("limit", "value"), [("MAX_FILES", 2), ("MAX_TOTAL_BYTES", 20)])
def test_a_folder_that_is_too_large_is_refused(
    source: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(copy, limit, value)
    with (
        pytest.raises(WorkspaceError, match="too large for a copy"),
        make_temporary_copy(SharedWorkspace(str(source)), threading.Event()),
    ):
        pass


def test_copying_stops_on_request(source: Path) -> None:
    stop = threading.Event()
    stop.set()
    with (
        pytest.raises(WorkspaceError, match="was stopped"),
        make_temporary_copy(SharedWorkspace(str(source)), stop),
    ):
        pass


async def run_children(
    source: Path, agents: list[Agent], answer: Callable[[Request], Answer], *, depth: int = 1
) -> tuple[Report, ScriptedModel]:
    model = ScriptedModel(answer)
    async with Session(
        model=model,
        cwd=str(source),
        journal="memory",
        environ={},
        agents=agents,
        sandbox="off",
        budget=Budget(depth=depth),
    ) as session:
        return await session.run("Go."), model


COPIER = Agent(
    name="copier",
    description="Tries things.",
    instructions="Try it.",
    workspace=WorkspaceKind.COPY,
)


async def test_a_child_with_a_copy_changes_only_its_copy(source: Path) -> None:
    folders: list[str] = []

    def answer(request: Request) -> Answer:
        if request.prompt == "try":
            steps = [
                [call("write", file_path="src/main.py", content="tried\n")],
                [call("bash", command="pwd; cat src/main.py; echo new > made")],
                [call("read", file_path=f"{source}/src/main.py")],
                "Tried.",
            ]
            if request.turn == 2:
                folders.append(request.results[0].text.splitlines()[0])
            return steps[request.turn]
        return "Done." if request.turn else [call("task", prompt="try", agent="copier")]

    report, model = await run_children(source, [COPIER], answer)
    (folder,) = folders
    texts = [result.text for request in model.requests for result in request.results]
    assert f"{folder}\ntried" in texts
    assert "1\ttried" in texts
    assert "Folder: " + folder in next(r.system for r in model.requests if r.prompt == "try")
    assert (source / "src" / "main.py").read_text() == "print(1)\n"
    assert not (source / "made").exists()
    assert not os.path.exists(folder)
    assert report.files_changed == ()
    assert any("worked in a copy of the folder, which is removed" in text for text in texts)


async def test_a_grandchild_shares_the_copy_of_its_parent(source: Path) -> None:
    def answer(request: Request) -> Answer:
        if request.prompt == "inner":
            return "Done." if request.turn else [call("write", file_path="inner", content="x")]
        if request.prompt == "try":
            steps = [
                [call("task", prompt="inner", agent="general")],
                [call("glob", pattern="inner")],
                "Tried.",
            ]
            return steps[request.turn]
        return "Done." if request.turn else [call("task", prompt="try", agent="copier")]

    _, model = await run_children(source, [COPIER], answer, depth=2)
    texts = [result.text for request in model.requests for result in request.results]
    assert "created inner (1 line)" in texts
    assert "inner" in texts
    assert not (source / "inner").exists()


async def test_a_session_without_copies_reports_the_reason(source: Path) -> None:
    unused: Any = None
    shared = Environment(
        spec=WorkspaceSpec(),
        workspace=SharedWorkspace(str(source)),
        sandbox=unused,
        policy=unused,
    )
    environments = SessionEnvironments(shared)
    async with environments.open(WorkspaceSpec()) as environment:
        assert environment is shared
    with pytest.raises(UsageError, match="cannot copy its folder"):
        async with environments.open(WorkspaceSpec(WorkspaceKind.COPY)):
            pass


def answer_with_copier(request: Request) -> Answer:
    if request.prompt == "try":
        return "Tried."
    return "Done." if request.turn else [call("task", prompt="try", agent="copier")]


class Unreadable(SharedWorkspace):
    """A workspace in which `secret` cannot be opened and `locked` cannot be listed.

    Root ignores the modes of files, so the tests cannot use them.
    """

    def open(self, path: str) -> int:
        if path == "secret":
            raise WorkspaceError("secret cannot be opened: permission denied")
        return super().open(path)

    def walk(
        self, path: str = ".", *, ignored: bool = False, skipped: list[str] | None = None
    ) -> Iterator[FileInfo]:
        for info in super().walk(path, ignored=ignored, skipped=skipped):
            if not info.path.startswith("locked/"):
                yield info
            elif skipped is not None:
                skipped.append("locked")


def test_files_that_a_copy_lacks_are_named(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy, "MAX_FILE_BYTES", 20)
    (source / "large").write_text("x" * 21)
    (source / "secret").write_text("x")
    (source / "locked").mkdir()
    (source / "locked" / "file").touch()
    with make_temporary_copy(Unreadable(str(source)), threading.Event()) as (folder, missing):
        assert list_files(folder) == [".gitignore", "run.sh", "src/main.py"]
    assert missing == (
        "large (larger than 0 MiB), secret (cannot be read), locked (cannot be listed)"
    )


async def test_a_child_learns_which_files_its_copy_lacks_if_any(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copy, "MAX_FILE_BYTES", 1 << 20)
    with open(source / "large", "wb") as file:
        file.truncate((1 << 20) + 1)
    _, model = await run_children(source, [COPIER], answer_with_copier)
    request = next(request for request in model.requests if request.prompt == "try")
    text = "Your copy of the folder lacks: large (larger than 1 MiB)."
    assert text in str(request.messages)
    (source / "large").unlink()
    _, model = await run_children(source, [COPIER], answer_with_copier)
    request = next(request for request in model.requests if request.prompt == "try")
    assert "Your copy of the folder" not in str(request.messages)


async def test_a_copy_that_breaks_off_is_an_error_and_leaves_nothing(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    (source / "z").write_bytes(b"x" * 2_000_000)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A limit on the size of files makes a real write fail half-way, as a full disk does.
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        report, model = await run_children(source, [COPIER], answer_with_copier)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    result = model.requests[-1].results[0]
    assert result.error and report.ok
    assert f"{source} cannot be copied to {scratch}: File too large" in result.text
    assert "worked in a copy" not in result.text
    assert not any(request.prompt == "try" for request in model.requests)
    assert not list(scratch.iterdir())
