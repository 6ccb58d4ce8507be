"""Arguments of slash commands in shell commands: to a real shell, they are never syntax."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from mudroom._adapters.agent_files.prompt_template import PromptTemplate, ShellText

SHELL = shutil.which("bash") or "/bin/sh"
HOSTILE = [
    "plain words here",
    "x; touch MARK",
    "x' ; touch MARK; '",
    'x" ; touch MARK; "',
    "$(touch MARK)",
    "`touch MARK`",
    "a\ntouch MARK",
    "a & touch MARK #",
    "a | touch MARK",
    "\\",
    "> MARK",
    "$HOME ~ * {a,b} !x",
    "a'\"b",
]
COMMANDS = [
    "printf '%s|' $ARGUMENTS",
    "printf '%s|' \"$ARGUMENTS\"",
    "printf '%s|' '$ARGUMENTS'",
    "printf '%s|' $1 \"$1\" '$1'",
    "printf '%s|' \"it's $ARGUMENTS\"",
    "printf '%s|' 'say \"$ARGUMENTS\"'",
    "printf '%s|' a\\'$ARGUMENTS",
    "printf '%s|' \"$(printf %s $ARGUMENTS)\"",
    "printf '%s|' \"$(printf %s '$ARGUMENTS')\"",
    "printf x # it's $ARGUMENTS",
    "printf x # see $ARGUMENTS\nprintf y",
    "cat <<END\n$ARGUMENTS\nEND",
    "printf '%s|' $'a\\'$ARGUMENTS'",
    "printf '%s|' `printf %s $ARGUMENTS`",
    "printf '%s|' $(( 1 )) $ARGUMENTS",
]
IN_GEMINI = [
    command.replace("$ARGUMENTS", "{{args}}") for command in COMMANDS if "$1" not in command
]


def fill(command: str, arguments: str, form: str) -> ShellText:
    if form == "gemini":
        text, path = f"!{{{command}}}", "/f/c.toml"
    else:
        text, path = f"```!\n{command}\n```", ""
    template = PromptTemplate(text=text, folder="/f", first_number=1, gemini_path=path)
    pieces = template.fill(arguments)
    return next(piece for piece in pieces if isinstance(piece, ShellText))


def run_shell(command: str, folder: Path) -> str:
    done = subprocess.run(
        [SHELL, "-c", command], cwd=folder, capture_output=True, text=True, check=False
    )
    return done.stdout


@pytest.mark.parametrize("form", ["claude", "gemini"])
def test_no_argument_becomes_syntax(tmp_path: Path, form: str) -> None:
    filled = 0
    for command in IN_GEMINI if form == "gemini" else COMMANDS:
        for arguments in HOSTILE:
            piece = fill(command, arguments, form)
            if not piece.problem:
                run_shell(piece.command, tmp_path)
                assert not list(tmp_path.iterdir()), (command, arguments, piece.command)
                filled += 1
    assert filled > 70


@pytest.mark.parametrize("arguments", HOSTILE)
def test_a_quoted_argument_arrives_as_it_was_typed(tmp_path: Path, arguments: str) -> None:
    for mark in "'\"":
        piece = fill(f"printf '%s|' {mark}$ARGUMENTS{mark}", arguments, "claude")
        assert not piece.problem
        assert run_shell(piece.command, tmp_path) == f"{arguments}|"


def test_words_stay_words_and_harmless_ones_stay_readable(tmp_path: Path) -> None:
    assert fill("git log $ARGUMENTS", "--oneline -5 src/a.py", "claude").command == (
        "git log --oneline -5 src/a.py"
    )
    piece = fill("printf '%s|' $ARGUMENTS", "'one two' three", "claude")
    assert run_shell(piece.command, tmp_path) == "one two|three|"
    assert fill("awk '{print $1}' a", "", "claude").command == "awk '{print $1}' a"
    assert fill("ls $ARGUMENTS", "", "claude").command == "ls "
    assert fill("x $(ls $ARGUMENTS)", "src/a.py", "claude").command == "x $(ls src/a.py)"
    assert fill("x $(ls $ARGUMENTS)", "a;b", "claude").problem
