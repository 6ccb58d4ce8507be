"""Temporary files of writes: those of dead processes are removed, those of live ones stay."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from mudroom._adapters.workspaces.shared import SharedWorkspace
from mudroom._platform.protected_names import is_protected


def test_s3_a_sweep_keeps_the_temporary_file_of_a_running_write(tmp_path: Path) -> None:
    workspace, over = SharedWorkspace(str(tmp_path)), threading.Event()

    def sweep() -> None:
        while not over.is_set():
            workspace.remove_unfinished("other.txt")

    sweeping = threading.Thread(target=sweep)
    sweeping.start()
    try:
        for n in range(200):
            workspace.write("a.txt", b"%d" % n)
    finally:
        over.set()
        sweeping.join()
    assert (tmp_path / "a.txt").read_bytes() == b"199"


def test_s3_a_sweep_removes_the_temporary_file_of_a_dead_process(tmp_path: Path) -> None:
    dead = (
        subprocess.run(
            [sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True
        )
        .stdout.decode()
        .strip()
    )
    (tmp_path / f".mudroom-unfinished-{dead}-00ff").touch()
    (tmp_path / f".mudroom-unfinished-{os.getpid()}-00ff").touch()
    (tmp_path / "notes.txt").touch()
    (tmp_path / f"notes-{dead}-00ff").touch()
    SharedWorkspace(str(tmp_path)).remove_unfinished("a.txt")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f".mudroom-unfinished-{os.getpid()}-00ff",
        f"notes-{dead}-00ff",
        "notes.txt",
    ]


def test_a_sandbox_does_not_protect_temporary_files() -> None:
    assert (
        is_protected(".mudroom")
        and is_protected(".Mudroom.toml")
        and not is_protected(".mudroom-unfinished-12-00ff")
    )
