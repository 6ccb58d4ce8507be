"""Attacks on the workspace: nothing outside is read, written or listed, and nothing hangs."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from mudroom._adapters.workspaces.shared import SharedWorkspace
from mudroom._core.ports import FileInfo
from mudroom.errors import WorkspaceError

TRIES = 400_000 if os.environ.get("MUDROOM_LONG") else 20_000


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "proj-secret"
    folder.mkdir()
    (folder / "key").write_text("SECRET")
    return folder


@pytest.fixture(params=[True, False], ids=["openat2", "steps"])
def space(request: pytest.FixtureRequest, tmp_path: Path, outside: Path) -> SharedWorkspace:
    root = tmp_path / "proj"
    (root / "in").mkdir(parents=True)
    (root / "in" / "key").write_text("public")
    return SharedWorkspace(str(root), kernel=request.param)


def list_acts(space: SharedWorkspace) -> list[Callable[[str], object]]:
    def replace(path: str) -> bool:
        return space.write(path, b"x")

    def walk(path: str) -> list[FileInfo]:
        return list(space.walk(path))

    return [space.open, space.stat, replace, walk]


def assert_refused(space: SharedWorkspace, path: str, outside: Path) -> None:
    for act in list_acts(space):
        with pytest.raises(WorkspaceError):
            act(path)
    assert (outside / "key").read_text() == "SECRET"
    assert os.listdir(outside) == ["key"]


def test_43_a_sibling_whose_name_begins_alike_is_outside(
    space: SharedWorkspace, outside: Path
) -> None:
    assert_refused(space, str(outside / "key"), outside)
    assert_refused(space, "../proj-secret/key", outside)
    assert_refused(space, "\ud800", outside)
    with pytest.raises(WorkspaceError, match=r"is outside the workspace .*\. Use a path inside"):
        space.locate(str(outside / "key"))


@pytest.mark.parametrize("absolute", [True, False])
def test_45_a_link_that_leads_out_is_not_followed(
    space: SharedWorkspace, outside: Path, absolute: bool
) -> None:
    target = str(outside) if absolute else "../proj-secret"
    os.symlink(target, f"{space.root}/folder")
    os.symlink(f"{target}/key", f"{space.root}/file")
    os.symlink(f"{target}/new", f"{space.root}/dangling")
    for path in ("folder/key", "file", "dangling", "folder/new", "folder/deeper/new"):
        assert_refused(space, path, outside)


def test_45_a_link_that_stays_inside_is_followed_by_the_kernel_only(
    tmp_path: Path, outside: Path
) -> None:
    root = tmp_path / "proj"
    root.mkdir()
    (root / "real").write_text("old")
    (root / "link").symlink_to("real")
    followed, strict = (
        SharedWorkspace(str(root), kernel=True),
        SharedWorkspace(str(root), kernel=False),
    )
    followed.write("link", b"new")
    assert (root / "real").read_text() == "new"
    assert (root / "link").is_symlink()
    assert_refused(strict, "link", outside)


def test_45_links_of_proc_are_not_followed(space: SharedWorkspace, outside: Path) -> None:
    os.symlink(f"/proc/self/root{outside}/key", f"{space.root}/magic")
    assert_refused(space, "magic", outside)


@contextmanager
def swapping(space: SharedWorkspace, outside: Path) -> Generator[None]:
    """Exchange the folder `in` and a link to the outside, as fast as can be."""
    stop = threading.Event()
    libc = ctypes.CDLL(None)
    one, other = (f"{space.root}/{name}".encode() for name in ("in", "out"))
    os.symlink(str(outside), other)

    def swap() -> None:
        while not stop.is_set():
            libc.renameat2(-100, one, -100, other, 2)

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        if os.path.islink(one):
            libc.renameat2(-100, one, -100, other, 2)
        os.unlink(other)


def test_46_a_folder_swapped_for_a_link_while_it_is_opened_leaks_nothing(
    space: SharedWorkspace, outside: Path
) -> None:
    leaks = opened = 0
    with swapping(space, outside):
        for _ in range(TRIES):
            try:
                descriptor = space.open("in/key")
            except WorkspaceError:
                continue
            opened += 1
            leaks += os.read(descriptor, 10) == b"SECRET"
            os.close(descriptor)
    assert leaks == 0
    assert opened > 0


def test_46_a_write_and_a_walk_in_the_same_race_stay_inside(
    space: SharedWorkspace, outside: Path
) -> None:
    with swapping(space, outside):
        for n in range(300):
            with suppress(WorkspaceError):
                space.write("in/new", str(n).encode())
    assert os.listdir(outside) == ["key"]
    (outside / "only_outside").write_text("")
    with swapping(space, outside):
        seen = {info.path for _ in range(500) for info in space.walk()}
    assert not [path for path in seen if path.endswith("only_outside")]


def test_48_pipes_sockets_and_devices_are_refused_and_never_wait(
    space: SharedWorkspace, outside: Path
) -> None:
    os.mkfifo(f"{space.root}/pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{space.root}/socket")
        for path in ("pipe", "socket"):
            for act in (space.open, space.stat):
                with pytest.raises(WorkspaceError, match="not a regular file"):
                    act(path)
        assert [info.path for info in space.walk()] == ["in/key"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a device")
def test_48_a_device_is_refused(space: SharedWorkspace) -> None:
    os.mknod(f"{space.root}/zero", 0o20666, os.makedev(1, 5))
    with pytest.raises(WorkspaceError, match="is a device, not a regular file"):
        space.open("zero")


def test_a_gitignore_that_is_a_link_or_a_pipe_is_not_read(
    space: SharedWorkspace, outside: Path
) -> None:
    (outside / "patterns").write_text("*\n")
    os.symlink(str(outside / "patterns"), f"{space.root}/.gitignore")
    os.mkfifo(f"{space.root}/in/.gitignore")
    assert [info.path for info in space.walk()] == ["in/key"]
