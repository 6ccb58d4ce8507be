"""Random commands: those that are allowed run in the sandbox and in a tracer.

No program may run that no rule names. `make test` tries a few hundred commands, MUDROOM_LONG=1 a
hundred thousand; MUDROOM_SEED changes them.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mudroom._adapters.sandboxes.detect import find_bwrap, run_probes
from mudroom._adapters.tools import make_builtin_tools
from mudroom._adapters.tools.bash import BASH
from mudroom._core.agents import Mode
from mudroom.permissions.policy import RulePolicy
from mudroom.permissions.program_table import FILELESS_PROGRAMS, READING_PROGRAMS
from mudroom.permissions.rules import Permissions

CASES = 100_000 if os.environ.get("MUDROOM_LONG") else 300
BATCH = min(CASES, 1_000)
SEED = int(os.environ.get("MUDROOM_SEED", "5"))
RUNNER = Path(__file__).with_name("run_in_sandbox.py")
PIECES: dict[str, list[str]] = json.loads(
    Path(__file__).with_name("pieces.json").read_text("utf-8")
)
"""Pieces of commands. "allowed" programs have a rule for any arguments."""
LISTED = (
    {name.partition(" ")[0] for name in PIECES["allowed"]}
    | READING_PROGRAMS
    | FILELESS_PROGRAMS
    | {"time", "stdbuf", "bwrap"}
)
"""Programs that may run: named by a rule, known only to read, harmless wrappers, and bwrap."""
NOISE = "'\"\\$`(){};&|<>#\n\t !*?[]~=,\r\x0b\x85\u00a0e"

pytestmark = [
    pytest.mark.timeout(10_800 if CASES > 1_000 else 120),
    pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace"),
    pytest.mark.skipif(
        not run_probes(find_bwrap(os.environ, "/nonexistent")).tier,
        reason="needs a sandbox",
    ),
]


def simple(chance: random.Random) -> str:
    return " ".join(
        [
            chance.choice(PIECES["programs"]),
            *(chance.choice(PIECES["words"]) for _ in range(chance.choice((0, 1, 1, 2, 2, 3)))),
        ]
    )


def command(chance: random.Random) -> str:
    text = simple(chance)
    for _ in range(chance.choice((0, 1, 1, 2))):
        text = chance.choice(PIECES["frames"]).format(text, simple(chance))
    for _ in range(chance.choice((0, 0, 0, 1, 1, 2))):
        at = chance.randrange(len(text) + 1)
        text = text[:at] + chance.choice(NOISE) + text[at + chance.choice((0, 0, 1)) :]
    return text


class Tracer:
    """Runs commands in the sandbox and returns which programs each of them started."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.work, self.tier = folder, folder / "work", ""
        self.bin = folder / "bin"
        self.bin.mkdir()
        (folder / "home").mkdir()
        for name in ("evil", "mark"):
            (self.bin / name).write_text("#!/bin/true\n")
            (self.bin / name).chmod(0o755)

    def fresh(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir()
        shutil.copy(self.bin / "evil", self.work / "evil")
        (self.work / "b.txt").write_text("evil\na\n")
        (self.work / "a").write_text("evil a\n")
        (self.work / "-exec").write_text("")

    def started(self, commands: list[str]) -> list[list[str]]:
        """The programs that each command started, first the shell itself."""
        log = self.folder / "log"
        strace = [
            "strace",
            "-f",
            "--seccomp-bpf",
            "-qq",
            "-e",
            "trace=execve,execveat",
            "-e",
            "signal=none",
            "-o",
            str(log),
        ]
        ran = subprocess.run(
            [*strace, sys.executable, str(RUNNER), str(self.folder)],
            input=json.dumps(commands),
            capture_output=True,
            text=True,
            check=True,
            timeout=600,
        )
        self.tier = ran.stdout.strip()
        found: list[list[str]] = []
        for line in log.read_text(errors="replace").splitlines():
            program = re.search(r'execve(?:at)?\((?:AT_FDCWD, )?"([^"]*)"', line)
            if program is None or "ENOENT" in line:
                continue
            name = program[1].rpartition("/")[2]
            if name == "mark":
                found.append([])
            elif found:
                found[-1].append(name)
        return found


def judge(text: str, root: Path) -> Any:
    base_rules = Permissions.of(allow=[f"Bash({name}:*)" for name in PIECES["allowed"]])
    return RulePolicy(
        base_rules,
        workspace=str(root),
        user_home=str(root),
        tools=make_builtin_tools(),
        tier=lambda: "off",
    ).decide(BASH, {"command": text}, Mode.DEFAULT)


def test_allowed_commands_run_only_programs_that_rules_name(tmp_path: Path) -> None:
    chance, tracer = random.Random(SEED), Tracer(tmp_path)
    tried = allowed = 0
    holes: list[tuple[str, set[str]]] = []
    tracer.fresh()
    while tried < CASES:
        texts = [command(chance) for _ in range(BATCH)]
        tried += len(texts)
        passed = [text for text in texts if judge(text, tracer.work).verdict == "allow"]
        allowed += len(passed)
        tracer.fresh()
        for text, programs in zip(passed, tracer.started(passed), strict=True):
            if unlisted := {*programs} - LISTED:
                holes.append((text, unlisted))
        assert not (tracer.work / "out2").exists()
    print(
        f"{tried:,} commands, {allowed:,} allowed and run in tier {tracer.tier}, {len(holes)} holes"
    )
    assert not holes, "\n".join(f"{text!r} ran {programs}" for text, programs in holes)
    assert allowed > tried / 50, f"only {allowed} of {tried} were allowed: the test says little"


def test_the_tracer_sees_what_runs(tmp_path: Path) -> None:
    tracer = Tracer(tmp_path)
    tracer.fresh()
    ran = tracer.started(
        [
            "evil",
            "ls; ./evil",
            "find . -maxdepth 0 -exec evil {} +",
            "echo a",
            "$x",
            "awk 'BEGIN{system(\"evil\")}'",
        ]
    )
    assert ["evil" in programs for programs in ran] == [True, True, True, False, True, True]
    assert tracer.tier in ("full", "file")
