"""Run a command as an ordinary user, when this is root: `as_user.py COMMAND…`. Python and the checkout are made reachable first.

In a mount namespace of its own a folder on the way that only root may enter is replaced by an empty one with just the way in it.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys

NUMBER = 54321
"""The user: one that owns nothing on this machine."""

_NEW_MOUNTS, _BIND, _PRIVATE = 0x20000, 0x1000 | 0x4000, 0x40000 | 0x4000
_LIBC = ctypes.CDLL(None, use_errno=True)


def main() -> None:
    """Become the user, then the command."""
    if _LIBC.unshare(_NEW_MOUNTS) != 0 or _mount(None, "/", _PRIVATE) != 0:
        sys.exit("this root may not make mounts")
    for path in (sys.base_prefix, sys.prefix, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))):
        _reach(path)
    os.setgroups([])
    os.setresgid(NUMBER, NUMBER, NUMBER)
    os.setresuid(NUMBER, NUMBER, NUMBER)
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ} | {
        name: value for name, value in os.environ.items() if name.startswith("ATTACKS_")
    }
    env = kept | {"HOME": "/nonexistent", "USER": "attacker", "LOGNAME": "attacker", "PYTHONDONTWRITEBYTECODE": "1"}
    os.execvpe(sys.argv[1], sys.argv[1:], env)


def _reach(path: str) -> None:
    parts = os.path.realpath(path).split("/")
    for n in range(2, len(parts)):
        folder = "/".join(parts[:n])
        if not os.stat(folder).st_mode & stat.S_IXOTH:
            held = os.open("/".join(parts), os.O_PATH)
            _mount("none", folder, 0, "tmpfs")
            os.chmod(folder, 0o755)
            os.makedirs("/".join(parts))
            if _mount(f"/proc/self/fd/{held}", "/".join(parts), _BIND) != 0:
                sys.exit(f"{path} cannot be made reachable: {os.strerror(ctypes.get_errno())}")
            return


def _mount(source: str | None, target: str, flags: int, kind: str = "") -> int:
    return int(_LIBC.mount(source.encode() if source else None, target.encode(), kind.encode() or None, flags, None))


if __name__ == "__main__":
    main()
