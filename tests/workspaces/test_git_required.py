"""Machines without git, or with an old one: isolation is refused with the remedy, nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.workspaces.git_projects import make_repository, write_files

from mudroom import Agent, Isolation, Session, UsageError, WorkspaceKind
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
from mudroom._adapters.workspaces.isolated.workspaces import IsolatedWorkspaces
from mudroom._cli.main import run

SESSION = "0a1b2c3d-0000-4000-8000-000000000000"
REMEDY = "Install git 2.38 or later"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = make_repository(tmp_path / "project", {"a.txt": "a\n"})
    for name, folder in (("MUDROOM_HOME", "state"), ("HOME", "user"), ("XDG_CONFIG_HOME", "user")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    monkeypatch.chdir(project)
    monkeypatch.setattr("sys.stdin", None)
    return project


@pytest.fixture(params=["no git", "2.37.9"])
def reason(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Hide the program git, or put an old one in its place; return why it cannot be used."""
    programs = tmp_path / "programs"
    programs.mkdir()
    git = programs / "git"
    monkeypatch.setenv("PATH", str(programs))
    if request.param == "no git":
        return "git is not installed"
    git.write_text(f'#!/bin/sh\n[ "$1" = version ] && echo "git version {request.param}"\n')
    git.chmod(0o755)
    return f"git {request.param} is older than 2.38"


async def run_child(project: Path, **arguments: Any) -> tuple[str, tuple[str, ...]]:
    """Let a child write a file. Returns the result of its task, and the notices of the session."""

    def choose_answer(request: Request) -> Answer:
        if request.prompt == "child":
            return "Done." if request.turn else call("write", path="new.txt", content="new\n")
        return "All reported." if request.turn else call("task", prompt="child", **arguments)

    model = ScriptedModel(choose_answer)
    writer = Agent(name="writer", description="Changes code.", workspace=WorkspaceKind.ISOLATED)
    async with Session(model=model, cwd=str(project), agents=[writer]) as session:
        assert (await session.run("Go.")).ok
        last = next(each for each in model.requests if each.prompt == "Go." and each.results)
        return last.results[0].text, tuple(map(str, session.notices))


@pytest.mark.parametrize("arguments", [{"isolation": "isolated"}, {"agent": "writer"}])
async def test_a_child_that_asks_for_isolation_is_refused(
    project: Path, reason: str, arguments: dict[str, str]
) -> None:
    result, notices = await run_child(project, **arguments)
    assert f"isolated workspaces need git: {reason}" in result
    assert REMEDY in result
    assert not (project / "new.txt").exists()
    (notice,) = [each for each in notices if each.startswith("agent writer cannot run")]
    assert reason in notice and REMEDY in notice
    await run_child(project)  # one that shares the folder works
    assert (project / "new.txt").read_text() == "new\n"


async def test_a_session_that_isolates_is_refused_at_its_start(project: Path, reason: str) -> None:
    with pytest.raises(UsageError, match=f"need git: {reason}.*{REMEDY}"):
        async with Session(model="offline", cwd=str(project), isolation=Isolation(each_child=True)):
            pass


def test_the_command_line_refuses_to_isolate_and_says_what_is_missing(
    project: Path, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    prompt = ["--model", "offline", "-p", "Which files are here?"]
    assert run(["--isolate", *prompt]) == 2
    shown = capsys.readouterr()
    assert f"isolated workspaces need git: {reason}" in shown.err and REMEDY in shown.err
    assert "Traceback" not in shown.err
    assert shown.out == ""
    run(prompt)
    assert "need git" not in capsys.readouterr().err
    text = "---\nname: writer\ndescription: Changes code.\nisolation: worktree\n---\nWrite.\n"
    write_files(project.parent / "user", {".claude/agents/writer.md": text})
    run(prompt)
    error = capsys.readouterr().err
    assert "agent writer cannot run" in error and reason in error
    run(["doctor"])
    report = " ".join(capsys.readouterr().out.split())
    assert f"note isolated workspaces: they need git: {reason}" in report and REMEDY in report


@pytest.fixture
def kept(project: Path, tmp_path: Path) -> None:
    """Work that a run left while git was there."""
    home = tmp_path / "state"
    workspaces = IsolatedWorkspaces(str(home / "isolated" / SESSION), str(project), str(home))
    folder = workspaces.open("1.1.1", "", same_path=False)
    write_files(Path(folder.files.folder), {"a.txt": "changed\n"})
    workspaces.store_work("1.1.1")
    workspaces.remove("1.1.1")


@pytest.mark.usefixtures("kept")
def test_kept_work_is_not_hidden(
    project: Path, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ([], ["show", "0a1b2c3d/1.1.1"], ["apply", "0a1b2c3d/1.1.1"], ["overlap"]):
        assert run(["workspaces", *command]) != 0
        shown = capsys.readouterr()
        assert f"isolated workspaces need git: {reason}" in shown.err
        assert shown.out == "" and "Traceback" not in shown.err
    assert (project / "a.txt").read_text() == "a\n"
