"""Completion in real shells, changes of settings, and a first AGENTS.md."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shlex
import shutil
import stat
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from mudroom._cli.actions.init_project import write_starter_files
from mudroom._cli.commands._command_line import ALL_COMMANDS
from mudroom._cli.commands.root import root_command
from mudroom._cli.main import run
from mudroom._session.agent_catalog import KNOWN_TOOLS
from mudroom._session.config import load_settings, write_setting
from mudroom.errors import UsageError


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Return a folder with a program `mudroom` in it."""
    path = tmp_path / "bin" / "mudroom"
    path.parent.mkdir()
    path.write_text(f'#!/bin/sh\nexec {sys.executable} -m mudroom "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path.parent


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["mudroom", "co"], ["completion", "config"]),
        (["mudroom", "agents", "s"], ["show"]),
        (["mudroom", "--sandbox", "f"], ["full", "file"]),
        (["mudroom", "--max-t"], ["--max-turns", "--max-tokens"]),
        (["mudroom", "completion", ""], ["bash", "zsh", "fish"]),
        (["mudroom", "'say two words'", "ru"], ["runs"]),
    ],
)
def test_completion_in_a_real_bash(program: Path, words: list[str], offered: list[str]) -> None:
    typed = " ".join(shlex.quote(word) for word in words)
    script = (
        'eval "$(mudroom completion bash)"; '
        f"COMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _mudroom_completion mudroom; "
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    process = subprocess.run(
        ["bash", "--norc", "-c", script],
        env={"PATH": f"{program}:{os.environ['PATH']}", "HOME": str(program)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.split() == offered


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("mudroom co", ["completion", "config"]),
        ("mudroom agents s", ["show"]),
        ("mudroom --sandbox f", ["file", "full"]),
        ("mudroom --max-t", ["--max-tokens", "--max-turns"]),
        ("mudroom 'say two words' ru", ["runs"]),
        ("mudroom -C {folder}/b", ["{folder}/bin/"]),
    ],
)
def test_completion_in_a_real_fish(program: Path, line: str, offered: list[str]) -> None:
    typed = line.format(folder=program.parent)
    script = f'mudroom completion fish | source; complete -C "{typed}"'
    env = {"PATH": f"{program}:{os.environ['PATH']}", "HOME": str(program)}
    process = subprocess.run(
        ["fish", "--no-config", "-c", script], env=env, capture_output=True, text=True, check=True
    )
    assert [row.split("\t")[0] for row in process.stdout.splitlines()] == [
        word.format(folder=program.parent) for word in offered
    ]
    if "ru" in line:
        assert "List recorded sessions, newest first" in process.stdout, (
            "a help text may contain commas"
        )


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_completion_in_a_real_zsh(program: Path) -> None:
    env = {"PATH": f"{program}:{os.environ['PATH']}", "HOME": str(program), "TERM": "xterm"}
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe("zsh", ["zsh", "-f", "-i"], env)
    try:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 120, 0, 0))
        type_and_expect(
            terminal, "PS1='> '; eval \"$(mudroom completion zsh)\"; echo rea''dy\n", "ready"
        )
        type_and_expect(terminal, "mudroom ag\tsh\t", "mudroom agents show")
        type_and_expect(terminal, "\x15mudroom co\t", "Print the completion script of a shell")
        type_and_expect(terminal, "\x15mudroom --max-tu\t", "--max-turns")
        type_and_expect(terminal, "\x15mudroom 'say two words' ru\t", "runs")
        type_and_expect(terminal, f"\x15mudroom -C {program.parent}/b\t", "/bin")
    finally:
        os.close(terminal)
        os.waitpid(pid, 0)


def type_and_expect(terminal: int, keys: str, answer: str) -> None:
    """Type keys and wait until an answer is on the screen."""
    os.write(terminal, keys.encode())
    seen = ""
    while answer not in extract_visible_text(seen):
        assert select.select([terminal], [], [], 20)[0], f"{answer} did not come: {seen!r}"
        seen += os.read(terminal, 65536).decode("utf-8", "replace")


def extract_visible_text(seen: str) -> str:
    """Return the text without escape sequences and overtyped characters."""
    return re.sub(r".\x08", "", re.sub(r"\x1b\[[?0-9;]*[A-Za-z]|[\r\x07]", "", seen))


def test_settings_are_set_and_removed_and_other_lines_stay(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    write_setting(path, "model", 'we"ird\\:ü')
    write_setting(path, "max-turns", "5")
    path.write_text("# mine\n" + path.read_text())
    write_setting(path, "allow_net", "true")
    write_setting(path, "max_turns", "7")
    environ = {"MUDROOM_HOME": str(tmp_path)}
    settings = load_settings(cwd=str(tmp_path), environ=environ, flags={})
    assert (settings.model, settings.max_turns, settings.allow_net) == ('we"ird\\:ü', 7, True)
    assert "# mine" in path.read_text() and settings.get_origin("max_turns") == f"{path}:3"
    write_setting(path, "model", "")
    assert (
        load_settings(cwd=str(tmp_path), environ=environ, flags={}).get_origin("model") == "default"
    )


def test_setting_a_value_keeps_the_spelling_and_the_comment_of_its_line(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('# limits\nmax-turns = 5  # enough\n\nmodel = "offline"\n')
    write_setting(path, "max_turns", "7")
    assert path.read_text() == '# limits\nmax-turns = 7  # enough\n\nmodel = "offline"\n'
    write_setting(path, "max_turns", "")
    assert path.read_text() == '# limits\n\nmodel = "offline"\n'


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_turns", "many"), ("colour", "never"), ("color", "blue"), ("allow_net", "perhaps")],
)
def test_a_wrong_setting_is_refused_and_the_file_is_unchanged(
    tmp_path: Path, name: str, value: str
) -> None:
    path = tmp_path / "config.toml"
    write_setting(path, "model", "offline")
    with pytest.raises(UsageError, match=name):
        write_setting(path, name, value)
    assert path.read_text() == 'model = "offline"\n' and [
        file.name for file in tmp_path.iterdir()
    ] == ["config.toml"]


def test_init_writes_usable_files_and_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("mine")
    assert list(write_starter_files(str(tmp_path))) == [
        "AGENTS.md exists already; it was not changed.",
        ".agents/agents/reviewer.md written.",
    ]
    assert (tmp_path / "AGENTS.md").read_text() == "mine"
    from mudroom._adapters.agent_files import load_agent_files

    loaded = load_agent_files(str(tmp_path), user_home="", tools=KNOWN_TOOLS)
    assert [agent.name for agent in loaded.agents] == ["reviewer"] and not loaded.diagnostics
    assert all("not changed" in line for line in write_starter_files(str(tmp_path)))


def test_the_short_help_fits_on_a_screen_and_names_only_real_flags_and_commands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outputs: set[str] = set()
    for arguments in (["-h"], ["--help"], ["help"]):
        assert run(arguments) == 0
        outputs.add(capsys.readouterr().out)
    (out,) = outputs
    lines = out.splitlines()
    assert len(lines) <= 24 and max(map(len, lines)) <= 80
    assert out.index("mudroom -p") < out.index("--print") < out.index("sessions")
    named = {
        word
        for line in lines
        if line.startswith(("sessions", "tasks", "settings"))
        for word in line.split()[1:]
    }
    assert named == set(ALL_COMMANDS) - {"help"}
    flags = {option for parameter in root_command.params for option in parameter.opts}
    assert set(re.findall(r"(?<=  )-{1,2}[a-zA-Z][a-z-]*|(?<=, )--[a-z-]+", out)) <= flags
