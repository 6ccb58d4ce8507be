"""Every safeguard is tested: without it, in a copy of the source, at least one test fails.

The short form removes three safeguards, MUDROOM_LONG=1 all of them.
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
FAULTS, CANCEL, STALL, DISK, ORDER, PREFIXES = (
    f"tests/reliability/test_{name}.py"
    for name in ("known_faults", "cancel", "stall", "disk", "order", "prefixes")
)
SENDABLE, LIMITS, CALLS, CIRCLES = (
    f"tests/engine/test_{name}.py"
    for name in ("normalize", "limits", "tool_calls", "loop_detection")
)
JOURNAL, FOLDER, GATE, EXPORT = (
    "tests/journals/test_sqlite.py",
    "tests/journals/test_folder.py",
    "tests/models/test_rate_limit.py",
    "tests/journeys/test_export.py",
)


class Guard(NamedTuple):
    """A guard.

    Where it stands, its text, what is there without it, and the test that must then fail.
    """

    file: str
    text: str
    instead: str
    test: str
    only: str = ""


GUARDS = {
    "call ids are new (F3)": Guard(
        "_engine/conversation.py", "if all(ids) and", "if True or all(ids) and", FAULTS, "f3"
    ),
    "circles end (F24)": Guard("_engine/loop.py", ">= STOP:", ">= 10**9:", FAULTS, "f24_the_same"),
    "one writer (S5)": Guard(
        "journals/sqlite/store.py",
        "fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)",
        "pass",
        FAULTS,
        "f8",
    ),
    "cut calls get a result (S7)": Guard(
        "_engine/finish.py",
        "barrier.close()\n    await _close_calls(ctx)\n",
        "barrier.close()\n",
        FAULTS,
        "test_f1_",
    ),
    "begun writes are waited for (S8)": Guard(
        "_engine/file_writes.py", "await self._idle.wait()", "pass", CANCEL, "a_write_that"
    ),
    "no write begins after the end (S8)": Guard(
        "_engine/file_writes.py", "if self._closed:", "if False:", CANCEL, "too_late"
    ),
    "an end is recorded whoever cancels (S10)": Guard(
        "_engine/finish.py",
        "await asyncio.wait((settling,))",
        "await settling",
        CANCEL,
        "a_cancel_while",
    ),
    "a tool's own cancel is its failure (F20)": Guard(
        "_engine/tool_calls.py",
        "if (task := asyncio.current_task()) and task.cancelling():",
        "if True:",
        CANCEL,
        "f20",
    ),
    "a run has an end whatever is raised (F17)": Guard(
        "_engine/loop.py",
        "except Exception as unforeseen",
        "except ZeroDivisionError as unforeseen",
        FAULTS,
        "f17",
    ),
    "turns are counted (F20)": Guard(
        "_engine/loop.py",
        "if (limit := ctx.meter.exceeded(ctx.age)) is not None:",
        "if limit := None:",
        FAULTS,
        "f20",
    ),
    "children are counted (F22)": Guard(
        "_engine/meters.py", "self.children >= most", "False", FAULTS, "f22"
    ),
    "silence ends (F16)": Guard(
        "_engine/model_call.py",
        "asyncio.timeout(SILENCE + PATIENCE)",
        "asyncio.timeout(10**6)",
        FAULTS,
        "f16",
    ),
    "pings are life": Guard(
        "models/_http.py", 'pieces = [Piece("", "")]', "pieces = []", STALL, "pings"
    ),
    "commands run once (S3)": Guard(
        "_engine/resume.py",
        "if tool.effect is Effect.EFFECTFUL:",
        "if False:",
        "tests/reliability/test_crash.py",
        "at_a_point",
    ),
    "a refusal closes the gate for all (F21)": Guard(
        "models/_http.py",
        "self._gate.limited(sent, failure.wait or _FIRST_DELAY)",
        "pass",
        "tests/reliability/test_storm.py",
        "429",
    ),
    "commits are synced (S1)": Guard(
        "journals/sqlite/schema.py", "synchronous = FULL", "synchronous = OFF", DISK, "power"
    ),
    "an answer is stored before its calls (S2)": Guard(
        "_engine/run_context.py",
        "[*self._unsaved, *events], [*self._unshown, *events]",
        "[*events, *self._unsaved], [*events]",
        ORDER,
        "s1_s2",
    ),
    "an intent is stored before its act (S1)": Guard(
        "_engine/tool_calls.py",
        "await ctx.record(ctx.event(CallStarted, call=ready.call))",
        "ctx.note(ctx.event(CallStarted, call=ready.call))",
        ORDER,
        "s1_s2",
    ),
    "a result is stored before it is sent (S1)": Guard(
        "_engine/tool_calls.py", "await ctx.record(finished)", "ctx.note(finished)", ORDER, "s1_s2"
    ),
    "a write that was done is not done again (S3)": Guard(
        "_engine/resume.py", "if found == change.after:", "if False:", ORDER, "s3"
    ),
    "a write that was not done is done (S3)": Guard(
        "_engine/resume.py", "if found == change.before:", "if False:", ORDER, "s3"
    ),
    "what somebody else wrote stays (S3)": Guard(
        "_engine/resume.py", "if found == change.before:", "if True:", ORDER, "s3"
    ),
    "what a dead write left is swept (S3)": Guard(
        "_engine/resume.py", "ctx.parts.workspace.sweep(change.path)", "pass", ORDER, "s3"
    ),
    "finished children do not run again (S4)": Guard(
        "workers/local.py", "if report := finished(past):", "if report := None:", PREFIXES
    ),
    "what dead children spent counts (S9)": Guard(
        "_engine/resume.py", "ctx.meter.inherit(", "str(", PREFIXES, "count_at_every"
    ),
    "the clock goes on (S9)": Guard(
        "_engine/resume.py", "ctx.began -= _age", "ctx.began -= 0 * _age", PREFIXES, "time_it_had"
    ),
    "a child's time goes on (S9)": Guard(
        "workers/local.py", "meter.budget = brief.budget", "pass", PREFIXES, "time_it_had"
    ),
    "what a child gets is set aside": Guard(
        "_core/budgets.py", "self._carved.add(child)", "pass", LIMITS, "set_aside"
    ),
    "what a child leaves comes back": Guard(
        "_core/budgets.py", "self.parent._carved.discard(self)", "pass", LIMITS, "set_aside"
    ),
    "tokens bind all above": Guard(
        "_core/budgets.py", "meter.below += usage", "pass", LIMITS, "descendants"
    ),
    "nine tenths are told": Guard("_engine/loop.py", "ctx.warn()", "pass", LIMITS, "nine_tenths"),
    "a limit lands softly": Guard(
        "_engine/finish.py",
        "if not summary and not ctx.hurried and",
        "if False and",
        LIMITS,
        "one_turn_without",
    ),
    "no call runs in the grace turn": Guard(
        "_engine/loop.py", "while ctx.grace is None:", "while True:", PREFIXES, "s10"
    ),
    "the clock stops for a person": Guard(
        "_engine/tool_calls.py", "with ctx.meter.paused():", "if True:", CALLS, "a_person_decides"
    ),
    "two calls in turn are a circle (F24)": Guard(
        "_engine/loop_detection.py",
        "max(self._repeats(1), self._repeats(2))",
        "self._repeats(1)",
        CIRCLES,
        "a_circle",
    ),
    "a circle is told first (F24)": Guard(
        "_engine/loop.py", "if count % WARN == 0:", "if False:", CIRCLES, "told"
    ),
    "polling is no circle": Guard(
        "_engine/loop_detection.py", ", hash(results[call.id].text))", ")", FAULTS, "polling"
    ),
    "a call without a result gets one (S7)": Guard(
        "_engine/normalize.py",
        "for was, call in owed)\n",
        "for was, call in owed if given.get(was))\n",
        SENDABLE,
    ),
    "empty blocks are not sent (S7)": Guard(
        "_engine/normalize.py", "and _says(block)]", "]", SENDABLE
    ),
    "ids are used once (S7)": Guard(
        "_engine/normalize.py",
        'in ids:\n                new += "_"',
        'in ():\n                new += "_"',
        SENDABLE,
    ),
    "a stream that was cut is no answer (F9)": Guard(
        "models/anthropic.py", "raise Cut", "pass", "tests/models/test_anthropic.py", "cut_at_every"
    ),
    "a burst waits for its first answers (F21)": Guard(
        "models/_rate_limit.py", "or self._crowded:", "or False:", GATE, "no_storm"
    ),
    "a rate grows by new answers only (F21)": Guard(
        "models/_rate_limit.py",
        "if self._rate and request.sent >= self._changed and",
        "if self._rate and",
        GATE,
        "no_storm",
    ),
    "a newer journal is left alone (S6)": Guard(
        "journals/sqlite/schema.py", "if schema > SCHEMA:", "if False:", JOURNAL, "newer"
    ),
    "a torn tail is told (S6)": Guard(
        "journals/sqlite/journal.py",
        "(CUT_OFF,) if cut_off else ()",
        "()",
        "tests/journals/test_repair.py",
        "torn",
    ),
    "a gap is damage (S6)": Guard(
        "journals/sqlite/journal.py", "if seq != expected:", "if False:", JOURNAL, "damage"
    ),
    "the unborn are swept": Guard(
        "journals/sqlite/schema.py", "    sweep_unborn(path)\n", "", FOLDER, "swept"
    ),
    "exports hold no secret": Guard(
        "cli/actions/export.py", "return redact(value)", "return value", EXPORT, "as_it_is"
    ),
    "what a sibling writes is not swept": Guard(
        "workspaces/shared.py",
        " and not _in_work(name)",
        "",
        "tests/reliability/test_unfinished.py",
        "sweep",
    ),
    "records are checked (S6)": Guard(
        "journals/sqlite/journal.py", "or crc32(body) != crc", "or False", FAULTS, "f7"
    ),
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
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MUDROOM", "PYTEST"))
    } | {"PYTHONPATH": str(source)}
    base = f"--basetemp={tmp_path / 'tests'}"
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "0",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        base,
        guard.test,
        "-k",
        guard.only,
    ]
    ran = subprocess.run(
        words, cwd=ROOT, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert ran.returncode == 1, f"no test misses it:\n{ran.stdout}{ran.stderr}"
