"""Atomic writes: what a failure after the rename says, and what a file keeps."""

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
from pathlib import Path

import pytest

from mudroom._adapters.workspaces._atomic_write import write_atomically
from mudroom._adapters.workspaces.shared import SharedWorkspace
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
