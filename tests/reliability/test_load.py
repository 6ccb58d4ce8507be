"""Many children at once, and many commands: memory, the event loop's lag, and nothing left behind.

The short form has 300 children and 60 commands; MUDROOM_LONG=1 has 5,000 and 10,000.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

LONG = bool(os.environ.get("MUDROOM_LONG"))
Figure = Callable[[str, str], None]
PROGRAM = Path(__file__).with_name("load.py")


def cost(folder: Path, *words: str) -> dict[str, Any]:
    ran = subprocess.run(
        [sys.executable, str(PROGRAM), words[0], str(folder), *words[1:]],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout)


def nothing_is_left(found: dict[str, Any]) -> None:
    assert (found["text"], found["failed"]) == ("All are done.", 0)
    assert max(found["tasks_left"], found["files_left"], found["processes_left"]) <= 0


@pytest.mark.timeout(600)
def test_many_children_in_one_process(tmp_path: Path, figure: Figure) -> None:
    children, seconds = (5_000, 25) if LONG else (300, 1)
    found = cost(tmp_path / "load", "children", str(children), str(seconds))
    figure(
        f"{children:,} children at once",
        (
            f"{found['peak_mb']} MB, lag p99 {found['lag_p99_ms']} ms, longest "
            f"{found['lag_max_ms']} ms, {found['seconds']} s"
        ),
    )
    nothing_is_left(found)
    assert found["peak_mb"] < 1_000
    # The short form shares its processors with other tests.
    assert found["lag_p99_ms"] < (100 if LONG else 500)


@pytest.mark.timeout(3_000)
def test_f12_f25_many_commands_leave_no_zombie_and_memory_is_flat(
    tmp_path: Path, figure: Figure
) -> None:
    commands = 10_000 if LONG else 60
    found = cost(tmp_path / "load", "commands", str(commands))
    memory = found["memory"]
    figure(
        f"{commands:,} commands",
        (
            f"{memory[0]} MB at first, {memory[-1]} MB at last, "
            f"{commands / found['seconds']:.0f} a second"
        ),
    )
    nothing_is_left(found)
    assert memory[-1] < memory[len(memory) // 10] * 1.05 + 2 + commands * 0.002, (
        "2 kB a command is the conversation itself"
    )
