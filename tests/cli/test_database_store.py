"""The command line with sessions in a PostgreSQL database."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mudroom_postgres.store import PostgresStore

from .conftest import Run

Mudroom = Callable[..., str]
PROMPT = "What is this project?"


@pytest.fixture
def mudroom(call: Run, project: Path) -> Mudroom:
    """Return a function that runs a command, checks its exit code and returns its output."""
    (project / "README.md").write_text("# Barometer\n\nShows the pressure of the air.\n")

    def run(*words: str, code: int = 0) -> str:
        found, out, err = call(*words)
        assert found == code, out + err
        return out + err

    return run


def test_every_command_on_sessions_works_with_a_database(
    postgres_url: str, mudroom: Mudroom, project: Path
) -> None:
    store = ("--store", postgres_url)
    mudroom("-p", PROMPT, "-m", "offline", *store, "--name", "first look")
    assert not (project.parent / "state/sessions").exists()
    [row] = json.loads(mudroom("runs", "--json", *store))
    assert (row["name"], row["reason"]) == ("first look", "GOAL")
    assert "Barometer" in mudroom("show", *store)
    assert "Barometer" in mudroom("resume", *store)
    mudroom("-c", "-p", PROMPT, "-m", "offline", *store)
    mudroom("-r", "first look", "-p", PROMPT, "-m", "offline", *store)
    [row] = json.loads(mudroom("runs", "--json", *store))
    assert row["prompts"] == 3
    mudroom("rename", "first look", "air pressure", *store)
    mudroom("export", "air pressure", "--html", str(project / "page.html"), *store)
    assert "Barometer" in (project / "page.html").read_text("utf-8")
    mudroom("delete", "--yes", "air pressure", *store)
    assert json.loads(mudroom("runs", "--json", *store)) == []


def test_a_variable_and_a_file_name_the_database(
    postgres_url: str, mudroom: Mudroom, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUDROOM_STORE", postgres_url)
    mudroom("-p", PROMPT, "-m", "offline")
    assert len(asyncio.run(list_ids(postgres_url))) == 1
    assert "last 1 sessions OK" in mudroom("doctor")
    monkeypatch.delenv("MUDROOM_STORE")
    assert "No sessions" in mudroom("runs")
    mudroom("config", "set", "store", postgres_url)
    assert "project" in mudroom("runs")
    assert "Barometer" in mudroom("show")


def test_a_batch_is_kept_in_the_database(
    postgres_url: str, mudroom: Mudroom, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MUDROOM_STORE", postgres_url)
    (project / "in.jsonl").write_text(json.dumps(PROMPT) + "\n")
    for _ in range(2):  # the second one finds the session of the first
        assert "1 of 1 done" in mudroom("batch", "in.jsonl", "-m", "offline")
    assert len(asyncio.run(list_ids(postgres_url))) == 1
    assert "ended" in mudroom("batch", "status", "--out", "in.results.jsonl")


async def list_ids(url: str) -> list[str]:
    return [info.id for info in await PostgresStore(url).list()]


def test_a_password_is_not_shown(mudroom: Mudroom, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MUDROOM_STORE", "postgresql://me:hidden@127.0.0.1:1/work")
    for words, code in (
        (("config", "get", "store"), 0),
        (("doctor",), 1),
        (("-c", "-p", PROMPT), 1),
        (("journal", "check", "last"), 2),
    ):
        shown = mudroom(*words, code=code)
        assert "hidden" not in shown, words
        assert "Traceback" not in shown, words


def test_a_file_that_names_the_database_can_be_read_by_its_user_only(
    mudroom: Mudroom, project: Path
) -> None:
    (project.parent / "state").mkdir(0o755)
    mudroom("config", "set", "store", "postgresql://me:hidden@127.0.0.1:1/work")
    assert (project.parent / "state/config.toml").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "words", [("runs", "--store"), ("-p", PROMPT, "--store"), ("config", "set", "store")]
)
def test_an_address_that_is_none_is_refused(words: tuple[str, ...], mudroom: Mudroom) -> None:
    shown = mudroom(*words, "sqlite:///x", code=2)
    assert "this is not the address of a PostgreSQL database" in shown
    assert "Write postgresql://USER@HOST:PORT/DATABASE" in shown


@pytest.mark.parametrize("variable", ["", "PGPASSFILE"])
def test_a_password_file_that_others_can_read_is_told_once(
    postgres_url: str, tmp_path: Path, variable: str
) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "MUDROOM_STORE": postgres_url}
    environ["MUDROOM_HOME"] = str(tmp_path / "home")

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "mudroom", *words],
            cwd=tmp_path,
            env=environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout + done.stderr

    passwords = tmp_path / (".pgpass" if not variable else "my passwords")
    passwords.write_text("*:*:*:*:secret\n")
    if variable:
        environ[variable] = str(passwords)
    passwords.chmod(0o644)
    shown = run("-p", PROMPT, "-m", "offline")
    assert "UserWarning" not in shown
    assert shown.count("password file") == 1
    [line] = [line for line in shown.splitlines() if "password file" in line]
    assert line.endswith(f"other users can read it. Run: chmod 0600 {shlex.quote(str(passwords))}")
    passwords.chmod(0o600)
    assert "password file" not in run("runs")
    passwords.chmod(0o644)
    assert "password file" not in run("runs", "--store", f"{postgres_url}?password=x")
