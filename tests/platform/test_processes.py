"""Process table: fields of a process, children, threads of the user."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from mudroom._platform.child_programs import end_program, start_program
from mudroom._platform.processes import (
    count_user_threads,
    kill_process,
    list_children,
    list_pids,
    list_processes,
    read_environ,
    read_process,
    reap_process,
)

from ..slow_program import needs_slow_program, write_slow_program
from ..waiting import SECONDS, block_until, is_alive

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs procfs")


def test_the_fields_of_a_process() -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as child:
        process = read_process(child.pid)
        own = read_process(os.getpid())
        child.kill()
    assert process and own
    assert (process.pid, process.parent, process.session) == (child.pid, os.getpid(), child.pid)
    assert process.threads == 1 and not process.is_dead
    assert process.started >= own.started > 0


def test_a_program_name_with_brackets_does_not_shift_the_fields(tmp_path: os.PathLike[str]) -> None:
    program = os.path.join(tmp_path, "a) S 1 (b")
    os.symlink("/bin/sleep", program)
    with subprocess.Popen([program, "60"]) as child:
        process = read_process(child.pid)
        child.kill()
    assert process and process.parent == os.getpid()


def test_an_ended_child_is_dead_until_it_is_reaped() -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    block_until(lambda: not is_alive(pid))
    process = read_process(pid)
    assert process and process.is_dead
    reap_process(pid)
    assert read_process(pid) is None
    reap_process(pid)


def test_all_processes_are_listed() -> None:
    assert os.getpid() in list_pids()
    assert any(process.pid == os.getpid() for process in list_processes())


def test_children_are_listed_and_killed() -> None:
    child = subprocess.Popen(["sleep", "60"])
    assert child.pid in list_children()
    kill_process(child.pid)
    assert child.wait(SECONDS) == -signal.SIGKILL
    assert child.pid not in list_children()
    kill_process(child.pid)
    kill_process(0)


def test_the_environment_is_that_at_the_start() -> None:
    with subprocess.Popen(["sleep", "60"], env={"MARK": "x/y"}) as child:
        block_until(lambda: read_environ(child.pid) == b"MARK=x/y\0")
        child.kill()
    assert read_environ(child.pid) == b""


@needs_slow_program
def test_the_environment_is_unknown_while_a_program_starts(tmp_path: Path) -> None:
    write_slow_program(tmp_path / "slow")
    found: set[bytes | None] = set()

    def start_and_read() -> bool:
        with subprocess.Popen([tmp_path / "slow"], env={"MARK": "x/y"}) as child:
            while not (environ := read_environ(child.pid)):
                found.add(environ)
            child.kill()
        assert environ == b"MARK=x/y\0"
        return bool(found)

    block_until(start_and_read)
    assert found == {None}


def test_a_process_without_environment_has_an_empty_one() -> None:
    with subprocess.Popen(["/bin/sleep", "60"], env={}) as child:
        block_until(lambda: read_environ(child.pid) is not None)
        assert read_environ(child.pid) == b""
        child.kill()


def test_threads_of_the_user_are_counted() -> None:
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    own = read_process(os.getpid())
    count = count_user_threads()
    stop.set()
    for thread in threads:
        thread.join()
    assert own and own.threads >= 4
    assert count >= own.threads


async def test_asyncio_learns_the_end_of_each_program(caplog: pytest.LogCaptureFixture) -> None:
    pipe = asyncio.subprocess.PIPE
    for number in range(250):
        program = await start_program("true", stdout=pipe, stderr=pipe)
        time.sleep(number % 20 / 20_000)  # noqa: ASYNC251  the program ends about now
        await end_program(program)
        assert program.returncode in (0, -signal.SIGKILL)
        starting = asyncio.create_task(start_program("true", stdout=pipe, stderr=pipe))
        for _ in range(number % 5):
            await asyncio.sleep(0)
        starting.cancel()
        time.sleep(number % 20 / 20_000)  # noqa: ASYNC251
        with suppress(asyncio.CancelledError):
            await end_program(await starting)
    assert [record.getMessage() for record in caplog.records] == []
