"""Without a sandbox, commands that only read run no program that the folder names."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from mudroom._adapters.models.scripted import call
from mudroom._core.agents import Mode
from mudroom.permissions.program_table import READING_PROGRAMS
from mudroom.permissions.rules import Permissions

from .conftest import Play, RuleJudge

FOLDER_COMMANDS = (
    "git status",
    "git log --oneline",
    "git -P diff HEAD~1",
    "git rev-parse HEAD",
    "timeout 5 git status",
    "bash -c 'git status'",
    "ls | xargs git log",
    "echo $(git rev-parse HEAD)",
    "python3 --version",
    "node --version",
    "npm --version",
    "cargo --version",
    "go --version",
    "ruby --version",
)


@pytest.mark.parametrize("command", FOLDER_COMMANDS)
def test_a_reading_command_that_obeys_the_folder_is_not_taken_for_reading(
    judge_call: RuleJudge, command: str
) -> None:
    for tier in ("off", "ask", "refuse", ""):
        for mode, verdict in (("default", "ask"), ("dontAsk", "deny"), ("plan", "deny")):
            assert judge_call.bash(command, mode=mode, tier=tier) == verdict
        rules = ["Bash(npm test)"]
        assert judge_call.bash(command, allow=rules, can_ask=False, tier=tier) == "ask"
    for tier in ("full", "file"):
        if "xargs" not in command:
            for mode in ("default", "dontAsk", "plan"):
                assert judge_call.bash(command, mode=mode, tier=tier) == "allow"


def test_the_reason_names_the_rule_that_allows_it(judge_call: RuleJudge) -> None:
    decision = judge_call("bash", command="git status", mode="dontAsk")
    assert decision.why == (
        "without a sandbox, git may run programs that files of this folder name; "
        "a rule such as Bash(git status) allows it, and this mode asks no questions"
    )
    for rule in ("Bash(git status)", "Bash(git status:*)", "Bash(git:*)", "Bash"):
        assert judge_call.bash("git status", allow=[rule], mode="dontAsk") == "allow"


def test_commands_that_no_file_of_the_folder_can_change_need_no_rule(
    judge_call: RuleJudge,
) -> None:
    for command in ("git --version", "make --version", "rg x", "jq . a", "file a", "ls src"):
        for mode in ("default", "dontAsk", "plan"):
            assert judge_call.bash(command, mode=mode) == "allow", command


@pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
@pytest.mark.parametrize("setting", ["core.fsmonitor", "filter.x.clean", "diff.x.textconv"])
async def test_git_runs_no_program_of_a_repository_without_a_rule(play: Play, setting: str) -> None:
    marker = play.folder / "MARK"
    make_repository(play.folder, setting, marker)
    script = [
        [call("bash", command="git status"), call("bash", command="git diff")],
        [call("bash", command="git show HEAD")],
        "Done.",
    ]
    for mode in (Mode.DONT_ASK, Mode.PLAN):
        await play(script, permissions=Permissions(mode=mode))
        assert not marker.exists()
    permissions = Permissions.of(allow=["Bash(git status)", "Bash(git diff)", "Bash(git show:*)"])
    await play(script, permissions=permissions)
    assert marker.exists(), "the repository would run the program"


def make_repository(folder: Path, setting: str, marker: Path) -> None:
    script = folder.parent / "evil"
    script.write_text(f"#!/bin/sh\ntouch {marker}\ncat\n")
    script.chmod(0o755)
    (folder / ".gitattributes").write_text("* filter=x diff=x\n")
    (folder / "a").write_text("one\n")
    environ = {**os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    for arguments in (
        "init -q .",
        "add -A",
        "-c user.email=a -c user.name=n commit -qm x",
        f"config {setting} {script}",
    ):
        subprocess.run(["git", *arguments.split()], cwd=folder, env=environ, check=True)
    (folder / "a").write_text("two\n")
    os.utime(folder / "a", (1, 1))


READING = """
cat a; head a; tail a; wc a; pwd; whoami; id; ls -la; du .; df .; cut -c1 a; tr a b < a; nl a; rev a
tac a; paste a; comm a a; diff a b; cmp a b; md5sum a; sha1sum a; sha256sum a; sha512sum a; cksum a
stat a; uname -a; basename a; dirname a; realpath a; readlink a; column a; expand a; unexpand a
fold a; od a; strings a; seq 3; grep x a; egrep x a; fgrep x a; rg x; jq . a.json; which ls; type ls
cd src; sort a; find . -name a; tree; file a; date; sed -n p a; git --version; make --version
command -v ls; test -f a
"""


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_reading_programs_run_nothing_of_a_hostile_folder(
    judge_call: RuleJudge, tmp_path: Path
) -> None:
    folder = judge_call.root
    plant_programs(folder)
    commands = [text.strip() for text in re.split(r"[;\n]", READING) if text.strip()]
    assert {text.split()[0] for text in commands} >= READING_PROGRAMS
    for text in commands:
        assert judge_call.bash(text, mode="plan") == "allow", text
    log = tmp_path / "log"
    script = "\n".join(f"({text}) </dev/null" for text in commands)
    strace = ["strace", "-f", "-qq", "-e", "trace=execve", "-o", str(log)]
    subprocess.run(
        [*strace, "bash", "-c", script],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(tmp_path / "home")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=60,
        check=False,
    )
    programs = re.findall(r'execve\("([^"]*)"', log.read_text(errors="replace"))
    assert len(programs) > 40
    assert [path for path in programs if not path.startswith(("/usr/", "/bin/"))] == []


def plant_programs(folder: Path) -> None:
    """Write files that programs might take for settings or plugins."""
    evil = folder / "evil"
    evil.write_text(f"#!/bin/sh\ntouch {folder}/MARK\n")
    for name in ("ls", "cat", "rg", "git", "less", "pager", "gzip", "pr"):
        shutil.copy(evil, folder / name)
        (folder / name).chmod(0o755)
    planted = {
        ".ripgreprc": "--pre=./evil\n",
        ".rgignore": "x\n",
        ".jq": 'def x: "y";\n',
        "a": "x\n",
        "b": "y\n",
        "a.json": "{}",
        ".magic": "0 string x x\n",
        "magic.mgc": "x",
        ".bashrc": "./evil\n",
        ".inputrc": "x",
        "Makefile": "$(shell ./evil)\n",
        ".dir_colors": "x",
        ".lesskey": "x",
        "sed": "x",
    }
    for name, text in planted.items():
        (folder / name).write_text(text)
