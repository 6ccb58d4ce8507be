"""Run a command as an ordinary user: `as_user.py COMMAND…`. Needs root.

Python and the checkout may lie in a folder that only root may enter. In a mount namespace of its
own, such a folder is replaced by an empty one that contains only the needed paths.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys

USER_ID = 54321
"""Id of a user that owns nothing on this machine."""

_NEW_MOUNTS, _BIND, _PRIVATE = 0x20000, 0x1000 | 0x4000, 0x40000 | 0x4000
_LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Become the user, then run the command."""
    if _LIBC.unshare(_NEW_MOUNTS) != 0 or _mount(None, "/", _PRIVATE) != 0:
        sys.exit("this root may not make mounts")
    checkout = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    ways: dict[str, set[str]] = {}
    for path in map(os.path.realpath, (sys.base_prefix, sys.prefix, checkout)):
        if closed := _find_closed_folder(path):
            ways.setdefault(closed, set()).add(path)
    for closed, paths in ways.items():
        _open_up(closed, paths)
    os.setgroups([])
    os.setresgid(USER_ID, USER_ID, USER_ID)
    os.setresuid(USER_ID, USER_ID, USER_ID)
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ} | {
        name: value for name, value in os.environ.items() if name.startswith("ATTACKS_")
    }
    env = kept | {
        "HOME": "/nonexistent",
        "USER": "attacker",
        "LOGNAME": "attacker",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    os.execvpe(sys.argv[1], sys.argv[1:], env)


def _find_closed_folder(path: str) -> str:
    """Return the first folder of the path that only root may enter, "" if there is none."""
    parts = path.split("/")
    folders = ("/".join(parts[:n]) for n in range(2, len(parts)))
    return next((folder for folder in folders if not os.stat(folder).st_mode & stat.S_IXOTH), "")


def _open_up(closed: str, paths: set[str]) -> None:
    outer = [path for path in paths if not any(path.startswith(f"{other}/") for other in paths)]
    held = {path: os.open(path, os.O_PATH) for path in outer}
    _mount("none", closed, 0, "tmpfs")
    os.chmod(closed, 0o755)
    for path, descriptor in held.items():
        os.makedirs(path)
        if _mount(f"/proc/self/fd/{descriptor}", path, _BIND) != 0:
            sys.exit(f"{path} cannot be made reachable: {os.strerror(ctypes.get_errno())}")


def _mount(source: str | None, target: str, flags: int, kind: str = "") -> int:
    return int(
        _LIBC.mount(
            source.encode() if source else None, target.encode(), kind.encode() or None, flags, None
        )
    )


if __name__ == "__main__":
    main()
