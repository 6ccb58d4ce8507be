"""`mudroom board`: one board per repository, changed by commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Run


def test_tasks_are_added_listed_and_completed(
    project: Path, call: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 'mudroom board add "SUBJECT"' in call("board")[1]
    assert call("board", "add", "Set up the project")[0] == 0
    (project / "src").mkdir()
    monkeypatch.chdir(project / "src")
    assert call("board", "add", "Write code", "-d", "In Rust.", "--after", "1")[0] == 0
    monkeypatch.chdir("/")
    assert call("-C", str(project), "board", "list")[1] == (
        "[ ] #1 Set up the project\n[ ] #2 Write code (waits for #1)\n(0/2 completed, 1 ready)\n"
    )
    monkeypatch.chdir(project)
    assert call("board", "done", "1")[1] == "#1 is done; ready now: #2\n"
    shown = "[ ] #2 Write code\ndepends on: #1\ndescription:\nIn Rust.\n"
    assert call("board", "show", "2")[1] == shown
    listed = json.loads(call("board", "list", "--json")[1])
    assert [task["status"] for task in listed] == ["completed", "pending"]
    assert call("board", "reopen", "1")[0] == 0
    assert call("board", "remove", "2", "1")[1] == "removed: #2, #1\n"
    assert call("board", "add", "next")[1] == "[ ] #3 next\n"


def test_metadata_is_given_as_key_and_value(call: Run) -> None:
    words = ["--metadata", "agent=coder", "--metadata", "priority=2"]
    assert call("board", "add", "one", *words)[0] == 0
    shown = '[ ] #1 one\nmetadata: {"agent": "coder", "priority": 2}\n'
    assert call("board", "show", "1")[1] == shown
    code, _, err = call("board", "add", "two", "--metadata", "agent")
    assert code == 2 and "no KEY=VALUE: 'agent'" in err
    code, _, err = call("board", "add", "two", "--metadata", "agent=3")
    assert code == 2 and "metadata.agent of a task is a text, not 3" in err


def test_task_files_are_exported_and_imported(call: Run) -> None:
    call("board", "add", "one")
    assert call("board", "export")[0] == 0
    code, _, err = call("board", "import")
    assert code == 2 and "has a task #1 already" in err
    call("board", "remove", "1")
    assert call("board", "import")[1].endswith("imported 1 task from .tasks\n")
    call("board", "remove", "1")
    assert "no tasks for task_1.json" in call("board", "export")[1]


@pytest.mark.parametrize(
    ("words", "text"), [(["show", "9"], "the board has no task #9"), (["add", " "], "it is blank")]
)
def test_wrong_usage_is_one_line(call: Run, words: list[str], text: str) -> None:
    code, _, err = call("board", *words)
    assert code == 2 and text in err
