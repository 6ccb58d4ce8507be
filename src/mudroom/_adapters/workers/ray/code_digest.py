"""Digest of the code that both ends of a connection must have in common."""

from __future__ import annotations

import hashlib
from pathlib import Path

_PACKAGE = Path(__file__).parents[3]
_FOLDERS = ("_core", "_engine", "workers")


def compute_code_digest() -> str:
    """Return the version of mudroom and a digest of the values, messages and the engine."""
    from ...._version import __version__

    digest = hashlib.sha256()
    for folder in _FOLDERS:
        for path in sorted((_PACKAGE / folder).rglob("*.py")):
            digest.update(path.relative_to(_PACKAGE).as_posix().encode())
            digest.update(path.read_bytes())
    return f"{__version__} ({digest.hexdigest()[:12]})"
