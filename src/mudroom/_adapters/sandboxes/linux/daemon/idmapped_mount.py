"""Id-mapped mounts: root's commands run as another user that seems to own the workspace.

Without them, the kernel treats such a command as root: it may write files in procfs reserved for
root, and the number of its processes is not limited. Standard library only.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
from collections.abc import Generator

SANDBOX_UID = 59_999  # the workspace's apparent owner, who owns nothing else

_CLONE_NEWNS = 0x20000
_CLONE_NEWUSER = 0x10000000
_MS_SLAVE_RECURSIVE = 0x80000 | 0x4000
_MS_NOSUID_NODEV = 0x2 | 0x4
_MNT_DETACH = 2
_SYS_OPEN_TREE = 428
_SYS_MOVE_MOUNT = 429
_SYS_MOUNT_SETATTR = 442
_OPEN_TREE_CLONE = 1
_AT_EMPTY_PATH = 0x1000
_AT_FDCWD = -100
_MOUNT_ATTR_IDMAP = 0x100000
_MOVE_MOUNT_F_EMPTY_PATH = 4
_MOUNT_POINT = "/sys"
"""Covered by a tmpfs that holds the mounts. It contains no source of a mount, and bwrap needs
nothing from it."""
_BIND_OPTIONS = ("--bind", "--ro-bind", "--ro-bind-try")
_LIBC = ctypes.CDLL(None, use_errno=True)


class IdmappedMounts:
    """Mounts of the folders used by commands. Only this process and its children see them.

    The owner of the first folder, the workspace, is mapped to SANDBOX_UID.
    """

    def __init__(self, paths: list[str]) -> None:
        self._paths = paths
        self._mounted: list[str] = []
        self._identities: list[tuple[int, int]] = []
        self._has_own_namespace = False

    def rewrite_binds(self, argv: list[str]) -> list[str]:
        """Replace sources in bwrap's arguments with the mounts; remount replaced folders first.

        Raises OSError if the file system does not support it, or root may not mount.
        """
        if self._identities != _read_identities(self._paths):
            self.mount_all()
        rewritten = list(argv)
        for index, argument in enumerate(argv[: argv.index("--")]):
            if argument in _BIND_OPTIONS:
                rewritten[index + 1] = self._find_source(argv[index + 1])
        return rewritten

    def _find_source(self, path: str) -> str:
        for original, mounted in zip(self._paths, self._mounted, strict=True):
            if path == original or path.startswith(original + "/"):
                return mounted + path[len(original) :]
        return path

    def mount_all(self) -> None:
        owner = os.stat(self._paths[0])
        namespace = _open_mapped_namespace(owner.st_uid, owner.st_gid)
        try:
            if not self._has_own_namespace:
                os.setgroups([])
                _check(_LIBC.unshare(_CLONE_NEWNS))
                _check(_LIBC.mount(None, b"/", None, _MS_SLAVE_RECURSIVE, None))
                self._has_own_namespace = True
            # Remove earlier mounts, with everything below: each mount slows down each command.
            _LIBC.umount2(_MOUNT_POINT.encode(), _MNT_DETACH)
            identities = _read_identities(self._paths)
            self._mounted = _mount_folders(self._paths, namespace)
            self._identities = identities
        finally:
            os.close(namespace)


def _read_identities(paths: list[str]) -> list[tuple[int, int]]:
    """Read the identity of each folder; (0, 0) for a folder that does not exist."""
    identities: list[tuple[int, int]] = []
    for path in paths:
        try:
            info = os.stat(path)
        except OSError:
            identities.append((0, 0))
        else:
            identities.append((info.st_dev, info.st_ino))
    return identities


def _mount_folders(paths: list[str], namespace: int) -> list[str]:
    """Mount each folder, the first with mapped owners; return the mounted paths.

    A nonexistent folder gets a nonexistent path.
    """
    trees = [
        _LIBC.syscall(_SYS_OPEN_TREE, _AT_FDCWD, os.fsencode(path), _OPEN_TREE_CLONE | os.O_CLOEXEC)
        for path in paths
    ]
    attributes = struct.pack("=QQQQ", _MOUNT_ATTR_IDMAP, 0, 0, namespace)
    size = ctypes.c_size_t(len(attributes))
    _check(_LIBC.syscall(_SYS_MOUNT_SETATTR, trees[0], b"", _AT_EMPTY_PATH, attributes, size))
    _check(_LIBC.mount(b"none", _MOUNT_POINT.encode(), b"tmpfs", _MS_NOSUID_NODEV, b"mode=755"))
    mounted: list[str] = []
    for number, tree in enumerate(trees):
        place = f"{_MOUNT_POINT}/{number}"
        mounted.append(place)
        if tree < 0:
            continue
        os.mkdir(place)
        target = place.encode()
        _check(
            _LIBC.syscall(_SYS_MOVE_MOUNT, tree, b"", _AT_FDCWD, target, _MOVE_MOUNT_F_EMPTY_PATH)
        )
        os.close(tree)
    return mounted


def _open_mapped_namespace(user: int, group: int) -> int:
    """Open a user namespace that swaps a workspace's owner and SANDBOX_UID."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        theirs.send(b"y" if _LIBC.unshare(_CLONE_NEWUSER) == 0 else b"n")
        theirs.recv(1)  # keep the namespace until the parent has opened it, or has died
        os._exit(0)
    theirs.close()
    try:
        if ours.recv(1) != b"y":
            raise OSError("no user namespace")
        for kind, owner in (("uid", user), ("gid", group)):
            with open(f"/proc/{pid}/{kind}_map", "w") as file:
                file.write(_swap_map(owner))
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)
    finally:
        ours.close()
        os.waitpid(pid, 0)


def _swap_map(owner: int) -> str:
    low, high = sorted((owner, SANDBOX_UID))
    ranges = [
        (0, 0, low),
        (low, high, 1),
        (low + 1, low + 1, high - low - 1),
        (high, low, 1),
        (high + 1, high + 1, 1 << 31),
    ]
    return "".join(
        f"{inside} {outside} {count}\n" for inside, outside, count in ranges if count > 0
    )


@contextlib.contextmanager
def as_user(uid: int) -> Generator[None]:
    """Act as a user in this context, if this is root.

    Setting another process's limits takes being its user, or a capability that root in a container
    may lack.
    """
    if os.getuid() == uid or os.getuid() != 0:
        yield
        return
    os.setresgid(uid, uid, 0)
    os.setresuid(uid, uid, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)


def _check(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
