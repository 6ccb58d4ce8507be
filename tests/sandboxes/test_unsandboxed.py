"""Tier off: commands end, no process of them is left, and no secret reaches them."""

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from mudroom._adapters.sandboxes.environ import remove_secrets
from mudroom._adapters.sandboxes.unsandboxed import Unsandboxed, select_members
from mudroom._core.ports import CommandResult
from mudroom._platform.processes import Process
from mudroom.errors import WorkspaceError

from ..slow_program import needs_slow_program, write_slow_program
from ..waiting import SECONDS, find_processes, wait_until


class Sandboxed:
    """Sandbox whose commands have a name in their arguments, to find survivors."""

    def __init__(self, folder: Path) -> None:
        self.name = uuid.uuid4().hex
        self.sandbox = Unsandboxed(str(folder))
        self.output = bytearray()

    async def run(
        self, command: str, timeout: float = 60.0, sink: Callable[[bytes], None] | None = None
    ) -> CommandResult:
        return await self.sandbox.run(
            command.replace("NAP", f"bash -c 'sleep 300; : {self.name}'"),
            timeout=timeout,
            sink=sink or self._take,
        )

    def _take(self, chunk: bytes) -> None:
        self.output += chunk


@pytest.fixture
def box(tmp_path: Path) -> Sandboxed:
    return Sandboxed(tmp_path)


def list_zombies() -> list[str]:
    found: list[str] = []
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] == "Z" and fields[1] == str(os.getpid()):
            found.append(pid)
    return found


async def test_output_is_merged_in_order_and_the_code_is_the_commands(box: Sandboxed) -> None:
    assert await box.run("echo one; echo two >&2; echo three; exit 7") == CommandResult(7)
    assert box.output == b"one\ntwo\nthree\n"


async def test_commands_are_bash_in_the_folder_with_an_empty_stdin(
    box: Sandboxed, tmp_path: Path
) -> None:
    await box.run('[[ -n $BASH_VERSION ]] && pwd; read -r x || echo "no input"')
    assert box.output.decode() == f"{tmp_path}\nno input\n"


async def test_a_signal_is_a_negative_code(box: Sandboxed) -> None:
    assert (await box.run("kill -TERM $$")).code == -15


@pytest.mark.parametrize(
    "command",
    [
        "NAP & echo started",
        "cat <(NAP) & echo started",
        "echo started; NAP >/dev/null 2>&1 & disown",
    ],
)
async def test_a_command_ends_while_a_grandchild_holds_its_output(
    box: Sandboxed, command: str
) -> None:
    began = time.monotonic()
    assert (await box.run(command)).code == 0
    assert time.monotonic() - began < SECONDS
    assert box.output == b"started\n"
    assert find_processes(box.name) == []


DETACHED = {
    "setsid": "setsid NAP &",
    "nohup": "nohup NAP >/dev/null 2>&1 &",
    "double fork": "(setsid bash -c 'NAP & NAP &' &) ; sleep 0.2",
    "job control": "set -m; NAP & NAP & sleep 0.1",
    "cleared environment": "env -i PATH=$PATH NAP & sleep 0.1",
    "cleared environment in a session": "setsid bash -c 'env -i PATH=$PATH NAP & wait' & sleep 0.2",
}


@pytest.mark.parametrize("how", DETACHED)
async def test_detached_descendants_are_killed(box: Sandboxed, how: str) -> None:
    nap = f'bash -c "sleep 300; : {box.name}"'
    await box.run(DETACHED[how].replace("NAP", nap))
    assert find_processes(box.name) == []


@needs_slow_program
async def test_a_detached_program_that_just_starts_is_killed(
    box: Sandboxed, tmp_path: Path
) -> None:
    """For milliseconds it has no environment, and its parent is gone."""
    write_slow_program(tmp_path / "slow")
    for n in range(20):
        pause = f"read -t 0.00{n % 4} _ <> <(:)"
        await box.run(f"setsid ./slow {box.name} & {pause}")
    await box.run("sleep 0.1")  # until all that were missed show their arguments
    assert find_processes(box.name) == []


async def test_a_timeout_kills_the_whole_process_tree(box: Sandboxed) -> None:
    began = time.monotonic()
    finished = await box.run("echo before; NAP & setsid NAP & NAP | NAP", timeout=2)
    assert finished.timed_out
    assert 2 <= time.monotonic() - began < SECONDS
    assert box.output == b"before\n"
    assert find_processes(box.name) == []


async def test_a_command_that_ignores_signals_is_killed(box: Sandboxed) -> None:
    finished = await box.run("trap '' TERM INT HUP; while :; do sleep 0.05; done", timeout=0.3)
    assert finished == CommandResult(-9, timed_out=True)


async def test_a_cancel_kills_the_whole_process_tree(box: Sandboxed) -> None:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(box.run("NAP & setsid NAP & echo ready; NAP"))
        await wait_until(lambda: box.output)
        began = time.monotonic()
        task.cancel()
    assert task.cancelled()
    assert time.monotonic() - began < SECONDS
    assert find_processes(box.name) == []


async def test_a_second_cancel_does_not_interrupt_the_kill(box: Sandboxed) -> None:
    task = asyncio.create_task(box.run("echo $$; NAP & NAP & wait"))
    await wait_until(lambda: box.output and len(find_processes(box.name)) >= 2)
    pid = int(box.output)
    task.cancel()
    while not task.done():
        await asyncio.sleep(0)
        task.cancel()
    assert task.cancelled()
    assert find_processes(box.name) == []
    assert not os.path.exists(f"/proc/{pid}")


