"""A project in which commands run, in the process of the test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mudroom._cli.main import run

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory; home and state of the user are beside it."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("MUDROOM_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("sys.stdin", None)
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    monkeypatch.chdir(project)
    return project


@pytest.fixture
def call(project: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs a command; it returns exit code, stdout and stderr."""

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(list(arguments))
        out, err = capsys.readouterr()
        return code, out, err

    return call
