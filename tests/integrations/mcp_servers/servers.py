"""Configurations of the small servers, for tests."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mudroom import ServerSpec

_FOLDER = Path(__file__).parent
QUICK_SERVER = _FOLDER / "quick_server.py"


def make_quick(
    name: str = "quick", fault: str = "", *, log: Path | None = None, **more: Any
) -> ServerSpec:
    """Return the server that needs no package. `log`: file for its starts and requests."""
    env = {**more.pop("env", {}), **({"SERVER_LOG": str(log)} if log else {})}
    return _make(name, "quick_server.py", *filter(None, (fault,)), env=env, **more)


def make_small(name: str = "small", **more: Any) -> ServerSpec:
    """Return the server made with the package, of the new era."""
    return _make(name, "small_server.py", name, **more)


def _make(name: str, file: str, *args: str, **more: Any) -> ServerSpec:
    return ServerSpec(
        name=name,
        origin="test",
        scope="option",
        command=sys.executable,
        args=(str(_FOLDER / file), *args),
        **more,
    )


def read_log(path: Path) -> list[str]:
    """Return the lines of a server's log, empty if it never started."""
    return path.read_text().splitlines() if path.exists() else []


def count_starts(path: Path) -> int:
    return sum(line.startswith("start ") for line in read_log(path))
