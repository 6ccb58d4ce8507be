"""Random pairs of commands: what the approval of one covers runs in a tracer.

The files that it changes, and the programs that it starts, must be those that the judge allowed.
`make test` tries a few hundred commands, MUDROOM_LONG=1 twenty thousand; MUDROOM_SEED changes them.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mudroom._adapters.tools import make_builtin_tools
from mudroom._platform.protected_names import find_protected_component
from mudroom.permissions.approved_rules import ApprovedRules
from mudroom.permissions.program_table import FILELESS_PROGRAMS, READING_PROGRAMS
from mudroom.permissions.rules import Permissions

from ..long_form import count_examples

CASES = count_examples(600, 20_000)
SEED = int(os.environ.get("MUDROOM_SEED", "7"))
APPROVED = {"touch one": "touch", "mkdir one": "mkdir", "cp one two": "cp"}
"""Command that the user approves -> the program that the approval covers."""
WRITTEN = ("mv", "rm", "ln", "tee", "dd", "chmod", "install", "truncate", "gzip", "frobnicate")
"""Programs for which the user wrote a rule with a wildcard."""
WORDS = r"""
a b.txt src src/ src/c . .. ./a ../out {outside} $HOME/x ~/x link away away/x new new/ src/new
.envrc ./.envrc .git/hooks .git/hooks/pre-commit .git/hooks/ .GIT/x .env .e* .e*v .git/h*s *.txt
src/*.py s?c {a,.envrc} {src,.git}/x $x "$x" $y ${x}c $(echo .envrc) `echo a` '.envrc' ".env"rc
.en\vrc -t -tsrc -t.git --target-directory=.git --target-directory=src -T -r -R -a -f -p -m 755 -s
-S --suffix=rc -b -- -v -n of=.envrc of=new if=a +x --parents -D -d +evil @evil
"""
FRAMES = (
    "{0}",
    "{0}",
    "{0}; {1}",
    "{0} && {1}",
    "cd src && {0}",
    "cd .git/hooks && {0}",
    "cd $x && {0}",
    "cd .g*; {0}",
    "(cd src; {0}); {1}",
    "for f in a .envrc; do {0} $f; done",
    "ls -a | xargs {0}",
    "timeout 5 {0}",
    "bash -c '{0}'",
    "{0} > new",
    "{0} < a",
    "! {0}",
    "if true; then {0}; fi",
)
LISTED = {*APPROVED.values(), *WRITTEN, "bash", "timeout", "xargs"} | READING_PROGRAMS
CALLS = (
    "open,openat,creat,rename,renameat,renameat2,link,linkat,symlink,symlinkat,mkdir,mkdirat,"
    "unlink,unlinkat,rmdir,truncate,chmod,fchmodat,execve,chdir,%process"
)

pytestmark = [
    pytest.mark.timeout(10_800 if CASES > 1_000 else 120),
    pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace"),
]


class Tracer:
    """Small project in which commands run; it says what they change and start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.work = folder / "work"
        self.environ = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder / "home"),
            "LC_ALL": "C",
            "x": ".git/hooks",
            "y": "-t.git",
        }

    def make_project(self) -> None:
        for name in ("work", "outside", "home"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir()
        for name in ("src", ".git/hooks"):
            (self.work / name).mkdir(parents=True)
        for name in ("a", "b.txt", "src/c", "src/d.py", ".envrc", ".git/hooks/pre-commit", ".env"):
            (self.work / name).write_text("text\n")
        (self.work / "link").symlink_to(".git/hooks")
        (self.work / "away").symlink_to(self.folder / "outside")

    def run(self, command: str) -> tuple[set[str], set[str]]:
        """Return the files changed by a command, as absolute paths, and the programs started."""
        self.make_project()
        log = self.folder / "log"
        strace = ["strace", "-f", "-y", "-qq", "--seccomp-bpf", "-e", f"trace={CALLS}"]
        subprocess.run(
            [*strace, "-e", "signal=none", "-o", str(log), "bash", "-c", command],
            cwd=self.work,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=30,
            check=False,
        )
        return read_log(log.read_text(errors="replace"), str(self.work))


def read_log(text: str, folder: str) -> tuple[set[str], set[str]]:
    """Return the files changed and the programs started in a log of strace."""
    folders: dict[str, str] = {}
    changed: set[str] = set()
    started: set[str] = set()
    calls = [*join_lines(text)]
    parents = {
        match[1]: pid
        for pid, line in calls
        if (match := re.search(r"^(?:clone3?|v?fork)\(.*\) += (\d+)", line))
    }
    for pid, line in calls:
        cwd = folders.setdefault(pid, folders.get(parents.get(pid, ""), folder))
        call = re.match(r"(\w+)\((.*)\) += (\d+)", line)
        if call is None:
            continue
        name, arguments, _ = call.groups()
        first = re.search(r'"((?:[^"\\]|\\.)*)"', arguments)
        if name == "chdir" and first:
            folders[pid] = os.path.realpath(os.path.join(cwd, first[1]))
        elif name == "execve" and first:
            started.add(first[1].rpartition("/")[2])
        else:
            changed |= {*list_changed(name, arguments, cwd)}
    return changed, started


def join_lines(text: str) -> Iterator[tuple[str, str]]:
    """Yield the process and the text of each call, also of those that others interrupt."""
    waiting: dict[str, str] = {}
    for line in text.splitlines():
        pid, _, rest = line.partition(" ")
        rest = rest.lstrip()
        if rest.endswith("<unfinished ...>"):
            waiting[pid] = rest.removesuffix("<unfinished ...>")
            continue
        if rest.startswith("<... "):
            rest = waiting.pop(pid, "") + rest.partition("resumed>")[2]
        yield pid, rest


def list_changed(name: str, arguments: str, cwd: str) -> Iterator[str]:
    if name.startswith("open") and not re.search("O_WRONLY|O_RDWR", arguments):
        return
    found = re.findall(r'(?:(?:AT_FDCWD|\d+)<([^>]*)>, )?"((?:[^"\\]|\\.)*)"', arguments)
    if name.startswith(("symlink", "link")):
        found = found[1:]  # the first is what the link leads to
    for folder, path in found:
        absolute = os.path.join(folder or cwd, path)
        parent = os.path.realpath(os.path.dirname(absolute))
        yield os.path.join(parent, os.path.basename(absolute))


def make_command(chance: random.Random, programs: list[str]) -> str:
    def make_simple() -> str:
        words = [chance.choice(WORDS.split()) for _ in range(chance.choice((1, 1, 2, 2, 3)))]
        return " ".join([chance.choice(programs), *words])

    return chance.choice(FRAMES).format(make_simple(), make_simple())


def make_rules(tracer: Tracer, *written: str) -> ApprovedRules:
    permissions = Permissions.of(allow=[f"Bash({name}:*)" for name in (*written, "cd", "xargs")])
    return ApprovedRules(
        permissions,
        workspace=str(tracer.work),
        user_home=tracer.environ["HOME"],
        tools=make_builtin_tools(),
        tier=lambda: "off",
    )


def test_covered_commands_change_and_run_only_what_the_judge_allowed(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    tracer = Tracer(tmp_path)
    tracer.make_project()
    holes: list[str] = []
    covered = 0
    for _ in range(CASES):
        tracer.make_project()
        approved, name = chance.choice(list(APPROVED.items()))
        rules = make_rules(tracer, *chance.sample(WRITTEN, 3))
        rules.add(*rules.suggest("bash", {"command": approved}))
        programs = [name, name, *WRITTEN]
        command = make_command(chance, programs).replace("{outside}", str(tmp_path / "outside"))
        if rules.list_open_findings("bash", {"command": command}):
            continue
        covered += 1
        changed, started = tracer.run(command)
        beyond = started - LISTED - FILELESS_PROGRAMS
        is_written = any(other in command for other in WRITTEN)
        for path in changed - {"/dev/null", "/dev/tty"}:
            place = os.path.relpath(path, tracer.work)
            is_outside = place.startswith("../") and not is_written
            if find_protected_component(place) or is_outside:
                beyond.add(place)
        if beyond:
            holes.append(f"{command!r} after {approved!r}: {sorted(beyond)}")
    print(f"{CASES:,} commands, {covered:,} covered, {len(holes)} holes")
    assert not holes, "\n".join(holes)
    assert covered > CASES / 40, f"only {covered} of {CASES} were covered: the test says little"


def test_the_tracer_sees_what_is_changed_and_started(tmp_path: Path) -> None:
    tracer = Tracer(tmp_path)
    expected = {
        "touch .envrc": ".envrc",
        "cp a link": ".git/hooks/a",
        "mv a .git/hooks/pre-commit": ".git/hooks/pre-commit",
        "cd .git && touch x": ".git/x",
        "echo > away/x": "../outside/x",
        "ln -s a .envrc2": ".envrc2",
        "rm -r .git": ".git/hooks/pre-commit",
        "mkdir -p .git/new/deep": ".git/new",
        "chmod +x .envrc": ".envrc",
    }
    for command, path in expected.items():
        changed, started = tracer.run(command)
        assert path in {os.path.relpath(each, tracer.work) for each in changed}, (command, changed)
        assert "bash" in started
    assert "env" in tracer.run("env true")[1]
