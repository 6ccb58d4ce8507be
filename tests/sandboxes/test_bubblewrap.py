"""Tier full: concurrent commands, how they end, and processes that die at a bad moment."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import tempfile
from pathlib import Path

import pytest

from mudroom._adapters.sandboxes import detect
from mudroom._adapters.sandboxes.choose import SandboxRequest, choose_sandbox
from mudroom._adapters.sandboxes.linux.bubblewrap import BubblewrapSandbox
from mudroom._core.ports import CommandResult
from mudroom.errors import WorkspaceError

from ..waiting import is_alive, wait_until

FOUND = detect.run_probes(detect.find_bwrap(os.environ, "/nonexistent"), tempfile.gettempdir())
ROOT = os.geteuid() == 0

pytestmark = pytest.mark.skipif(bool(FOUND.no_full_reason), reason=FOUND.no_full_reason)


def make_sandbox(root: Path, bwrap: str = FOUND.bwrap) -> BubblewrapSandbox:
    return BubblewrapSandbox(
        str(root),
        bwrap,
        quarantine=f"{root}-away",
        environ={"PATH": os.defpath},
        keep_root_uid=bool(FOUND.no_other_user_reason),
    )


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "proj").mkdir()
    return tmp_path / "proj"


@pytest.fixture
def box(workspace: Path) -> BubblewrapSandbox:
    return make_sandbox(workspace)


async def run(
    box: BubblewrapSandbox, command: str, timeout: float = 60
) -> tuple[CommandResult, str]:
    output = bytearray()
    finished = await box.run(command, timeout=timeout, sink=output.extend)
    return finished, output.decode()


async def test_commands_do_not_see_each_other(box: BubblewrapSandbox, workspace: Path) -> None:
    """Each command has its own processes, temporary files, terminals and shared memory."""
    one = asyncio.create_task(
        run(box, "echo x > /tmp/mark; echo x > /dev/shm/mark; hostname; touch began; sleep 1.2345")
    )
    await wait_until((workspace / "began").exists)
    assert (await run(box, "ls /dev/shm /dev/pts; grep -l [1].2345 /proc/[0-9]*/cmdline"))[
        1
    ].split() == ["/dev/pts:", "ptmx", "/dev/shm:"]
    assert "x" not in (await run(box, "cat /tmp/mark /dev/shm/mark 2> /dev/null"))[1]
    assert (await one)[0] == CommandResult(0)
    assert (await run(box, "cat /tmp/mark /dev/shm/mark"))[0].code != 0


async def test_descriptors_and_processes_do_not_accumulate(box: BubblewrapSandbox) -> None:
    await run(box, "true")
    number = box.daemon_pid
    before = len(os.listdir("/proc/self/fd")), len(os.listdir(f"/proc/{number}/fd"))
    for _ in range(5):
        await asyncio.gather(*(run(box, "setsid sleep 5 & (true &); true") for _ in range(8)))
    assert (len(os.listdir("/proc/self/fd")), len(os.listdir(f"/proc/{number}/fd"))) == before
    assert Path(f"/proc/{number}/task/{number}/children").read_text() == ""


async def test_close_does_not_wait_for_running_commands(
    box: BubblewrapSandbox, workspace: Path
) -> None:
    command = "touch began; while [ ! -e go ]; do sleep 0.05; done; echo end"
    running = asyncio.create_task(run(box, command))
    await wait_until((workspace / "began").exists)
    box.close()
    assert not running.done()
    (workspace / "go").touch()
    assert await running == (CommandResult(0), "end\n")


async def test_close_leaves_no_process_and_no_folder(box: BubblewrapSandbox) -> None:
    await run(box, "true")
    number = box.daemon_pid
    assert len(list_folders(number)) == 1
    box.close()
    assert not is_alive(number)
    assert list_folders(number) == []


def list_folders(number: int) -> list[str]:
    return [name for name in os.listdir("/tmp") if name.startswith(f"mudroom-{number}-")]


async def test_commands_see_a_workspace_that_was_replaced(
    box: BubblewrapSandbox,
    workspace: Path,
) -> None:
    await run(box, "echo old > file")
    shutil.rmtree(workspace)
    os.mkdir(workspace)
    assert await run(box, "ls; echo new > file") == (CommandResult(0), "")
    assert (workspace / "file").read_text() == "new\n"


async def test_a_missing_toolchain_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "proj").mkdir()
    (tmp_path / "venv").mkdir()
    environ = {"PATH": os.defpath, "VIRTUAL_ENV": str(tmp_path / "venv")}
    box = BubblewrapSandbox(
        str(tmp_path / "proj"),
        FOUND.bwrap,
        quarantine=f"{tmp_path}/away",
        environ=environ,
        keep_root_uid=bool(FOUND.no_other_user_reason),
    )
    assert (await run(box, f"ls -d {tmp_path}/venv"))[0].code == 0
    os.rmdir(tmp_path / "venv")
    assert (await run(box, "echo on"))[1] == "on\n"


async def test_commands_have_the_users_mask(tmp_path: Path) -> None:
    (tmp_path / "proj").mkdir()
    usual = os.umask(0o027)
    try:
        assert (await run(make_sandbox(tmp_path / "proj"), "umask"))[1] == "0027\n"
    finally:
        os.umask(usual)


# --- a scripted bwrap, for moments that are too short to meet ------------------------------


def write_script(text: str) -> str:
    """Return the path of a script that acts as bwrap. Every user can reach it."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    folder.chmod(0o777)
    (folder / "bwrap").write_text(f"#!/bin/bash\ncd {folder}\n{text}\n")
    (folder / "bwrap").chmod(0o755)
    return str(folder / "bwrap")


