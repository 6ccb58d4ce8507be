"""Writes: what a failure says, what a file keeps, and what a user saves meanwhile."""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from mudroom._adapters.workspaces._atomic_write import write_atomically
from mudroom._adapters.workspaces.shared import SharedWorkspace
from mudroom._core.ports import FileChangedError, LinkTarget
from mudroom._engine.file_writes import hash_present
from mudroom.errors import WorkspaceError


def test_a_folder_that_cannot_be_made_durable_is_the_error(tmp_path: Path) -> None:
    # A descriptor of this kind allows the rename, but no fsync.
    folder = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    try:
        with pytest.raises(OSError) as raised:
            write_atomically(folder, "file", b"text", None, None)
    finally:
        os.close(folder)
    assert raised.value.errno == errno.EBADF
    assert (tmp_path / "file").read_bytes() == b"text"
    assert os.listdir(tmp_path) == ["file"]


def test_other_names_of_a_file_lead_to_the_new_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old and long")
    os.chmod(tmp_path / "a", 0o640)
    os.link(tmp_path / "a", tmp_path / "b")
    workspace = SharedWorkspace(str(tmp_path))
    for data in (b"new", b"new and much longer than before", b""):
        workspace.write("a", data)
        assert (tmp_path / "b").read_bytes() == data
    assert os.path.samefile(tmp_path / "a", tmp_path / "b")
    assert stat.S_IMODE(os.stat(tmp_path / "a").st_mode) == 0o640
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_a_file_with_other_names_keeps_its_content_when_there_is_no_room(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    os.link(tmp_path / "a", tmp_path / "b")
    workspace = SharedWorkspace(str(tmp_path))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
    try:
        with pytest.raises(WorkspaceError):
            workspace.write("a", b"x" * 1_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert (tmp_path / "b").read_bytes() == b"old"


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="extended attributes need Linux")
def test_a_file_keeps_its_extended_attributes(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"old")
    try:
        os.setxattr(tmp_path / "a", "user.origin", b"scanner")
    except OSError:
        pytest.skip("the file system has no extended attributes")
    SharedWorkspace(str(tmp_path)).write("a", b"new")
    assert os.getxattr(tmp_path / "a", "user.origin") == b"scanner"


ACCESS_LIST = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", *entry)
    for entry in [
        (0x01, 6, 0xFFFFFFFF),
        (0x02, 6, 12_345),
        (0x04, 4, 0xFFFFFFFF),
        (0x10, 6, 0xFFFFFFFF),
        (0x20, 0, 0xFFFFFFFF),
    ]
)
"""A POSIX access list: version, then tag, rights and id. The user 12345 may read and write."""


