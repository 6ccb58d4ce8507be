"""Every kind of request with the name of a folder: it looks there, or it is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from tests.offline.conftest import Ask
from tests.offline.test_questions import CODE

from mudroom_offline.catalog import load_data
from mudroom_offline.requests import parse_prompt

IN_A_FOLDER = {
    "branch": "which branch are we on",
    "last_commit": "what is the last commit",
    "commit_count": "how many commits are there",
    "history": "show the recent commits",
    "changes": "what are the uncommitted changes",
    "authors": "who are the authors",
    "remote": "what is the git remote",
    "largest": "what is the largest file",
    "tags": "which git tags exist",
    "definitions": "list the functions",
    "symbol": "what does `load_settings` do",
    "show": "show a.py",
}


@pytest.mark.parametrize("kind", IN_A_FOLDER)
async def test_a_command_looks_in_the_folder_that_is_named_or_nowhere(ask: Ask, kind: str) -> None:
    commands = {
        row["name"]: row["command"] for row in load_data("intents")["intent"] if "command" in row
    }
    assert IN_A_FOLDER.keys() == commands.keys()
    prompt = f"{IN_A_FOLDER[kind]} in the src folder?"
    requests, left = parse_prompt(prompt)
    assert not left and [(x.kind, x.folder) for x in requests] == [(kind, "src")]
    report = await ask(CODE, prompt)
    if "FILES" in commands[kind]:
        assert "-- src" in report.text.partition("\n")[0] or "not a git repository" in report.error
    else:
        assert "answers for the whole repository, not for `src/` alone" in report.error


NAMES_A_PLACE = {
    "count": "how many files are there",
    "list": "list all files",
    "find": "where is `load_settings` defined",
    "summarise": "summarise all files",
    "tests": "which testing framework is used",
    "stack": "what is the tech stack",
    "description": "what is the purpose of the project",
    "licence": "which licence is there",
    "version": "what version is it",
    "requires": "which python version is required",
    "run_tests": "how do I run the tests",
    "install": "how do I install it",
    "build": "how do I build it",
    "entry_point": "what is the entry point",
}


@pytest.mark.parametrize("kind", NAMES_A_PLACE)
async def test_an_answer_about_a_folder_names_it(ask: Ask, kind: str) -> None:
    prompt = f"{NAMES_A_PLACE[kind]} in the src folder?"
    requests, left = parse_prompt(prompt)
    assert not left and [(x.kind, x.folder) for x in requests] == [(kind, "src")]
    report = await ask(CODE, prompt)
    assert report.ok and "`src/`" in report.text
    assert "lib/" not in report.text


def test_every_kind_of_request_is_asked_about_a_folder() -> None:
    kinds = {row["name"] for row in load_data("intents")["intent"]} - {"help"}
    assert kinds == {*IN_A_FOLDER, *NAMES_A_PLACE}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    subprocess.run(["git", "init", "-q", tmp_path / "tree"], check=True)
    return tmp_path / "tree"


@pytest.mark.usefixtures("repository")
@pytest.mark.parametrize("kind", ["largest", "definitions", "symbol", "show"])
async def test_a_folder_that_is_not_there_has_no_answer(ask: Ask, kind: str) -> None:
    report = await ask(CODE, f"{IN_A_FOLDER[kind]} in the nowhere folder?")
    assert not report.ok and "nowhere" in report.error
