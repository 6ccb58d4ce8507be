"""Cost of hooks: the programs that a call of a tool starts, and the functions of the hooks."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from types import FrameType

from mudroom import Integrations, Session
from mudroom._adapters.integrations import hook_programs
from mudroom._adapters.integrations.hook_programs.spec import HookSpec
from mudroom._adapters.models.scripted import Answer, ScriptedModel, call

from .hook_helpers import make_set, make_spec

CALLS = 6
START = subprocess.Popen.__init__.__code__
HOOKS = str(Path(hook_programs.__file__).parent)


class Count:
    """Entered functions.

    Attributes:
        programs: started programs.
        functions: entered functions of the hooks.
    """

    def __init__(self) -> None:
        self.programs = 0
        self.functions = 0

    def notice(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self.programs += frame.f_code is START
            self.functions += frame.f_code.co_filename.startswith(HOOKS)


@contextmanager
def count_entries() -> Generator[Count]:
    """Count in all threads that start inside of the block, and in this one."""
    count = Count()
    profiler = sys.getprofile()
    threading.setprofile(count.notice)
    sys.setprofile(count.notice)
    try:
        yield count
    finally:
        sys.setprofile(profiler)
        threading.setprofile(None)  # pyright: ignore[reportArgumentType]


async def run_calls(folder: Path, *hooks: HookSpec) -> Count:
    """Return what a run with some calls of a tool enters."""
    (folder / "notes.txt").write_text("one\n" * CALLS)
    script: list[Answer] = [
        *([call("read", file_path="notes.txt", offset=turn + 1)] for turn in range(CALLS)),
        "done",
    ]
    session = Session(
        model=ScriptedModel(script),
        cwd=str(folder),
        home=str(folder / "home"),
        journal="memory",
        sandbox="off",
        environ={"PATH": "/usr/bin:/bin"},
        integrations=Integrations(hook_programs=hooks),
    )
    with count_entries() as count:
        async with session:
            assert (await session.run("Read the notes.")).ok
    return count


async def test_without_hooks_no_function_of_them_is_entered(tmp_path: Path) -> None:
    count = await run_calls(tmp_path)
    assert (count.programs, count.functions) == (0, 0)


async def test_a_hook_starts_one_program_for_each_call_that_it_matches(tmp_path: Path) -> None:
    hooks = (
        make_spec("PreToolUse", "true", matcher="Read"),
        make_spec("PreToolUse", "true", matcher="Bash"),
        make_spec("PostToolUse", "true", matcher="Write"),
    )
    assert (await run_calls(tmp_path, *hooks)).programs == CALLS


async def measure_medians(folder: Path) -> tuple[float, float]:
    """Return the median seconds of a hook that runs `true`, and of that program alone.

    Both run in a thread, one after the other, so that a busy machine slows down both.
    """
    hooks = make_set(folder, make_spec("PreToolUse", "true"))
    of_hook, of_program = list[float](), list[float]()
    for _ in range(15):
        began = time.perf_counter()
        await hooks.fire("PreToolUse", {"tool_name": "Read"})
        middle = time.perf_counter()
        await asyncio.to_thread(
            subprocess.run,
            ["bash", "-c", "true"],
            input=b"{}",
            capture_output=True,
            start_new_session=True,
            check=True,
        )
        of_hook.append(middle - began)
        of_program.append(time.perf_counter() - middle)
    return median(of_hook), median(of_program)


async def test_a_hook_takes_less_than_twice_the_time_of_its_program(tmp_path: Path) -> None:
    ratios: list[float] = []
    for _ in range(5):
        of_hook, of_program = await measure_medians(tmp_path)
        ratios.append(of_hook / of_program)
        if ratios[-1] < 2:
            return
    raise AssertionError(f"a hook takes {ratios} times as long as its program")
