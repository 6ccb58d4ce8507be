"""The bash tool: results of commands with any output."""

from __future__ import annotations

import asyncio
import os
import time

import pytest
from tests.tools.conftest import Call, Run

from mudroom._adapters.sandboxes.choose import SandboxRequest, choose_sandbox
from mudroom._adapters.tools import bash
from mudroom.errors import UsageError

LONG = os.environ.get("MUDROOM_LONG") == "1"


async def test_output_and_exit_code(call: Call) -> None:
    result = await call("bash", command="echo out; echo err >&2")
    assert (result.text, result.error) == ("out\nerr", False)
    failed = await call("bash", command="echo out; exit 3")
    assert (failed.text, failed.error, failed.detail["exit_code"]) == (
        "out\n[exit code 3]",
        True,
        3,
    )
    assert (await call("bash", command="kill -9 $$")).text == "[exit code 137]"
    assert (await call("bash", command="true")).text == "(no output)"


async def test_each_call_starts_in_the_workspace(ctx: Run, call: Call) -> None:
    await call("bash", command="cd / && export X=1")
    assert (await call("bash", command="pwd; echo $X.")).text == f"{ctx.root}\n."


@pytest.mark.parametrize(("timeout", "seconds"), [(1, 1.0), (1_300, 1.3)])
async def test_a_timeout_in_milliseconds_keeps_the_output_so_far_and_is_said_once(
    call: Call, timeout: int, seconds: float
) -> None:
    began = time.monotonic()
    command = "echo before; sleep 300 & sleep 300"
    result = await call("bash", command=command, timeout=timeout)
    assert seconds <= time.monotonic() - began < 60
    ended = f"[timed out after {seconds:g} s; all its processes were ended]"
    assert result.text == f"before\n{ended}"
    assert result.error


def make_notice(processes: str) -> str:
    if not processes:
        return "(no output)"
    return f"[ended {processes} left in the background; use background=true to keep it running]"


@pytest.mark.parametrize("mode", ["off", "file", "full"])
async def test_f11_processes_left_behind_are_told_alike_in_every_tier(
    ctx: Run, call: Call, mode: str
) -> None:
    request = SandboxRequest(
        workspace=str(ctx.root), mode=mode, home=str(ctx.spills), environ=dict(os.environ)
    )
    try:
        sandbox, _ = choose_sandbox(request)
    except UsageError as error:
        pytest.skip(str(error))
    ctx.sandbox = sandbox
    try:
        texts = {command: (await call("bash", command=command)).text for command in LEFT_BEHIND}
    finally:
        sandbox.close()
    assert texts == {command: make_notice(left) for command, left in LEFT_BEHIND.items()}


LEFT_BEHIND = {
    "sleep 300 &": "1 process",
    "nohup sleep 300 > /dev/null 2>&1 &": "1 process",
    "setsid sleep 300 & true": "1 process",
    "sleep 300 & disown": "1 process",
    "(sleep 300 &); true": "1 process",
    "bash -c 'sleep 300 & true'": "1 process",
    "sleep 300 & exec true": "1 process",
    "exec 1>&- 2>&-; sleep 300 &": "1 process",
    "trap '' TERM HUP INT; sleep 300 &": "1 process",
    "sleep 300 & kill -STOP $!": "1 process",
    "sleep 300 & trap 'exit 0' EXIT": "1 process",
    "cat <(sleep 300) & sleep 0.2": "2 processes",
    "sleep 300 & sleep 301 & setsid sleep 302 &": "3 processes",
    # A process that has ended is not left, though its parent has not asked how.
    "bash -c 'sleep 0.2 & echo $! > pid; exec sleep 300' & "
    "while [ ! -s pid ]; do sleep 0.01; done; "
    "while grep -qs '^State:.[RSD]' /proc/$(cat pid)/status; do sleep 0.01; done": "1 process",
    "true | cat; true & wait": "",
    "(true &); sleep 0.1": "",
}
"""Command -> the processes that it leaves."""


