"""Figures of long sessions and of many sessions."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from .processes import SHORT_RUNS, Bench
from .recorded_sessions import write_deep_session, write_long_session
from .rounds import compare, measure_in_turn
from .rows import Row

_LONG = "ffffffff-0000-4000-8000-000000000000"
_DEEP = "eeeeeeee-0000-4000-8000-000000000000"
_SHORT = "dddddddd-0000-4000-8000-000000000000"
_LONG_PROMPTS = 296
_DEEP_RUNS = 2_468
"""Each makes a session of more than 100,000 events."""
_SESSIONS = 500
_COMMANDS = (
    ("show", _LONG),
    ("runs",),
    ("runs", "-n", str(_SESSIONS)),
    ("view", _LONG, "--no-open", "--port", "0"),
)


def measure_sessions(bench: Bench, times: int) -> Iterator[Row]:
    """Measure lists and views of long sessions, and prompts in one."""
    asyncio.run(_write_sessions(bench))
    for command in _COMMANDS:
        seconds = median(_measure_first_output(bench, command) for _ in range(times))
        name = f"first output of `mudroom {command[0]}`"
        if "-n" in command:
            name = f"{name}, {_SESSIONS} sessions"
        elif _LONG in command:
            name = f"{name}, 100,000 events"
        yield Row(name, "s", seconds, 0.3)
    prompts = measure_in_turn(
        (_DEEP, _SHORT), SHORT_RUNS * times, lambda session: _measure_prompt(bench, session)
    )
    deep, short = compare(*prompts)
    name = "CPU of a prompt in a session of 100,000 events / of 50"
    yield Row(name, "×", deep / short, 1.2, 1.0)


async def _write_sessions(bench: Bench) -> None:
    home = Path(bench.home)
    for number in range(_SESSIONS):
        session = f"{number:08x}-0000-4000-8000-000000000000"
        await write_long_session(home, session, bench.folder, 1)
    await write_deep_session(home, _SHORT, bench.folder, 1)
    await write_deep_session(home, _DEEP, bench.folder, _DEEP_RUNS)
    await write_long_session(home, _LONG, bench.folder, _LONG_PROMPTS)


def _measure_first_output(bench: Bench, command: tuple[str, ...]) -> float:
    """Return the seconds from the start of a command to its first byte."""
    program = str(Path(sys.executable).with_name("mudroom"))
    start = time.perf_counter()
    with subprocess.Popen(
        [program, *command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=bench.make_environ(),
        cwd=bench.folder,
    ) as process:
        assert process.stdout
        process.stdout.read(1)
        seconds = time.perf_counter() - start
        process.kill()
    return seconds


def _measure_prompt(bench: Bench, session: str) -> float:
    """Return the CPU seconds of one more prompt in a session."""
    output = subprocess.run(
        [sys.executable, "-m", "benchmarks.resumed_subject", bench.url, bench.folder, session],
        capture_output=True,
        text=True,
        cwd=Path(__file__).resolve().parent.parent,
        env=bench.make_environ(),
        check=True,
    ).stdout
    return float(output)