async def test_a_command_that_waits_at_its_gate_dies_with_the_daemon(
    workspace: Path,
) -> None:
    """When the daemon dies, a command at its gate neither starts without limits nor waits."""
    bwrap = write_script(
        'setsid sleep 71.3456 & echo $! > child; echo $$ > pid; echo "{" >&3; read -n1 -u4; '
        "touch ran; sleep 71.3456"
    )
    folder = Path(bwrap).parent
    try:
        begun = asyncio.create_task(
            make_sandbox(workspace, bwrap).run("true", timeout=60, sink=lambda _: None)
        )
        await wait_until(lambda: (folder / "pid").exists() and (folder / "pid").read_text().strip())
        pid = int((folder / "pid").read_text())
        os.kill(
            int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL
        )
        await asyncio.wait([begun])
        child = int((folder / "child").read_text())
        await wait_until(lambda: not is_alive(pid) and not is_alive(child))
        assert not (folder / "ran").exists()
    finally:
        shutil.rmtree(folder)


async def test_a_cancel_before_bwrap_reports_its_child_kills_the_child(
    workspace: Path,
) -> None:
    bwrap = write_script("setsid sleep 71.2345 & echo $! > child; wait")
    folder = Path(bwrap).parent
    try:
        begun = asyncio.create_task(
            make_sandbox(workspace, bwrap).run("true", timeout=60, sink=lambda _: None)
        )
        await wait_until(
            lambda: (folder / "child").exists() and (folder / "child").read_text().strip()
        )
        begun.cancel()
        await asyncio.wait([begun])
        assert not is_alive(int((folder / "child").read_text()))
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("text", ["exit 1", "echo '{' >&3", "exec 3>&-; sleep 0.1"])
async def test_an_error_of_bwrap_is_an_error(workspace: Path, text: str) -> None:
    bwrap = write_script(text)
    try:
        with pytest.raises(WorkspaceError, match="was not run: its sandbox could not be built"):
            await make_sandbox(workspace, bwrap).run("true", timeout=60, sink=lambda _: None)
    finally:
        shutil.rmtree(Path(bwrap).parent)


# --- root --------------------------------------------------------------------------------


@pytest.mark.skipif(not ROOT, reason="root only")
async def test_root_runs_nothing_if_the_workspace_cannot_be_mapped() -> None:
    """procfs cannot map owners: detection reports it, and the sandbox refuses to run."""
    weak = detect.run_probes(FOUND.bwrap, "/proc/self/task")
    assert "cannot be mapped to another user" in weak.no_other_user_reason
    box = BubblewrapSandbox(
        "/proc/self/task", FOUND.bwrap, quarantine="/nonexistent", environ={"PATH": os.defpath}
    )
    with pytest.raises(WorkspaceError, match="was not run: its sandbox could not be built"):
        await box.run("true", timeout=60, sink=lambda _: None)


@pytest.mark.skipif(not ROOT, reason="root only")
def test_a_notice_says_that_commands_keep_roots_user_id(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    _, notice = choose_sandbox(
        SandboxRequest(workspace="/proc", mode="full", home=str(tmp_path / "home"), environ=environ)
    )
    assert notice.startswith(
        "sandbox full, but commands keep root's user id, because the workspace cannot be mapped to "
        "another user ("
    )
    for mode in ("full", "auto"):
        _, notice = choose_sandbox(
            SandboxRequest(
                workspace=str(tmp_path),
                mode=mode,
                home=str(tmp_path / "home"),
                environ=environ,
            )
        )
        assert bool(notice) == bool(FOUND.no_other_user_reason), (
            "the notice is about this folder's file system, not for the last one's"
        )
