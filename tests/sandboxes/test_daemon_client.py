"""Client and daemon, without isolation: many commands at once, and nothing is left of them."""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mudroom._adapters.sandboxes.linux import daemon_client
from mudroom._adapters.sandboxes.linux.daemon.protocol import DaemonSetup, ResourceLimits
from mudroom._adapters.sandboxes.linux.daemon_client import DaemonClient
from mudroom._core.ports import CommandResult
from mudroom.errors import WorkspaceError

from ..waiting import is_alive, wait_until

BASH = "/bin/bash"
NOTICED_SECONDS = 20.0
"""Longest time on a busy machine until a stopped daemon is noticed; 7 to 8 on a quiet one."""


@pytest.fixture
def launcher(tmp_path: Path) -> DaemonClient:
    return make_client(tmp_path, str(tmp_path / "away"))


def make_client(
    workspace: Path, quarantine: str, *, restore_existing: bool = False
) -> DaemonClient:
    setup = DaemonSetup(
        workspace=str(workspace),
        quarantine=quarantine,
        limits=ResourceLimits()._asdict(),
        restore_existing=restore_existing,
    )
    return DaemonClient(setup, tier="none")


async def run(
    launcher: DaemonClient, command: str, timeout: float = 60
) -> tuple[CommandResult, str]:
    output = bytearray()
    finished = await launcher.run(
        [BASH, "-c", command], {"PATH": os.environ["PATH"]}, timeout=timeout, sink=output.extend
    )
    return finished, output.decode()


async def read_daemon_pid(launcher: DaemonClient) -> int:
    """Return the process id of the daemon, as a command sees it."""
    return int((await run(launcher, "ps -o ppid= -p $PPID"))[1])


async def test_output_code_and_folder(launcher: DaemonClient, tmp_path: Path) -> None:
    assert await run(launcher, "pwd; echo err >&2; exit 7") == (
        CommandResult(7),
        f"{tmp_path}\nerr\n",
    )


async def test_a_signal_is_a_negative_code(launcher: DaemonClient) -> None:
    assert (await run(launcher, "kill -TERM $$"))[0] == CommandResult(-15)


async def test_a_timeout_kills_the_command(launcher: DaemonClient) -> None:
    await run(launcher, "true")
    assert await run(launcher, "echo before; sleep 60", 3) == (
        CommandResult(-9, timed_out=True),
        "before\n",
    )


async def test_many_at_once_keep_their_outputs_apart(launcher: DaemonClient) -> None:
    outcomes = await asyncio.gather(
        *(run(launcher, f"sleep 0.0{n % 9}; echo {n}; exit {n % 5}") for n in range(64))
    )
    assert outcomes == [(CommandResult(n % 5), f"{n}\n") for n in range(64)]


async def test_large_output_arrives_whole(launcher: DaemonClient) -> None:
    size = 0

    def count(chunk: bytes) -> None:
        nonlocal size
        size += len(chunk)

    await launcher.run(
        [BASH, "-c", "head -c 20000000 /dev/zero"],
        {"PATH": os.environ["PATH"]},
        timeout=60,
        sink=count,
    )
    assert size == 20_000_000


async def test_a_killed_daemon_is_started_again(launcher: DaemonClient) -> None:
    first = await read_daemon_pid(launcher)
    os.kill(first, signal.SIGKILL)
    await wait_until(lambda: not is_alive(first))
    assert (await run(launcher, "echo again"))[1] == "again\n"
    assert await read_daemon_pid(launcher) != first


async def test_the_daemon_ends_with_its_client(tmp_path: Path) -> None:
    launcher = make_client(tmp_path, "")
    number = await read_daemon_pid(launcher)
    del launcher
    gc.collect()
    assert not Path(f"/proc/{number}").exists()


async def test_a_missing_program_is_an_error(launcher: DaemonClient) -> None:
    with pytest.raises(
        WorkspaceError, match=r"was not run: its sandbox could not be built \(FileNotFoundError"
    ):
        await launcher.run(["/nonexistent"], {}, timeout=60, sink=lambda chunk: None)


async def test_a_sink_that_raises_ends_the_command(launcher: DaemonClient) -> None:
    def raise_error(chunk: bytes) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await launcher.run(
            [BASH, "-c", "echo x; sleep 60"],
            {"PATH": os.environ["PATH"]},
            timeout=60,
            sink=raise_error,
        )


async def test_descriptors_do_not_accumulate(launcher: DaemonClient) -> None:
    await run(launcher, "true")
    before = len(os.listdir("/proc/self/fd"))
    inner = (await run(launcher, "ls /proc/$PPID/fd | wc -l"))[1]
    for _ in range(20):
        await run(launcher, "true")
    assert len(os.listdir("/proc/self/fd")) == before
    # The first command may still have had a descriptor that is closed soon after.
    assert int((await run(launcher, "ls /proc/$PPID/fd | wc -l"))[1]) <= int(inner)


async def test_a_command_too_long_for_a_message_is_an_error(launcher: DaemonClient) -> None:
    with pytest.raises(WorkspaceError, match="too long for the sandbox"):
        await run(launcher, "x" * 200_000)


async def test_changes_by_the_user_right_after_a_command_are_kept(
    tmp_path: Path,
) -> None:
    """Even if the watcher of one command has not ended when the next one starts."""
    (tmp_path / "proj").mkdir()
    launcher = make_client(tmp_path / "proj", str(tmp_path / "away"), restore_existing=True)
    for n in range(50):
        assert await run(launcher, "true") == (CommandResult(0), "")
        (tmp_path / "proj/.envrc").write_text(str(n))
    assert not (tmp_path / "away").exists()


