"""Every guard is guarded: taken out of a copy of the source, at least one test fails. The short form takes out three,
MUDROOM_LONG=1 all of them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

LONG = bool(os.environ.get("MUDROOM_LONG"))
ROOT = Path(__file__).parents[2]
FAULTS, CANCEL, STALL, DISK = (f"tests/reliability/test_{name}.py" for name in ("known_faults", "cancel", "stall", "disk"))


class Guard(NamedTuple):
    """A guard: where it stands, its text, what is there without it, and the test that must then fail."""

    file: str
    text: str
    instead: str
    test: str
    only: str = ""


GUARDS = {
    "call ids are new (F3)": Guard("_engine/turn.py", "if all(ids) and", "if True or all(ids) and", FAULTS, "f3"),
    "circles end (F24)": Guard("_engine/loop.py", ">= STOP:", ">= 10**9:", FAULTS, "f24_the_same"),
    "one writer (S5)": Guard("journals/folder.py", "fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)", "pass", FAULTS, "f8"),
    "cut calls get a result (S7)": Guard(
        "_engine/ending.py", "barrier.close()\n    await _close_calls(ctx)\n", "barrier.close()\n", FAULTS, "test_f1_"
    ),
    "begun writes are waited for (S8)": Guard("_engine/changes.py", "await self._idle.wait()", "pass", CANCEL, "a_write_that"),
    "no write begins after the end (S8)": Guard("_engine/changes.py", "if self._closed:", "if False:", CANCEL, "too_late"),
    "an end is recorded whoever cancels (S10)": Guard(
        "_engine/ending.py", "await asyncio.wait((settling,))", "await settling", CANCEL, "a_cancel_while"
    ),
    "a tool's own cancel is its failure (F20)": Guard(
        "_engine/calls.py", "if (task := asyncio.current_task()) and task.cancelling():", "if True:", CANCEL, "f20"
    ),
    "a run has an end whatever is raised (F17)": Guard(
        "_engine/loop.py", "except Exception as unforeseen", "except ZeroDivisionError as unforeseen", FAULTS, "f17"
    ),
    "turns are counted (F20)": Guard(
        "_engine/loop.py", "if (limit := ctx.meter.exceeded(ctx.age)) is not None:", "if limit := None:", FAULTS, "f20"
    ),
    "children are counted (F22)": Guard("_core/budgets.py", "meter.children >= meter.budget.children", "False", FAULTS, "f22"),
    "silence ends (F16)": Guard("_engine/turn.py", "asyncio.timeout(SILENCE + PATIENCE)", "asyncio.timeout(10**6)", FAULTS, "f16"),
    "pings are life": Guard("models/_http.py", 'pieces = [Piece("", "")]', "pieces = []", STALL, "pings"),
    "commands run once (S3)": Guard(
        "_engine/recall.py", "if tool.effect is Effect.EFFECTFUL:", "if False:", "tests/reliability/test_crash.py", "at_a_point"
    ),
    "a refusal closes the gate for all (F21)": Guard(
        "models/_http.py",
        "self._gate.limited(sent, failure.wait or _FIRST_DELAY)",
        "pass",
        "tests/reliability/test_storm.py",
        "429",
    ),
    "commits are synced (S1)": Guard("journals/file.py", "synchronous = FULL", "synchronous = OFF", DISK, "power"),
    "records are checked (S6)": Guard("journals/sqlite.py", "or crc32(body) != crc", "or False", FAULTS, "f7"),
}
SHORT = ("call ids are new (F3)", "children are counted (F22)", "one writer (S5)")


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", GUARDS if LONG else SHORT)
def test_without_the_guard_a_test_fails(tmp_path: Path, name: str) -> None:
    guard = GUARDS[name]
    source = tmp_path / "src"
    shutil.copytree(ROOT / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
    file = source / "mudroom" / guard.file
    text = file.read_text()
    assert text.count(guard.text) >= 1, "the guard has gone, or reads differently now"
    file.write_text(text.replace(guard.text, guard.instead))
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MUDROOM", "PYTEST"))} | {"PYTHONPATH": str(source)}
    base = f"--basetemp={tmp_path / 'tests'}"
    words = [sys.executable, "-m", "pytest", "-n", "0", "-x", "-p", "no:cacheprovider", base, guard.test, "-k", guard.only]
    ran = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 1, f"no test misses it:\n{ran.stdout}{ran.stderr}"
