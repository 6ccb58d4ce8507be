"""Cost of the sandbox tiers: the time of one `true`, and commands per second with 32 at once.

"bare" is the least that bubblewrap can do: three namespaces over the whole file system.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time

from mudroom._adapters.sandboxes import detect
from mudroom._adapters.sandboxes.linux.bubblewrap import BubblewrapSandbox
from mudroom._adapters.sandboxes.linux.landlock import LandlockSandbox
from mudroom._adapters.sandboxes.unsandboxed import Unsandboxed
from mudroom._core.ports import Sandbox

BARE = [
    "--unshare-user",
    "--unshare-pid",
    "--unshare-net",
    "--ro-bind",
    "/",
    "/",
    "--proc",
    "/proc",
]
ROUNDS = 100
CONCURRENT = 32
COMMANDS = 400


def drop(_: bytes) -> None:
    """Ignore output."""


def open_sandboxes(workspace: str) -> dict[str, Sandbox]:
    """Return the tiers that work on this machine, tier off first."""
    detected = detect.run_probes(detect.find_bwrap(os.environ, workspace), workspace)
    quarantine = os.path.join(workspace, "quarantine")
    sandboxes: dict[str, Sandbox] = {"off": Unsandboxed(workspace)}
    if not detected.no_full_reason:
        prefix = [detected.bwrap, *BARE, "--", "/bin/bash", "-c"]
        sandboxes["bare"] = Unsandboxed(workspace, make_argv=lambda command: [*prefix, command])
        sandboxes["full"] = BubblewrapSandbox(
            workspace,
            detected.bwrap,
            quarantine=quarantine,
            environ=os.environ,
            keep_root_uid=bool(detected.no_other_user_reason),
        )
    if not detected.no_file_reason:
        sandboxes["file"] = LandlockSandbox(workspace, quarantine=quarantine, environ=os.environ)
    return sandboxes


async def measure() -> None:
    """Print one line for each tier. The tiers take turns, so that all meet the same load."""
    with tempfile.TemporaryDirectory() as workspace:
        sandboxes = open_sandboxes(workspace)
        times: dict[str, list[float]] = {name: [] for name in sandboxes}
        for sandbox in sandboxes.values():
            await sandbox.run("true", timeout=20, sink=drop)
        for _ in range(ROUNDS):
            for name, sandbox in sandboxes.items():
                began = time.perf_counter()
                await sandbox.run("true", timeout=20, sink=drop)
                times[name].append((time.perf_counter() - began) * 1000)
        off = statistics.median(times["off"])
        for name, sandbox in sandboxes.items():
            median = statistics.median(times[name])
            p95 = sorted(times[name])[ROUNDS * 95 // 100]
            print(
                f"{name:5} {median:6.1f} ms median (+{median - off:.1f}), {p95:6.1f} ms p95, "
                f"{await measure_commands_per_second(sandbox):5.0f} commands/s"
            )


async def measure_commands_per_second(sandbox: Sandbox) -> float:
    """Return the commands per second with CONCURRENT running."""
    slots = asyncio.Semaphore(CONCURRENT)

    async def run_one() -> None:
        async with slots:
            await sandbox.run("true", timeout=60, sink=drop)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(COMMANDS):
            group.create_task(run_one())
    return COMMANDS / (time.perf_counter() - began)


if __name__ == "__main__":
    asyncio.run(measure())
