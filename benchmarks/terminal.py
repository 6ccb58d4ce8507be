"""Time until a program shows its prompt at a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence

from .processes import SHORT_RUNS, Bench
from .rounds import compare, measure_in_turn
from .rows import Row

_LONGEST = 20.0
"""Seconds that a program may take."""
_BARE_PROMPT = "from prompt_toolkit import PromptSession; PromptSession().prompt('mudroom > ')"


def measure_prompt(bench: Bench, times: int) -> Iterator[Row]:
    """Measure the time until `mudroom` shows its prompt, beside a prompt of prompt_toolkit alone.

    The goal is 0.15 seconds. On a machine where the prompt alone needs about as long, the limit is
    relative to it.
    """
    program = os.path.join(os.path.dirname(sys.executable), "mudroom")
    commands = ([program, "--model", "anthropic:bench"], [sys.executable, "-c", _BARE_PROMPT])
    environ = {**bench.make_environ(), "TERM": "xterm-256color"}
    walls = measure_in_turn(
        commands,
        SHORT_RUNS * times,
        lambda command: _wait_for_text(command, b"mudroom >", environ, bench.folder),
    )
    mudroom, floor = compare(*walls)
    name = "start of `mudroom` to its prompt at a terminal"
    yield Row(name, "s", mudroom, max(0.15, 1.5 * floor), 0.15, floor)


def _wait_for_text(
    command: Sequence[str], text: bytes, environ: Mapping[str, str], folder: str
) -> float:
    """Return the seconds until a command writes a text to its terminal, and end it.

    Raises RuntimeError with its output if it does not.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    start = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environ,
        cwd=folder,
        start_new_session=True,
    )
    os.close(theirs)
    seen = b""
    try:
        while text not in seen and select.select([ours], [], [], _LONGEST)[0]:
            seen += os.read(ours, 65_536)
        took = time.perf_counter() - start
    except OSError:  # the program has ended
        took = 0.0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    if text not in seen:
        raise RuntimeError(f"{' '.join(command)}: {seen.decode(errors='replace')}")
    return took
