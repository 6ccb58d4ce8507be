"""Root's commands run as another user, who sees the workspace as his own: an id-mapped mount. Standard library only.

Without it a command of root's is still root to the kernel: files that only root may write in procfs, no limit of processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
from collections.abc import Generator

NUMBER = 59_999
"""The user that the workspace seems to belong to. It owns nothing else."""

_NEW_MOUNTS, _NEW_USER, _PRIVATE, _NO_EXTRAS = 0x20000, 0x10000000, 0x40000 | 0x4000, 0x2 | 0x4
_OPEN_TREE, _MOVE_MOUNT, _SET_ATTRIBUTES = 428, 429, 442
_CLONE, _CLOSE, _EMPTY, _MAPPED, _HERE, _FROM_EMPTY = 1, os.O_CLOEXEC, 0x1000, 0x100000, -100, 4
_STAGE = "/tmp"
_BINDS = ("--bind", "--ro-bind")
_LIBC = ctypes.CDLL(None, use_errno=True)


def mapping(user: int, group: int) -> int:
    """Descriptor of a user namespace in which a workspace's owner and NUMBER have changed places. Raises OSError where none can be made."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(writing, b"y" if _LIBC.unshare(_NEW_USER) == 0 else b"n")
        signal.pause()
        os._exit(0)
    try:
        if os.read(reading, 1) != b"y":
            raise OSError("no user namespace")
        for kind, owner in (("uid", user), ("gid", group)):
            with open(f"/proc/{pid}/{kind}_map", "w") as file:
                file.write(_swap(owner))
        return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(reading)
        os.close(writing)


def _swap(owner: int) -> str:
    """Lines of a map that leaves every number what it is, but for these two."""
    low, high = sorted((owner, NUMBER))
    parts = [(0, 0, low), (low, high, 1), (low + 1, low + 1, high - low - 1), (high, low, 1), (high + 1, high + 1, 1 << 31)]
    return "".join(f"{inside} {outside} {count}\n" for inside, outside, count in parts if count > 0)


def stage(root: str, others: list[str], swapped: int) -> list[str]:
    """Put the workspace, as NUMBER's own, and other folders where that user can reach them; only this process sees it.

    Arguments:
        root: the workspace. others: folders to reach. swapped: from `mapping`.

    Returns the new places, in order. Raises OSError where the file system or this root cannot do it; nothing has changed then.
    """
    _call(_LIBC.unshare(_NEW_MOUNTS))
    _call(_LIBC.mount(None, b"/", None, _PRIVATE, None))
    trees = [_checked(_LIBC.syscall(_OPEN_TREE, _HERE, os.fsencode(path), _CLONE | _CLOSE)) for path in (root, *others)]
    attributes = struct.pack("=QQQQ", _MAPPED, 0, 0, swapped)
    _call(_LIBC.syscall(_SET_ATTRIBUTES, trees[0], b"", _EMPTY, attributes, ctypes.c_size_t(len(attributes))))
    _call(_LIBC.mount(b"none", _STAGE.encode(), b"tmpfs", _NO_EXTRAS, b"mode=755"))
    places: list[str] = []
    for n, tree in enumerate(trees):
        place = f"{_STAGE}/{n}"
        os.mkdir(place)
        _call(_LIBC.syscall(_MOVE_MOUNT, tree, b"", _HERE, place.encode(), _FROM_EMPTY))
        places.append(place)
    return places


def moved(argv: list[str], paths: list[str], places: list[str]) -> list[str]:
    """Arguments of bubblewrap whose sources are where they have been put."""
    found = list(argv)
    for n, word in enumerate(argv[: argv.index("--")]):
        if word in _BINDS:
            source = argv[n + 1]
            pairs = zip(paths, places, strict=True)
            found[n + 1] = next((place + source[len(path) :] for path, place in pairs if _in(source, path)), source)
    return found


def become(number: int) -> None:
    """Be that user, in no group, for good."""
    os.setgroups([])
    os.setresgid(number, number, number)
    os.setresuid(number, number, number)


@contextlib.contextmanager
def beside(number: int) -> Generator[None]:
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


def _checked(result: int) -> int:
    _call(0 if result >= 0 else result)
    return result


def _call(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
