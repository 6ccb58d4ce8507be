"""The command line with sessions in a PostgreSQL database."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from mudroom_postgres.store import PostgresStore

PROMPT = "What is this project?"


class Commands:
    """mudroom in a small project, with a state folder of its own."""

    def __init__(self, folder: Path, **environ: str) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        self.project.mkdir()
        (self.project / "README.md").write_text("# Barometer\n\nShows the pressure of the air.\n")
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        self.environ = kept | {"MUDROOM_HOME": str(self.home), "HOME": str(folder)} | environ

    def run(self, *words: str, code: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "mudroom", *words],
            cwd=self.project,
            env=self.environ,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr


def test_every_command_on_sessions_works_with_a_database(postgres_url: str, tmp_path: Path) -> None:
    commands = Commands(tmp_path)
    store = ("--store", postgres_url)
    commands.run("-p", PROMPT, "-m", "offline", *store, "--name", "first look")
    assert not (commands.home / "sessions").exists()
    [row] = json.loads(commands.run("runs", "--json", *store))
    assert (row["name"], row["reason"]) == ("first look", "GOAL")
    assert "Barometer" in commands.run("show", *store)
    assert "Barometer" in commands.run("resume", *store)
    commands.run("-c", "-p", PROMPT, "-m", "offline", *store)
    commands.run("-r", "first look", "-p", PROMPT, "-m", "offline", *store)
    [row] = json.loads(commands.run("runs", "--json", *store))
    assert row["prompts"] == 3
    commands.run("rename", "first look", "air pressure", *store)
    commands.run("export", "air pressure", "--html", str(tmp_path / "page.html"), *store)
    assert "Barometer" in (tmp_path / "page.html").read_text("utf-8")
    commands.run("delete", "--yes", "air pressure", *store)
    assert json.loads(commands.run("runs", "--json", *store)) == []


def test_a_variable_and_a_file_name_the_database(postgres_url: str, tmp_path: Path) -> None:
    commands = Commands(tmp_path, MUDROOM_STORE=postgres_url)
    commands.run("-p", PROMPT, "-m", "offline")
    assert len(asyncio.run(list_ids(postgres_url, tmp_path))) == 1
    assert "last 1 sessions OK" in commands.run("doctor")
    del commands.environ["MUDROOM_STORE"]
    assert "No sessions" in commands.run("runs")
    commands.run("config", "set", "store", postgres_url)
    assert "project" in commands.run("runs")
    assert "Barometer" in commands.run("show")


def test_a_batch_is_kept_in_the_database(postgres_url: str, tmp_path: Path) -> None:
    commands = Commands(tmp_path, MUDROOM_STORE=postgres_url)
    (commands.project / "in.jsonl").write_text(json.dumps(PROMPT) + "\n")
    for _ in range(2):  # the second one finds the session of the first
        assert "1 of 1 done" in commands.run("batch", "in.jsonl", "-m", "offline")
    assert len(asyncio.run(list_ids(postgres_url, tmp_path))) == 1
    assert "ended" in commands.run("batch", "status", "--out", "in.results.jsonl")


async def list_ids(url: str, home: Path) -> list[str]:
    return [info.id for info in await PostgresStore(url).list()]


def test_a_password_is_not_shown(tmp_path: Path) -> None:
    commands = Commands(tmp_path, MUDROOM_STORE="postgresql://me:hidden@127.0.0.1:1/work")
    for words, code in (
        (("config", "get", "store"), 0),
        (("doctor",), 1),
        (("-c", "-p", PROMPT), 1),
        (("journal", "check", "last"), 2),
    ):
        shown = commands.run(*words, code=code)
        assert "hidden" not in shown, words
        assert "Traceback" not in shown, words


def test_a_file_that_names_the_database_can_be_read_by_its_user_only(tmp_path: Path) -> None:
    commands = Commands(tmp_path)
    commands.home.mkdir(0o755)
    commands.run("config", "set", "store", "postgresql://me:hidden@127.0.0.1:1/work")
    assert (commands.home / "config.toml").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "words", [("runs", "--store"), ("-p", PROMPT, "--store"), ("config", "set", "store")]
)
def test_an_address_that_is_none_is_refused(words: tuple[str, ...], tmp_path: Path) -> None:
    shown = Commands(tmp_path).run(*words, "sqlite:///x", code=2)
    assert "this is not the address of a PostgreSQL database" in shown
    assert "Write postgresql://USER@HOST:PORT/DATABASE" in shown


@pytest.mark.parametrize("variable", ["", "PGPASSFILE"])
def test_a_password_file_that_others_can_read_is_told_once(
    postgres_url: str, tmp_path: Path, variable: str
) -> None:
    commands = Commands(tmp_path, MUDROOM_STORE=postgres_url)
    passwords = tmp_path / (".pgpass" if not variable else "my passwords")
    passwords.write_text("*:*:*:*:secret\n")
    if variable:
        commands.environ[variable] = str(passwords)
    passwords.chmod(0o644)
    shown = commands.run("-p", PROMPT, "-m", "offline")
    assert "UserWarning" not in shown
    assert shown.count("password file") == 1
    [line] = [line for line in shown.splitlines() if "password file" in line]
    assert line.endswith(f"other users can read it. Run: chmod 0600 {shlex.quote(str(passwords))}")
    passwords.chmod(0o600)
    assert "password file" not in commands.run("runs")
    passwords.chmod(0o644)
    assert "password file" not in commands.run("runs", "--store", f"{postgres_url}?password=x")