@pytest.mark.parametrize("stopped", ["daemon", "watcher"])
async def test_a_command_of_a_stopped_daemon_can_be_cancelled(
    launcher: DaemonClient, tmp_path: Path, stopped: str
) -> None:
    running = asyncio.create_task(run(launcher, "echo $$ $PPID > pids; sleep 60 & wait"))
    await wait_until(lambda: (tmp_path / "pids").exists() and (tmp_path / "pids").read_text())
    command, watcher = map(int, (tmp_path / "pids").read_text().split())
    daemon = launcher.daemon_pid
    for pid in {daemon, watcher} if stopped == "daemon" else {watcher}:
        os.kill(pid, signal.SIGSTOP)
    running.cancel()
    await asyncio.wait((running,), timeout=60)
    assert running.cancelled()
    await wait_until(lambda: not any(map(is_alive, (command, watcher, daemon))))
    assert await run(launcher, "echo again") == (CommandResult(0), "again\n")


async def test_a_stopped_daemon_does_not_hold_the_next_commands(launcher: DaemonClient) -> None:
    """Its socket takes some requests; then the client notices that nobody reads them."""
    await run(launcher, "true")
    daemon = launcher.daemon_pid
    os.kill(daemon, signal.SIGSTOP)
    words = "x" * 30_000
    tasks = [asyncio.create_task(run(launcher, f": {words}; echo ran")) for _ in range(60)]
    async with asyncio.timeout(60):
        while launcher.daemon_pid == daemon:  # noqa: ASYNC110  the client sends no notice
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert not is_alive(daemon)
    assert await run(launcher, "echo again") == (CommandResult(0), "again\n")


async def test_a_stopped_daemon_is_noticed_while_its_command_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three at once, as each takes seconds: a command that is sent to it, one that runs, both."""
    monkeypatch.setattr(daemon_client, "_LOOK_SECONDS", 0.2)
    begin = time.monotonic()
    outputs = await asyncio.gather(
        *(run_stopped(tmp_path, stopped) for stopped in ("daemon", "watcher", "both"))
    )
    assert time.monotonic() - begin < NOTICED_SECONDS
    for finished, output in outputs:
        assert finished == CommandResult(-9)
        assert "It is not known how much of it was done" in output


async def run_stopped(folder: Path, stopped: str) -> tuple[CommandResult, str]:
    """Run a command whose daemon, or watcher, is stopped; check that nothing of them is left."""
    workspace = folder / stopped
    workspace.mkdir()
    client = make_client(workspace, str(folder / "away"))
    await run(client, "true")
    daemon, pids = client.daemon_pid, workspace / "pids"
    stop = [daemon]
    if stopped == "daemon":
        os.kill(daemon, signal.SIGSTOP)
    running = asyncio.create_task(run(client, "echo $$ $PPID > pids; sleep 60 & wait", 600))
    if stopped != "daemon":
        await wait_until(lambda: pids.exists() and pids.read_text())
        stop = [int(pids.read_text().split()[1]), *(stop if stopped == "both" else ())]
        for pid in stop:
            os.kill(pid, signal.SIGSTOP)
    outcome = await running
    left = {daemon, *stop, *(map(int, pids.read_text().split()) if pids.exists() else ())}
    await wait_until(lambda: not any(map(is_alive, left)))
    assert await run(client, "echo again") == (CommandResult(0), "again\n")
    return outcome


async def test_an_idle_daemon_that_was_stopped_does_not_hold_the_end(
    launcher: DaemonClient,
) -> None:
    await run(launcher, "true")
    daemon = launcher.daemon_pid
    os.kill(daemon, signal.SIGSTOP)
    launcher.close()
    assert not is_alive(daemon)


SOURCE = Path(__file__).parents[2] / "src"
PROGRAM = """
import json, sys
sys.path.append(sys.argv[1])
import mudroom._adapters.sandboxes.linux.daemon.main
own = {name for name in sys.modules if name.partition(".")[0] == "mudroom"}
other = sorted({name.partition(".")[0] for name in sys.modules.keys() - own})
print(json.dumps([{name: sys.modules[name].__doc__ for name in own}, other]))
"""
PACKAGES = {
    "mudroom",
    "mudroom._version",
    "mudroom._platform",
    "mudroom._adapters.sandboxes",
    "mudroom._adapters.sandboxes.linux",
    "mudroom._adapters.sandboxes.linux.daemon",
}
"""Packages above the daemon's modules, and the version that the first one imports."""


def test_the_daemon_imports_only_the_standard_library() -> None:
    argv = [sys.executable, "-I", "-S", "-c", PROGRAM, str(SOURCE)]
    output = subprocess.run(argv, env={}, capture_output=True, text=True, check=True).stdout
    docs: dict[str, str]
    other: list[str]
    docs, other = json.loads(output)
    assert set(other) - sys.stdlib_module_names <= {"__main__"}
    for name in docs.keys() - PACKAGES:
        assert "standard library only" in docs[name].lower(), name
    assert {name for name in docs if name.startswith("mudroom._platform.")} == {
        "mudroom._platform.imports",
        "mudroom._platform.patterns",
        "mudroom._platform.processes",
        "mudroom._platform.protected_names",
        "mudroom._platform.scratch_dirs",
    }
