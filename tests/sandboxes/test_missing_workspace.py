"""A workspace that is removed while the sandbox is open."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from mudroom._adapters.sandboxes import detect
from mudroom._adapters.sandboxes.linux.bubblewrap import BubblewrapSandbox
from mudroom._adapters.sandboxes.linux.landlock import LandlockSandbox
from mudroom._core.ports import CommandResult, Sandbox
from mudroom.errors import WorkspaceError

FOUND = detect.run_probes(detect.find_bwrap(os.environ, "/nonexistent"), tempfile.gettempdir())


@pytest.fixture(params=["full", "file"])
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Sandbox:
    (tmp_path / "proj").mkdir()
    root, away = str(tmp_path / "proj"), str(tmp_path / "away")
    if FOUND.no_full_reason if request.param == "full" else FOUND.no_file_reason:
        pytest.skip("this sandbox is not available here")
    if request.param == "full":
        return BubblewrapSandbox(
            root,
            FOUND.bwrap,
            quarantine=away,
            environ={"PATH": os.defpath},
            keep_root_uid=bool(FOUND.no_other_user_reason),
        )
    return LandlockSandbox(root, quarantine=away, environ={"PATH": os.defpath})


async def test_a_missing_workspace_is_an_error(box: Sandbox, tmp_path: Path) -> None:
    assert (await box.run("true", timeout=60, sink=lambda _: None)) == CommandResult(0)
    shutil.rmtree(tmp_path / "proj")
    for _ in range(2):
        with pytest.raises(WorkspaceError, match=r"was not run|cannot be read"):
            await box.run("echo x > file", timeout=60, sink=lambda _: None)
