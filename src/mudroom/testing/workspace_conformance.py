"""Conformance suite for workspaces. An adapter's tests run each of `CHECKS` against it:

    @pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
    def test_workspace(check, tmp_path):
        check(lambda: MyWorkspace(tmp_path))

Each check opens a new, empty, writable workspace.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable

from .._core.ports import Workspace
from ..errors import WorkspaceError
from ._checks import collect_checks

OpenWorkspace = Callable[[], Workspace]
Check = Callable[[OpenWorkspace], None]


def check_read_returns_what_was_written(open_workspace: OpenWorkspace) -> None:
    """Check that a file is read back, whole or in parts."""
    workspace = open_workspace()
    data = bytes(range(256)) * 20_000
    workspace.write("a/b/data", data)
    assert workspace.read("a/b/data", 0, len(data) + 10) == data
    assert workspace.read("a/b/data", 256, 3) == b"\0\1\2"
    assert workspace.read("a/b/data", len(data) - 2, 10) == b"\xfe\xff"
    assert workspace.read("a/b/data", len(data), 10) == b""
    assert workspace.read("a/b/data", len(data) + 5, 10) == b""
    assert workspace.read("a/b/data", 0, 0) == b""


def check_write_tells_new_files_from_old_ones(open_workspace: OpenWorkspace) -> None:
    """Check that `write` returns True for a new file, and replaces an old one completely."""
    workspace = open_workspace()
    assert workspace.write("new", b"a longer text") is True
    assert workspace.write("new", b"short") is False
    assert workspace.read("new", 0, 100) == b"short"
    workspace.write("empty", b"")
    assert workspace.read("empty", 0, 100) == b""
    assert workspace.stat("empty").size == 0


def check_write_keeps_the_mode(open_workspace: OpenWorkspace) -> None:
    """Check that a mode is set when it is passed, and kept when it is not."""
    workspace = open_workspace()
    workspace.write("run.sh", b"#!/bin/sh\n", mode=0o755)
    workspace.write("run.sh", b"#!/bin/bash\n")
    assert stat.S_IMODE(workspace.stat("run.sh").mode) == 0o755


def check_readers_see_the_old_or_the_new_file(open_workspace: OpenWorkspace) -> None:
    """Check that a reader never sees part of a write."""
    workspace = open_workspace()
    old = b"a" * 100_000
    new = b"b" * 100_000
    workspace.write("file", old)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            workspace.write("file", new)
            workspace.write("file", old)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = {workspace.read("file", 0, 200_000) for _ in range(100)}
    finally:
        stop.set()
        writer.join()
    assert seen <= {old, new}


def check_paths_have_one_form(open_workspace: OpenWorkspace) -> None:
    """Check that all paths of one file are located as the same relative path."""
    workspace = open_workspace()
    assert os.path.isabs(workspace.root)
    paths = ("a/b", "./a/b", "a/./b", "a/c/../b", f"{workspace.root}/a/b")
    assert {workspace.locate(path) for path in paths} == {"a/b"}
    assert workspace.locate(".") == workspace.locate(workspace.root) == "."


def check_paths_outside_are_refused(open_workspace: OpenWorkspace) -> None:
    """Check that no method accepts a path outside the workspace, or an impossible path."""
    workspace = open_workspace()
    for path in ("../x", "/etc/passwd", "a/../../x", f"{workspace.root}-other/x", "", "a\0b"):
        _refuses(lambda path=path: workspace.locate(path))
        _refuses(lambda path=path: workspace.stat(path))
        _refuses(lambda path=path: workspace.read(path, 0, 10))
        _refuses(lambda path=path: workspace.write(path, b"x"))
        _refuses(lambda path=path: workspace.remove(path))
        _refuses(lambda path=path: list(workspace.walk(path)))


def check_protected_files_are_not_written(open_workspace: OpenWorkspace) -> None:
    """Check that files controlling the user's other programs are neither written nor removed."""
    workspace = open_workspace()
    for path in (".git/config", ".bashrc", "sub/.vscode/tasks.json"):
        _refuses(lambda path=path: workspace.write(path, b"x"))
        _refuses(lambda path=path: workspace.remove(path))


def check_stat_tells_files_from_folders(open_workspace: OpenWorkspace) -> None:
    """Check that `stat` returns size, type and path, and refuses a missing file."""
    workspace = open_workspace()
    workspace.write("folder/file", b"12345")
    file = workspace.stat("./folder/file")
    assert (file.path, file.size, stat.S_ISREG(file.mode)) == ("folder/file", 5, True)
    assert file.mtime > 0
    assert stat.S_ISDIR(workspace.stat("folder").mode)
    assert stat.S_ISDIR(workspace.stat(".").mode)
    _refuses(lambda: workspace.stat("none"))


