"""Root's commands run as another user, who sees the workspace as his own: an id-mapped mount. Standard library only.

Without it a command of root's is still root to the kernel: files that only root may write in procfs, no limit of processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import struct
from collections.abc import Generator

SANDBOX_UID = 59_999
"""The user that the workspace seems to belong to. It owns nothing else."""

_NEW_MOUNTS, _NEW_USER, _FOLLOW, _NO_EXTRAS, _DETACH = (
    0x20000,
    0x10000000,
    0x80000 | 0x4000,
    0x2 | 0x4,
    2,
)
_OPEN_TREE, _MOVE_MOUNT, _SET_ATTRIBUTES = 428, 429, 442
_CLONE, _CLOSE, _EMPTY, _MAPPED, _HERE, _FROM_EMPTY = 1, os.O_CLOEXEC, 0x1000, 0x100000, -100, 4
_STAGE = "/sys"  # nothing that is moved there, or looked for by bwrap, lies in it
_BINDS = ("--bind", "--ro-bind", "--ro-bind-try")
_LIBC = ctypes.CDLL(None, use_errno=True)


class IdmappedMounts:
    """Where the folders that commands reach are put for another user; only this process and its children see it.

    Arguments:
        paths: the workspace first, which is to be NUMBER's own, then further folders to reach.
    """

    def __init__(self, paths: list[str]) -> None:
        self._paths, self._places, self._seen = paths, list[str](), list[tuple[int, int]]()
        self._apart = False

    def rewrite_binds(self, argv: list[str]) -> list[str]:
        """Arguments of bubblewrap whose sources are where they have been put; a folder that was replaced is put there anew.

        Raises OSError where the file system or this root cannot do it.
        """
        if self._seen != _identities(self._paths):
            self.mount_all()
        found = list(argv)
        for n, word in enumerate(argv[: argv.index("--")]):
            if word in _BINDS:
                source = argv[n + 1]
                pairs = zip(self._paths, self._places, strict=True)
                found[n + 1] = next(
                    (place + source[len(path) :] for path, place in pairs if _in(source, path)),
                    source,
                )
        return found

    def mount_all(self) -> None:
        """Put the folders there. Raises OSError, as `moved` does."""
        owner = os.stat(self._paths[0])
        swapped = _mapping(owner.st_uid, owner.st_gid)
        try:
            if not self._apart:
                os.setgroups([])
                _call(_LIBC.unshare(_NEW_MOUNTS))
                _call(_LIBC.mount(None, b"/", None, _FOLLOW, None))
                self._apart = True
            _LIBC.umount2(
                _STAGE.encode(), _DETACH
            )  # all that is mounted below it, too: every mount costs each command time
            seen = _identities(self._paths)
            self._places = _placed(self._paths, swapped)
            self._seen = seen
        finally:
            os.close(swapped)


def _identities(paths: list[str]) -> list[tuple[int, int]]:
    """What tells whether a folder is still the one it was; (0, 0) for one that is not there."""
    found: list[tuple[int, int]] = []
    for path in paths:
        try:
            seen = os.stat(path)
        except OSError:
            found.append((0, 0))
        else:
            found.append((seen.st_dev, seen.st_ino))
    return found


def _placed(paths: list[str], swapped: int) -> list[str]:
    """Put each folder on the stage, the first with owners exchanged; where they are now."""
    trees = [_LIBC.syscall(_OPEN_TREE, _HERE, os.fsencode(path), _CLONE | _CLOSE) for path in paths]
    attributes = struct.pack("=QQQQ", _MAPPED, 0, 0, swapped)
    _call(
        _LIBC.syscall(
            _SET_ATTRIBUTES, trees[0], b"", _EMPTY, attributes, ctypes.c_size_t(len(attributes))
        )
    )
    _call(_LIBC.mount(b"none", _STAGE.encode(), b"tmpfs", _NO_EXTRAS, b"mode=755"))
    places: list[str] = []
    for n, tree in enumerate(trees):
        places.append(f"{_STAGE}/{n}")
        if tree >= 0:
            os.mkdir(places[-1])
            _call(_LIBC.syscall(_MOVE_MOUNT, tree, b"", _HERE, places[-1].encode(), _FROM_EMPTY))
            os.close(tree)
    return places


def _mapping(user: int, group: int) -> int:
    """Descriptor of a user namespace in which a workspace's owner and NUMBER have changed places. Raises OSError where none can be made."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        ours.close()
        theirs.send(b"y" if _LIBC.unshare(_NEW_USER) == 0 else b"n")
        theirs.recv(1)  # until we have what we want, or are no more
        os._exit(0)
    theirs.close()
    try:
        if ours.recv(1) != b"y":
            raise OSError("no user namespace")
        for kind, owner in (("uid", user), ("gid", group)):
            with open(f"/proc/{pid}/{kind}_map", "w") as file:
                file.write(_swap(owner))
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)
    finally:
        ours.close()
        os.waitpid(pid, 0)


def _swap(owner: int) -> str:
    """Lines of a map that leaves every number what it is, but for these two."""
    low, high = sorted((owner, SANDBOX_UID))
    parts = [
        (0, 0, low),
        (low, high, 1),
        (low + 1, low + 1, high - low - 1),
        (high, low, 1),
        (high + 1, high + 1, 1 << 31),
    ]
    return "".join(f"{inside} {outside} {count}\n" for inside, outside, count in parts if count > 0)


@contextlib.contextmanager
def as_user(number: int) -> Generator[None]:
    """Be that user for a moment: whoever sets another process's limits must be of its user, or have a capability not every root has."""
    if os.getuid() == number or os.getuid() != 0:
        yield
        return
    os.setresgid(number, number, 0)
    os.setresuid(number, number, 0)
    try:
        yield
    finally:
        os.setresuid(0, 0, 0)
        os.setresgid(0, 0, 0)


def _in(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder + "/")


def _call(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