async def test_short_output_makes_no_file(ctx: Run, call: Call) -> None:
    result = await call("bash", command="head -c 49000 /dev/zero | tr '\\0' a")
    assert result.text == "a" * 49_000
    assert not result.spill
    assert os.listdir(ctx.spills) == []


@pytest.mark.parametrize("lines", [12_000, 200_000])
async def test_long_output_is_cut_and_kept_whole_in_a_file(
    ctx: Run, call: Call, lines: int
) -> None:
    result = await call("bash", command=f"seq 1 {lines}; exit 1")
    assert len(result.text) <= 50_000
    assert result.text.startswith("1\n2\n3\n")
    assert result.text.endswith(f"\n{lines - 1}\n{lines}\n[exit code 1]")
    size = sum(len(f"{n}\n") for n in range(1, lines + 1))
    assert f"the middle of {size:,} bytes is left out; read {result.spill}" in result.text
    with open(result.spill) as file:
        assert file.read() == "".join(f"{n}\n" for n in range(1, lines + 1))
    assert (await call("read", file_path=result.spill, offset=lines // 2, limit=1)).text.startswith(
        f"{lines // 2}\t{lines // 2}\n"
    )


async def test_long_output_in_wide_characters_is_not_cut_too_early(call: Call) -> None:
    result = await call(
        "bash",
        command=f"for n in $(seq 900); do echo {'中文' * 25}; done",
    )
    assert not result.spill
    assert result.text.count("\n") == 899


async def test_f26_any_bytes_become_valid_text_without_escapes(call: Call) -> None:
    every = r"for n in $(seq 0 255); do printf \\x$(printf %02x $n); done; "
    result = await call("bash", command=every + r"printf '\xed\xa0\x80 end'")
    assert result.text.encode().decode() == result.text
    assert "ABC" in result.text and result.text.endswith("end")
    assert not set(result.text) & set("\0\x1b\x07\x9b")
    colours = r"a\033[1;31mred\033[0m\033]0;title\007\033]8;;http://x\033\\link\0\a\r\nnext\r\n"
    assert (await call("bash", command=f"printf '{colours}'")).text == "aredlink\nnext"
    assert "kept" in (await call("bash", command=r"printf '\033]0; kept'")).text


async def test_a_full_disk_is_reported_and_the_command_continues(ctx: Run, call: Call) -> None:
    ctx.spill_path = lambda name: "/dev/full"
    result = await call("bash", command="seq 1 200000; echo end")
    assert result.text.endswith("end")
    assert "it ends early: No space left on device" in result.text


async def test_a_long_command_is_refused_with_a_remedy(call: Call) -> None:
    assert "write it to a file" in (await call("bash", command="echo " + "x" * 130_000)).text


def read_resident_memory() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize(
    ("size", "command"),
    [
        (96 << 20, "yes 'a line of output' | head -c {size}"),
        (96 << 20, "head -c {size} /dev/zero | tr '\\0' x"),
        pytest.param(
            4 << 30,
            "yes 'a line of output' | head -c {size}",
            marks=pytest.mark.skipif(not LONG, reason="MUDROOM_LONG=1 runs it"),
        ),
    ],
    ids=["lines", "one line", "4 GB"],
)
async def test_f25_output_of_any_size_takes_bounded_memory(
    ctx: Run, call: Call, size: int, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = 256 << 20 if LONG else 16 << 20
    monkeypatch.setattr(bash, "MAX_SPILL_BYTES", kept)
    maximum, before = 0, read_resident_memory()

    async def watch() -> None:
        nonlocal maximum
        while True:
            maximum = max(maximum, read_resident_memory())
            await asyncio.sleep(0.01)

    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch())
        result = await call("bash", command=command.format(size=size), timeout=600_000)
        watching.cancel()
    assert result.detail["bytes"] == size
    assert len(result.text) <= 50_000
    assert max(maximum, read_resident_memory()) - before <= 32 << 20
    assert os.path.getsize(result.spill) <= kept + 100
    with open(result.spill, "rb") as file:
        file.seek(-100, os.SEEK_END)
        end = f"\n[cut: this file holds the first {kept >> 20} MiB of the output]\n"
        assert file.read().endswith(end.encode())
    os.unlink(result.spill)
