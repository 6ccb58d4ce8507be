"""What walls cost: the time of one `true` in each tier beside a plain start, and how many a second, 32 at once.

"bare" is the least that bubblewrap does: three namespaces over the whole file system. Below it no profile of its comes.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time

from mudroom._core.ports import Sandbox
from mudroom.sandboxes import detect
from mudroom.sandboxes.linux.bubblewrap import BubblewrapSandbox
from mudroom.sandboxes.linux.landlock import LandlockSandbox
from mudroom.sandboxes.unsandboxed import Unsandboxed

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
TIMES, AT_ONCE, MANY = 100, 32, 400


def drop(_: bytes) -> None:
    """A sink for output nobody wants."""


def sandboxes(root: str) -> dict[str, Sandbox]:
    """All this machine has, the plain one first."""
    found, away = (
        detect.run_probes(detect.find_bwrap(os.environ, root), root),
        os.path.join(root, "away"),
    )
    made: dict[str, Sandbox] = {"off": Unsandboxed(root)}
    if not found.no_full_reason:
        made["bare"] = Unsandboxed(
            root, make_argv=lambda command: [found.bwrap, *BARE, "--", "/bin/bash", "-c", command]
        )
        made["full"] = BubblewrapSandbox(
            root,
            found.bwrap,
            quarantine=away,
            environ=os.environ,
            keep_root_uid=bool(found.no_other_user_reason),
        )
    if not found.no_file_reason:
        made["file"] = LandlockSandbox(root, quarantine=away, environ=os.environ)
    return made


async def measure() -> None:
    """Print a line for each: median, 95th percentile, commands a second. The three take turns, so that all meet the same machine."""
    with tempfile.TemporaryDirectory() as root:
        boxes = sandboxes(root)
        spent: dict[str, list[float]] = {name: [] for name in boxes}
        for box in boxes.values():
            await box.run("true", timeout=20, sink=drop)
        for _ in range(TIMES):
            for name, box in boxes.items():
                began = time.perf_counter()
                await box.run("true", timeout=20, sink=drop)
                spent[name].append((time.perf_counter() - began) * 1000)
        floor = statistics.median(spent["off"])
        for name, box in boxes.items():
            median, late = statistics.median(spent[name]), sorted(spent[name])[TIMES * 95 // 100]
            print(
                f"{name:5} {median:6.1f} ms median (+{median - floor:.1f}), {late:6.1f} ms p95, {await rate(box):5.0f} commands/s"
            )


async def rate(box: Sandbox) -> float:
    """Commands a second with AT_ONCE running."""
    places = asyncio.Semaphore(AT_ONCE)

    async def one() -> None:
        async with places:
            await box.run("true", timeout=60, sink=drop)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(MANY):
            group.create_task(one())
    return MANY / (time.perf_counter() - began)


if __name__ == "__main__":
    asyncio.run(measure())