async def test_a_process_that_keeps_forking_is_killed(box: Sandboxed) -> None:
    await box.run(
        f"while :; do (bash -c 'sleep 1; : {box.name}' &) ; sleep 0.01; done", timeout=0.4
    )
    assert find_processes(box.name) == []


async def test_other_commands_are_not_killed(box: Sandboxed, tmp_path: Path) -> None:
    other = Sandboxed(tmp_path)
    async with asyncio.TaskGroup() as group:
        group.create_task(other.run("echo here; sleep 0.5; echo still here"))
        await wait_until(lambda: other.output)
        await box.run("NAP", timeout=0.1)
    assert other.output == b"here\nstill here\n"


async def test_no_zombie_and_no_descriptor_is_left_after_200_calls(box: Sandboxed) -> None:
    await box.run("true")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        async with asyncio.TaskGroup() as group:
            for n in range(10):
                group.create_task(box.run("sleep 5 & (setsid true &); true" if n % 2 else "echo x"))
    assert len(os.listdir("/proc/self/fd")) <= before  # earlier tests' sandboxes may go meanwhile
    assert list_zombies() == []


async def test_large_output_arrives_whole(box: Sandboxed) -> None:
    size = 0

    def count(chunk: bytes) -> None:
        nonlocal size
        size += len(chunk)

    await box.run("head -c 50000000 /dev/zero", sink=count)
    assert size == 50_000_000


async def test_large_output_does_not_block_the_event_loop(box: Sandboxed) -> None:
    size = 0
    most = 0

    def count(chunk: bytes) -> None:
        nonlocal size, most
        size += len(chunk)
        most = max(most, size)

    async def reset() -> None:
        nonlocal size
        while True:
            size = 0
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        resetting = group.create_task(reset())
        await box.run("head -c 200000000 /dev/zero", sink=count)
        resetting.cancel()
    assert most <= 1 << 20, "bytes that arrive in one turn of the loop"


async def test_a_missing_folder_is_an_error_and_leaks_no_descriptor(tmp_path: Path) -> None:
    sandbox = Unsandboxed(str(tmp_path / "gone"))
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(WorkspaceError, match="cannot be started"):
        await sandbox.run("true", timeout=60, sink=lambda chunk: None)
    sandbox.close()
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_sink_that_raises_ends_the_command(box: Sandboxed) -> None:
    def raise_error(chunk: bytes) -> None:
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        await box.run("echo x; NAP", sink=raise_error)
    assert find_processes(box.name) == []


SECRETS = [
    "ANTHROPIC_API_KEY",
    "OPENAI_KEY",
    "GITHUB_TOKEN",
    "HF_TOKEN",
    "CLIENT_SECRET",
    "SECRET_KEY_BASE",
    "PGPASSWORD",
    "DB_PASSWORD",
    "MYSQL_PWD",
    "AWS_ACCESS_KEY_ID",
    "AWS_REGION",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "NPM_AUTH_TOKEN",
    "openai_api_key",
    "GITHUB_PAT",
    "SSH_PRIVATE_KEY",
    "KEY_PASSPHRASE",
]
KEPT = [
    "PATH",
    "HOME",
    "PWD",
    "OLDPWD",
    "LANG",
    "VIRTUAL_ENV",
    "TOKENIZERS_PARALLELISM",
    "SSH_AUTH_SOCK",
    "KEYBOARD",
    "MONKEY",
]


def test_secret_variables_are_removed() -> None:
    assert remove_secrets(dict.fromkeys([*SECRETS, *KEPT], "x")) == dict.fromkeys(KEPT, "x")


async def test_commands_get_no_secret_no_pager_no_colours(tmp_path: Path) -> None:
    os.environ["MUDROOM_TEST_TOKEN"] = "s3cret"
    os.environ["FORCE_COLOR"] = "1"
    try:
        box = Sandboxed(tmp_path)
    finally:
        del os.environ["MUDROOM_TEST_TOKEN"], os.environ["FORCE_COLOR"]
    await box.run("env")
    seen = dict(line.split("=", 1) for line in box.output.decode().splitlines() if "=" in line)
    assert "s3cret" not in box.output.decode()
    assert "FORCE_COLOR" not in seen
    assert (
        seen["TERM"],
        seen["PAGER"],
        seen["GIT_PAGER"],
        seen["GIT_TERMINAL_PROMPT"],
        seen["NO_COLOR"],
    ) == (
        "dumb",
        "cat",
        "cat",
        "0",
        "1",
    )


def make_process(pid: int, parent: int, session: int) -> Process:
    return Process(pid, "S", parent, session, 1, 500)  # all started in the same tick


def test_a_child_with_a_lower_id_than_its_parent_is_found() -> None:
    """Ids begin again after the last one, so a child may have a lower id."""
    processes = [
        make_process(40, 32_700, 32_700),
        make_process(41, 40, 32_700),
        make_process(90, 1, 90),
        make_process(32_700, 32_600, 32_700),
    ]
    marked = {32_700}
    found = select_members(processes, {32_500}, 32_500, marked.__contains__)
    assert [process.pid for process in found] == [32_700, 40, 41]


def test_processes_of_the_session_and_known_ones_are_found_without_a_parent() -> None:
    processes = [make_process(7, 1, 5), make_process(8, 1, 8), make_process(9, 8, 9)]
    found = select_members(processes, {8}, 5, lambda _: False)
    assert {process.pid for process in found} == {7, 8, 9}
