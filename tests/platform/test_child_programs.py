"""Programs of threads: killed with this process, by a look at them, and when nobody waits."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.signals import send_signal
from tests.waiting import block_until, is_alive

from mudroom._platform.child_programs import StoppedError, find_program, run_program, stop_programs

ENVIRON = {"PATH": os.defpath}
STARTS = """
import threading
from mudroom._platform.child_programs import run_program
def look(pid):
    print(pid, flush=True)
def work():
    run_program(["/bin/sh", "-c", "sleep 60"], folder="/", environ={}, look=look)
threading.Thread(target=work).start()
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="there is no procfs")
def test_a_program_dies_with_the_process_that_runs_it() -> None:
    with subprocess.Popen([sys.executable, "-c", STARTS], stdout=subprocess.PIPE) as process:
        assert process.stdout
        pid = int(process.stdout.readline())
        assert is_alive(pid)
        process.kill()
    block_until(lambda: not is_alive(pid))


def test_input_and_output_are_those_of_the_program(tmp_path: Path) -> None:
    data = os.urandom(1 << 20)
    result = run_program(["cat"], folder="/", environ=ENVIRON, data=data)
    assert (result.returncode, result.stdout) == (0, data)
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(data)
    with source.open("rb") as read_from, target.open("wb") as write_to:
        run_program(["cat"], folder="/", environ=ENVIRON, read_from=read_from, write_to=write_to)
    assert target.read_bytes() == data
    slow = ["sh", "-c", "sleep 0.6; cat; echo why >&2; exit 3"]
    result = run_program(slow, folder="/", environ=ENVIRON, data=data)
    assert (result.returncode, result.stdout, result.stderr) == (3, data, b"why\n")


def test_a_program_is_killed_when_nobody_waits_for_it() -> None:
    stop = threading.Event()
    pids: list[int] = []

    def look(pid: int) -> None:
        pids.append(pid)
        stop.set()

    start = time.monotonic()
    with pytest.raises(StoppedError), stop_programs(stop):
        run_program(["sleep", "60"], folder="/", environ=ENVIRON, look=look)
    assert time.monotonic() - start < 5
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_an_error_of_the_look_ends_the_program() -> None:
    pids: list[int] = []

    def look(pid: int) -> None:
        pids.append(pid)
        raise KeyError("look")

    with pytest.raises(KeyError):
        run_program(["sleep", "60"], folder="/", environ=ENVIRON, look=look)
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)


def test_programs_start_again_after_their_group_was_killed() -> None:
    groups = [run_program(["sh", "-c", "ps -o pgid= -p $$"], folder="/", environ=ENVIRON).stdout]
    os.killpg(int(groups[0]), signal.SIGKILL)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            result = run_program(["true"], folder="/", environ=ENVIRON)
        except OSError:  # the group ends just now
            continue
        assert result.returncode == 0
        return
    raise AssertionError


def test_programs_in_the_ignored_folder_and_in_relative_ones_are_not_found(tmp_path: Path) -> None:
    for name in ("work/bin", "outside"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "tool").write_text("")
        (folder / "tool").chmod(0o755)
    work = str(tmp_path / "work")
    (tmp_path / "linked").symlink_to(f"{work}/bin")
    path = os.pathsep.join(["", ".", f"{work}/bin", str(tmp_path / "linked")])
    assert find_program("tool", path, work) == ""
    assert find_program("tool", f"{path}:{tmp_path}/outside", work) == f"{tmp_path}/outside/tool"
    assert find_program("tool", path) == f"{work}/bin/tool"


async def test_a_signal_to_a_process_that_just_ended_keeps_its_exit_code() -> None:
    process = await asyncio.create_subprocess_exec("sh", "-c", "exit 7")
    while process.returncode is None:
        send_signal(process, signal.SIGURG)
        await asyncio.sleep(0)
    assert process.returncode == 7
