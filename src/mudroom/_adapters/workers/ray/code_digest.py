"""Digest of the code that both ends of a connection must have in common."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ...._version import __version__

_PACKAGE = Path(__file__).parents[3]


def compute_code_digest() -> str:
    """Return the version of mudroom and a digest of its code."""
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        digest.update(path.relative_to(_PACKAGE).as_posix().encode())
        digest.update(path.read_bytes())
    return f"{__version__} ({digest.hexdigest()[:12]})"
