"""`mudroom board`: one board per repository, changed by commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mudroom._cli.main import run


@pytest.fixture
def project(project: Path) -> Path:
    (project / "src").mkdir()
    return project


def test_tasks_are_added_listed_and_completed(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["board"]) == 0
    assert 'mudroom board add "SUBJECT"' in capsys.readouterr().out
    assert run(["board", "add", "Set up the project"]) == 0
    monkeypatch.chdir(project / "src")
    assert run(["board", "add", "Write code", "-d", "In Rust.", "--after", "1"]) == 0
    monkeypatch.chdir("/")
    assert run(["-C", str(project), "board", "list"]) == 0
    out = capsys.readouterr().out
    assert out.endswith(
        "[ ] #1 Set up the project\n[ ] #2 Write code (waits for #1)\n(0/2 completed, 1 ready)\n"
    )
    monkeypatch.chdir(project)
    assert run(["board", "done", "1"]) == 0
    assert capsys.readouterr().out == "#1 is done; ready now: #2\n"
    assert run(["board", "show", "2"]) == 0
    assert capsys.readouterr().out == (
        "[ ] #2 Write code\ndepends on: #1\ndescription:\nIn Rust.\n"
    )
    assert run(["board", "list", "--json"]) == 0
    assert [task["status"] for task in json.loads(capsys.readouterr().out)] == [
        "completed",
        "pending",
    ]
    assert run(["board", "reopen", "1"]) == 0
    assert run(["board", "remove", "2", "1"]) == 0
    assert run(["board", "add", "next"]) == 0
    assert capsys.readouterr().out.endswith("removed: #2, #1\n[ ] #3 next\n")


def test_metadata_is_given_as_key_and_value(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--metadata", "agent=coder", "--metadata", "priority=2"]
    assert run(["board", "add", "one", *words]) == 0
    assert run(["board", "show", "1"]) == 0
    out = capsys.readouterr().out
    assert out.endswith('[ ] #1 one\nmetadata: {"agent": "coder", "priority": 2}\n')
    assert run(["board", "add", "two", "--metadata", "agent"]) == 2
    assert "no KEY=VALUE: 'agent'" in capsys.readouterr().err
    assert run(["board", "add", "two", "--metadata", "agent=3"]) == 2
    assert "metadata.agent of a task is a text, not 3" in capsys.readouterr().err


def test_task_files_are_exported_and_imported(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["board", "add", "one"])
    assert run(["board", "export"]) == 0
    assert run(["board", "import"]) == 2
    assert "has a task #1 already" in capsys.readouterr().err
    run(["board", "remove", "1"])
    assert run(["board", "import"]) == 0
    assert capsys.readouterr().out.endswith("imported 1 task from .tasks\n")
    run(["board", "remove", "1"])
    assert run(["board", "export"]) == 0
    assert "no tasks for task_1.json" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "text"), [(["show", "9"], "the board has no task #9"), (["add", " "], "it is blank")]
)
def test_wrong_usage_is_one_line(
    project: Path, words: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["board", *words]) == 2
    assert text in capsys.readouterr().err