def check_folders_are_not_files(open_workspace: OpenWorkspace) -> None:
    """Check that a folder is neither read, nor replaced, nor removed."""
    workspace = open_workspace()
    workspace.write("folder/file", b"x")
    for path in ("folder", "."):
        _refuses(lambda path=path: workspace.read(path, 0, 1))
        _refuses(lambda path=path: workspace.write(path, b"x"))
        _refuses(lambda path=path: workspace.remove(path))
    _refuses(lambda: workspace.read("folder/none", 0, 1))
    _refuses(lambda: workspace.write("folder/file/below", b"x"))


def check_remove_removes_one_file(open_workspace: OpenWorkspace) -> None:
    """Check that a removed file is gone, and removing it again is an error."""
    workspace = open_workspace()
    workspace.write("folder/a", b"x")
    workspace.write("folder/b", b"x")
    workspace.remove("folder/a")
    assert [info.path for info in workspace.walk()] == ["folder/b"]
    _refuses(lambda: workspace.remove("folder/a"))
    workspace.remove_unfinished("folder/b")
    workspace.remove_unfinished("nowhere/c")


def check_walk_lists_sorted_files(open_workspace: OpenWorkspace) -> None:
    """Check that `walk` yields the files below a folder, or the file itself, sorted."""
    workspace = open_workspace()
    for path in ("b/2", "b/1", "a", "c/d/e"):
        workspace.write(path, path.encode())
    assert [info.path for info in workspace.walk()] == ["a", "b/1", "b/2", "c/d/e"]
    assert [info.path for info in workspace.walk("b")] == ["b/1", "b/2"]
    assert [(info.path, info.size) for info in workspace.walk("c/d/e")] == [("c/d/e", 5)]
    _refuses(lambda: list(workspace.walk("none")))


def check_walk_leaves_out_what_git_ignores(open_workspace: OpenWorkspace) -> None:
    """Check that `walk` leaves out ignored files unless asked for all files."""
    workspace = open_workspace()
    workspace.write(".gitignore", b"*.log\n/build/\n!keep.log\n")
    workspace.write("sub/.gitignore", b"local\n")
    for path in ("a.log", "keep.log", "build/x", "sub/build/x", "sub/local", "main.py"):
        workspace.write(path, b"")
    listed = [info.path for info in workspace.walk()]
    kept = [".gitignore", "keep.log", "main.py", "sub/.gitignore", "sub/build/x"]
    assert listed == kept
    everything = {info.path for info in workspace.walk(ignored=True)}
    assert everything == {*kept, "a.log", "build/x", "sub/local"}


def check_walk_entries_lists_everything(open_workspace: OpenWorkspace) -> None:
    """Check that `walk_entries` yields folders, and folders that git ignores without content."""
    workspace = open_workspace()
    workspace.write(".gitignore", b"*.log\nbuild/\n")
    for path in ("a.log", "build/x", "sub/y"):
        workspace.write(path, b"")
    infos = list(workspace.walk_entries())
    assert [info.path for info in infos] == [".gitignore", "a.log", "build", "sub", "sub/y"]
    assert [info.path for info in infos if info.ignored] == ["a.log", "build"]
    assert [info.path for info in infos if stat.S_ISDIR(info.mode)] == ["build", "sub"]
    assert [info.path for info in workspace.walk_entries("build", ignored=True)] == ["build/x"]
    everything = [info.path for info in workspace.walk_entries(ignored=True)]
    assert everything == [".gitignore", "a.log", "build", "build/x", "sub", "sub/y"]
    _refuses(lambda: list(workspace.walk_entries("none")))


def check_open_files_hold_the_same_bytes(open_workspace: OpenWorkspace) -> None:
    """Check that a local workspace opens the same files that it reads, and nothing outside."""
    workspace = open_workspace()
    if workspace.local is None:
        return
    workspace.write("file", b"text")
    with os.fdopen(workspace.local.open("file"), "rb") as file:
        assert file.read() == b"text"
    local = workspace.local
    for path in ("../x", "/etc/passwd", "none", "."):
        _refuses(lambda path=path: local.open(path))


def _refuses(act: Callable[[], object]) -> None:
    try:
        act()
    except WorkspaceError:
        return
    raise AssertionError("WorkspaceError was not raised")


CHECKS: tuple[Check, ...] = collect_checks(globals())