@pytest.mark.skipif(not hasattr(os, "setxattr"), reason="extended attributes need Linux")
def test_a_file_keeps_its_access_list_and_gets_none_of_the_folder(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_bytes(b"old")
    try:
        os.setxattr(tmp_path / "a", "system.posix_acl_access", ACCESS_LIST)
        os.setxattr(tmp_path, "system.posix_acl_default", ACCESS_LIST)
    except OSError:
        pytest.skip("the file system has no access lists")
    workspace = SharedWorkspace(str(tmp_path))
    mode = os.stat(tmp_path / "b").st_mode
    for name in ("a", "b"):
        workspace.write(name, b"new")
    assert os.getxattr(tmp_path / "a", "system.posix_acl_access") == ACCESS_LIST
    assert "system.posix_acl_access" not in os.listxattr(tmp_path / "b")
    assert os.stat(tmp_path / "b").st_mode == mode


WRITE_AS_ANOTHER_USER = """
import os, sys
from mudroom._adapters.workspaces.shared import SharedWorkspace
SharedWorkspace(sys.argv[1]).read("a", 0, 1)  # imports all, before the rights are gone
os.setgroups([])
os.setgid(12_345)
os.setuid(12_345)
SharedWorkspace(sys.argv[1]).write("a", b"new")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make files of other users")
def test_a_file_of_another_user_keeps_its_owner() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)
        file = Path(folder, "a")
        file.write_bytes(b"old")
        os.chmod(file, 0o666)
        subprocess.run([sys.executable, "-c", WRITE_AS_ANOTHER_USER, folder], check=True)
        assert file.read_bytes() == b"new"
        assert (os.stat(file).st_uid, os.listdir(folder)) == (0, ["a"])


Action = Callable[[Path], object]


def replace_file(path: Path) -> None:
    new = path.with_name("new")
    new.write_text("user")
    new.rename(path)


@pytest.fixture
def workspace(tmp_path: Path) -> SharedWorkspace:
    (tmp_path / "a.txt").write_text("old")
    return SharedWorkspace(str(tmp_path))


class UserBetween:
    """A check that lets the user write the file after it has seen the old content."""

    def __init__(self, path: Path, expected: bytes | None, action: Action) -> None:
        self._path = path
        self._expected = expected
        self._action: Action | None = action

    def __call__(self, data: bytes | None) -> bool:
        if self._action:
            self._action(self._path)
            self._action = None
        return data == self._expected


ACTIONS: dict[str, Action] = {
    "in place": lambda path: path.write_text("user"),
    "by a rename": replace_file,
}


@pytest.mark.parametrize("name", ACTIONS)
def test_a_file_that_a_user_saves_during_a_write_stays(
    tmp_path: Path, workspace: SharedWorkspace, name: str
) -> None:
    check = UserBetween(tmp_path / "a.txt", b"old", ACTIONS[name])
    with pytest.raises(FileChangedError):
        workspace.write("a.txt", b"merged", check=check)
    assert (tmp_path / "a.txt").read_text() == "user"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_a_file_that_a_user_makes_or_removes_during_a_write_is_as_the_user_has_it(
    tmp_path: Path, workspace: SharedWorkspace
) -> None:
    check = UserBetween(tmp_path / "b.txt", None, lambda path: path.write_text("user"))
    with pytest.raises(FileChangedError):
        workspace.write("b.txt", b"merged", check=check)
    assert (tmp_path / "b.txt").read_text() == "user"
    with pytest.raises(FileChangedError):
        workspace.write(
            "a.txt", b"merged", check=UserBetween(tmp_path / "a.txt", b"old", Path.unlink)
        )
    assert [path.name for path in tmp_path.iterdir()] == ["b.txt"]


def test_a_file_that_is_not_as_expected_is_not_removed(
    tmp_path: Path, workspace: SharedWorkspace
) -> None:
    with pytest.raises(FileChangedError):
        workspace.remove("a.txt", check=lambda data: data == b"other")
    assert (tmp_path / "a.txt").read_text() == "old"
    workspace.remove("a.txt", check=lambda data: data == b"old")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_is_as_expected_is_written(tmp_path: Path, workspace: SharedWorkspace) -> None:
    assert not workspace.write("a.txt", b"new", check=lambda data: data == b"old", mode=0o755)
    assert workspace.write("deep/b.txt", b"new", check=lambda data: data is None)
    assert (tmp_path / "a.txt").read_text() == "new"
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o755
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "deep"]


def test_a_checked_write_replaces_a_link_and_leaves_its_target(tmp_path: Path) -> None:
    (tmp_path / "target").write_text("target\n")
    link = tmp_path / "link"
    link.symlink_to("target")
    folder = SharedWorkspace(str(tmp_path))
    checked: list[bytes | None] = []

    def check(data: bytes | None) -> bool:
        checked.append(data)
        return isinstance(data, LinkTarget)

    folder.write("link", b"file\n", mode=0o100644, check=check)
    assert (link.is_symlink(), link.read_text()) == (False, "file\n")
    assert checked[0] == b"target"
    with pytest.raises(FileChangedError):
        folder.write("link", b"other", mode=0o120000, check=check)
    folder.write("link", b"other", mode=0o120000)
    assert os.readlink(link) == "other"
    assert (tmp_path / "target").read_text() == "target\n"
    assert folder.read_link("link") == b"other"
    assert folder.read_link("target") is None
    assert folder.read_link("missing/link") is None


def test_the_hash_of_a_link_is_that_of_its_path(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("text")
    (tmp_path / "link").symlink_to("a")
    folder = SharedWorkspace(str(tmp_path))
    of_link = hash_present(folder, "link", "link:")
    assert of_link.startswith("link:")
    assert hash_present(folder, "link", "") == hash_present(folder, "a", "")
    assert hash_present(folder, "a", of_link) == hash_present(folder, "a", "")
