"""Time until a snapshot of a repository is ready on another machine, beside `cp -a` of its files.

`python -m benchmarks.snapshots [FILES [ROUNDS]]`. Session and machine are two folders here, and the
pack is a file, so what a network adds is not in it. Each round makes new ones.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory

from msgspec import Struct
from msgspec.structs import astuple

from mudroom._adapters.workspaces.isolated.node_workspaces import NodeWorkspaces, describe_source
from mudroom._adapters.workspaces.isolated.workspaces import IsolatedWorkspaces
from mudroom._core.ports import SourceFacts
from mudroom._core.runs import Work

_FILES = 10_000
_ROUNDS = 3
_FILE_BYTES = 2_800
_LETTERS = "abcdefgh \n"


class _Carrier:
    """The port TreeCarrier between two folders, which counts the seconds of packs."""

    def __init__(self, session: IsolatedWorkspaces) -> None:
        self._session = session
        self.seconds = 0.0

    def describe_source(self) -> SourceFacts:
        return describe_source(self._session.store)

    def fetch(self, tree: str, known: list[str], path: str, stop: threading.Event) -> None:
        start = time.perf_counter()
        self._session.store.pack_trees([tree], known, path)
        self.seconds += time.perf_counter() - start

    def send(self, run_id: str, work: Work, path: str) -> None:
        raise AssertionError("no run works on these files")

    def mark_merged(self, run_id: str) -> None:
        raise AssertionError("no run works on these files")


class _Times(Struct, frozen=True):
    """Seconds of one round.

    Arguments:
        read: the session reads all files once.
        pack: the pack is written. ready: the snapshot is ready, the pack included.
        second: the next child gets the snapshot.
        before, after: `cp -a` before and after.
    """

    before: float
    read: float
    pack: float
    ready: float
    second: float
    after: float


def _make_files(folder: Path, count: int) -> None:
    random = Random(1)
    for number in range(count):
        path = folder / f"{number % 100}" / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(random.choices(_LETTERS, k=_FILE_BYTES)))
    for command in (
        ["init", "-q"],
        ["add", "--all"],
        ["-c", "user.name=a", "-c", "user.email=a@localhost", "commit", "-qm", "Add files"],
        ["repack", "-adq"],  # as in a clone
    ):
        subprocess.run(["git", "-c", "gc.auto=0", "-C", str(folder), *command], check=True)


def _copy(source: Path, target: Path) -> float:
    target.mkdir()
    files = [str(path) for path in source.iterdir() if path.name != ".git"]
    start = time.perf_counter()
    subprocess.run(["cp", "-a", *files, str(target)], check=True)
    return time.perf_counter() - start


def _measure(source: Path, folder: Path) -> _Times:
    before = _copy(source, folder / "copy before")
    session = IsolatedWorkspaces(str(folder / "session"), str(source), str(folder / "home"))
    carrier = _Carrier(session)
    node = NodeWorkspaces(str(folder / "node"), str(source), str(folder / "other"), carrier)
    start = time.perf_counter()
    tree = session.store.store_source().tree
    read = time.perf_counter() - start
    start = time.perf_counter()
    with node.open_snapshot(tree, threading.Event(), same_path=False):
        ready = time.perf_counter() - start
    start = time.perf_counter()
    with node.open_snapshot(tree, threading.Event(), same_path=False):
        second = time.perf_counter() - start
    return _Times(
        before, read, carrier.seconds, ready, second, _copy(source, folder / "copy after")
    )


def main() -> None:
    """Measure some rounds and print each, and the median ratio."""
    files, rounds = (*map(int, sys.argv[1:3]), *(_FILES, _ROUNDS)[len(sys.argv) - 1 :])
    ratios: list[float] = []
    print("cp -a before, read, pack, ready, second child, cp -a after (seconds)")
    with TemporaryDirectory(prefix="mudroom-bench-") as name:
        source = Path(name, "source")
        _make_files(source, files)
        for number in range(rounds):
            folder = Path(name, f"round {number}")
            folder.mkdir()
            times = _measure(source, folder)
            print(*(f"{each:8.4f}" for each in astuple(times)), flush=True)
            ratios.append(times.ready * 2 / (times.before + times.after))
    print(f"ready / cp -a: {median(ratios):.2f} (median of {rounds} rounds)")


if __name__ == "__main__":
    main()
