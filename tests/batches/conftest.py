"""A folder for batches, and the command that runs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mudroom._cli.main import run


class BatchStage:
    """Runs batches of the offline model in a folder of their own.

    The offline model answers "hi", and fails at other words.
    """

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.err = ""
        self.out = ""
        self._capsys = capsys

    def write(self, *lines: object, name: str = "in.jsonl") -> Path:
        path = self.folder / name
        path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        return path

    def run(self, *words: str, file: str = "in.jsonl") -> int:
        """Run `mudroom batch` and return the exit code."""
        return self.command(file, "-m", "offline", "--agent", "explore", *words)

    def command(self, *words: str) -> int:
        """Run `mudroom batch` with only these words."""
        code = run(["batch", *words])
        self.out, self.err = self._capsys.readouterr()
        return code

    def read(self, name: str = "in.results.jsonl") -> list[dict[str, Any]]:
        text = (self.folder / name).read_text()
        assert not text or text.endswith("\n")
        return [json.loads(line) for line in text.splitlines()]

    def read_reasons(self) -> dict[str, str]:
        results = self.read()
        reasons = {each["custom_id"]: each["reason"] for each in results}
        assert len(reasons) == len(results), "an id stands twice"
        return reasons


@pytest.fixture
def stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> BatchStage:
    monkeypatch.setenv("MUDROOM_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MUDROOM_OFFLINE_PACE", "100000")
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return BatchStage(folder, capsys)
