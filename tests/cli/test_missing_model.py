"""Commands without a key: a user gets the offline model and is told, a service does not start."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

NO_MODEL = "no model: no API key and no local server found"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Of a user without any key."""
    return {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"}


def start(
    tmp_path: Path, environ: dict[str, str], *words: str, stdin: str = ""
) -> subprocess.CompletedProcess[str]:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "in.jsonl").write_text('"hi"\n')
    return subprocess.run(
        [sys.executable, "-m", "mudroom", *words],
        cwd=folder,
        env=environ,
        input=stdin,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    "words", ["serve --listen 127.0.0.1:0", "mcp serve", "batch in.jsonl", "board run"]
)
def test_what_works_for_others_does_not_start(
    tmp_path: Path, environ: dict[str, str], words: str
) -> None:
    done = start(tmp_path, environ, *words.split())
    assert (done.returncode, done.stdout) == (2, "")
    error = " ".join(done.stderr.split())
    assert NO_MODEL in error and "ANTHROPIC_API_KEY" in error and 'The model "offline"' in error
    assert not (tmp_path / "project/in.results.jsonl").exists()


def test_a_program_with_an_agent_sdk_gets_an_error(tmp_path: Path, environ: dict[str, str]) -> None:
    streams = ("--input-format", "stream-json", "--output-format", "stream-json", "--verbose")
    prompt = {"type": "user", "message": {"role": "user", "content": "hi"}}
    done = start(tmp_path, environ, *streams, stdin=json.dumps(prompt) + "\n")
    assert done.returncode != 0
    assert NO_MODEL in " ".join((done.stdout + done.stderr).split())
    assert "offline model" not in done.stdout


def test_a_user_gets_the_offline_model_and_is_told(tmp_path: Path, environ: dict[str, str]) -> None:
    done = start(tmp_path, environ, "-p", "help")
    assert done.returncode == 0
    assert "using the offline model" in " ".join(done.stderr.split())
