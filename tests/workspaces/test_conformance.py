"""All workspaces and wrappers of workspaces pass the conformance suite."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.workspaces.remote import RemoteWorkspace

from mudroom._adapters.workspaces.copy import make_temporary_copy
from mudroom._adapters.workspaces.shared import SharedWorkspace
from mudroom._core.ports import Workspace
from mudroom._engine.file_writes import RecordedWorkspace
from mudroom.permissions.policy import FilteredWorkspace
from mudroom.testing.workspace_conformance import CHECKS, Check

KINDS = ("openat2", "steps", "copy", "remote", "recorded", "filtered", "filtered remote")


@pytest.fixture(params=KINDS)
def workspace(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workspace]:
    root = tmp_path / "root"
    root.mkdir()
    shared = SharedWorkspace(str(root), kernel=request.param != "steps")
    remote = RemoteWorkspace(shared)
    with ExitStack() as stack:
        match request.param:
            case "copy":
                folder, _ = stack.enter_context(make_temporary_copy(shared, threading.Event()))
                yield SharedWorkspace(folder, copied_from=shared.root)
            case "remote":
                yield remote
            case "recorded":
                yield RecordedWorkspace(shared, lambda write: None, lambda path, is_written: None)
            case "filtered":
                yield FilteredWorkspace(shared, lambda path: "")
            case "filtered remote":
                yield FilteredWorkspace(remote, lambda path: "")
            case _:
                yield shared


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_a_workspace_passes_the_suite(check: Check, workspace: Workspace) -> None:
    check(lambda: workspace)
