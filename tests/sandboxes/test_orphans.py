"""Sessions killed at any moment: a later clean-up removes their processes and folders only."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mudroom._adapters.sandboxes import detect
from mudroom._platform.orphan_cleanup import remove_orphans

from ..slow_program import needs_slow_program, write_slow_program
from ..waiting import SECONDS, block_until, wait_until

FOUND = detect.run_probes(detect.find_bwrap(os.environ, "/nonexistent"), tempfile.gettempdir())

_SESSION = """
import asyncio, os, sys
from mudroom._adapters.sandboxes.choose import SandboxRequest, choose_sandbox
tier, root, home = sys.argv[1:4]
environ = {"PATH": os.defpath, "HOME": home}
box, _ = choose_sandbox(SandboxRequest(workspace=root, mode=tier, home=home, environ=environ))
print(os.getpid(), flush=True)
asyncio.run(box.run(sys.argv[4], timeout=300, sink=lambda _: None))
"""


class Session:
    """Process that runs one command in a sandbox, with scratch folders in a folder of the test."""

    def __init__(self, tier: str, folder: Path, command: str) -> None:
        self._name = name_sleep()
        self.scratch = folder / "tmp"
        self.scratch.mkdir(exist_ok=True)
        (folder / "proj").mkdir(exist_ok=True)
        (folder / "home").mkdir(exist_ok=True)
        self._began = folder / "proj" / "began"
        command = command.replace("NAP", f"sleep {self._name}")
        argv = [
            sys.executable,
            "-c",
            _SESSION,
            tier,
            str(folder / "proj"),
            str(folder / "home"),
            command,
        ]
        self.process = subprocess.Popen(
            argv, env={**os.environ, "TMPDIR": str(self.scratch)}, stdout=subprocess.PIPE
        )
        assert self.process.stdout
        self.process.stdout.readline()

    def wait_for_start(self) -> None:
        block_until(self._began.exists)
        self._began.unlink()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()

    def list_survivors(self) -> list[int]:
        return list_sleeping(self._name)

    def wait_for_clean_up(self) -> None:
        """Remove orphans until no process and no folder is left.

        The first time, a process that just starts may hold the lock of a folder until its `exec`.
        """
        block_until(lambda: remove_orphans(str(self.scratch)) or self._is_gone())

    def _is_gone(self) -> bool:
        return not self.list_survivors() and not list(self.scratch.iterdir())


@pytest.fixture(params=["full", "file", "off"])
def tier(request: pytest.FixtureRequest) -> Iterator[str]:
    if {"full": FOUND.no_full_reason, "file": FOUND.no_file_reason}.get(request.param):
        pytest.skip("this tier does not work here")
    yield request.param


def list_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def read_arguments(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def name_sleep() -> str:
    """Return the seconds of a sleep that no other process has, longer than every wait below."""
    return f"374.{secrets.randbelow(10**12):012}"


def list_sleeping(name: str) -> list[int]:
    return [pid for pid in list_pids() if f"sleep\0{name}\0" in read_arguments(pid)]


def test_a_session_killed_at_any_moment_leaves_no_process(tier: str, tmp_path: Path) -> None:
    for n in range(8):
        session = Session(tier, tmp_path, "touch began; setsid NAP & NAP")
        time.sleep(0.012 * n)
        session.kill()
        session.wait_for_clean_up()


@needs_slow_program
def test_processes_that_just_start_are_killed_before_their_folder_is_removed(
    tmp_path: Path,
) -> None:
    """Until a program has started, its environment does not tell whose it is."""
    write_slow_program(tmp_path / "slow")
    scratch = tmp_path / "tmp"
    folder = scratch / f"mudroom-{os.getpid()}-{secrets.token_hex(6)}"
    folder.mkdir(parents=True)
    processors = os.sched_getaffinity(0)
    processes: list[subprocess.Popen[bytes]] = []
    os.sched_setaffinity(0, {max(processors)})
    # Beside this one, the others get almost no time of the same processor.
    busy = subprocess.Popen(["sh", "-c", "while :; do :; done"])
    try:
        for _ in range(20):
            process = subprocess.Popen([tmp_path / "slow"], env={"MARK": f"{folder}/x"})
            os.sched_setscheduler(process.pid, os.SCHED_IDLE, os.sched_param(0))
            processes.append(process)
        os.sched_setaffinity(0, processors)
        remove_orphans(str(scratch))
        busy.kill()
        block_until(lambda: remove_orphans(str(scratch)) or not folder.exists())
        assert {process.wait(SECONDS) for process in processes} == {-signal.SIGKILL}
    finally:
        os.sched_setaffinity(0, processors)
        for process in (busy, *processes):
            process.kill()
            process.wait()


def test_the_command_and_folder_of_a_live_session_stay(tier: str, tmp_path: Path) -> None:
    session = Session(tier, tmp_path, "touch began; setsid NAP & NAP")
    try:
        session.wait_for_start()
        block_until(lambda: len(session.list_survivors()) >= 2)
        before = {path.name for path in (tmp_path / "tmp").iterdir()}
        remove_orphans(str(tmp_path / "tmp"))
        assert {path.name for path in (tmp_path / "tmp").iterdir()} == before
        assert len(session.list_survivors()) >= 2
    finally:
        session.kill()
        session.wait_for_clean_up()


def test_the_next_session_cleans_up(tier: str, tmp_path: Path) -> None:
    first = Session(tier, tmp_path, "touch began; NAP")
    first.wait_for_start()
    first.kill()
    second = Session(tier, tmp_path, "NAP")
    try:
        block_until(second.list_survivors)
        block_until(
            lambda: (
                not first.list_survivors()
                and not list((tmp_path / "tmp").glob(f"mudroom-{first.process.pid}-*"))
            )
        )
        assert second.list_survivors()
    finally:
        second.kill()
        second.wait_for_clean_up()


@pytest.mark.skipif(bool(FOUND.no_full_reason), reason=FOUND.no_full_reason)
async def test_the_folder_of_a_killed_daemon_is_removed(tmp_path: Path) -> None:
    from mudroom._adapters.sandboxes.linux.bubblewrap import BubblewrapSandbox

    (tmp_path / "proj").mkdir()
    box = BubblewrapSandbox(
        str(tmp_path / "proj"),
        FOUND.bwrap,
        quarantine="",
        environ={"PATH": os.defpath},
        keep_root_uid=bool(FOUND.no_other_user_reason),
    )
    await box.run("true", timeout=60, sink=lambda _: None)
    pattern = f"mudroom-{box.daemon_pid}-*"
    # There are two while the clean-up of another session removes one that had no lock yet.
    assert list(Path("/tmp").glob(pattern))
    os.kill(box.daemon_pid, signal.SIGKILL)
    await wait_until(lambda: remove_orphans("/tmp") or not list(Path("/tmp").glob(pattern)))


@pytest.mark.skipif(bool(FOUND.no_file_reason), reason=FOUND.no_file_reason)
async def test_the_command_of_a_killed_watcher_is_killed(tmp_path: Path) -> None:
    """Its processes become children of the daemon, which kills them."""
    from mudroom._adapters.sandboxes.linux.landlock import LandlockSandbox

    (tmp_path / "proj").mkdir()
    box = LandlockSandbox(str(tmp_path / "proj"), quarantine="", environ={"PATH": os.defpath})
    name = name_sleep()
    command = f"setsid bash -c 'sleep {name} & sleep {name}' & sleep {name}"
    running = asyncio.create_task(box.run(command, timeout=120, sink=lambda _: None))
    await wait_until(lambda: len(list_sleeping(name)) == 3)
    asleep = list_sleeping(name)
    direct = next(
        pid
        for pid in asleep
        if os.getsid(pid) not in (os.getsid(other) for other in asleep if other != pid)
    )
    shell = int(Path(f"/proc/{direct}/stat").read_text().rpartition(")")[2].split()[1])
    watcher = int(Path(f"/proc/{shell}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(watcher, signal.SIGKILL)
    await asyncio.wait([running])
    await wait_until(lambda: not list_sleeping(name))
