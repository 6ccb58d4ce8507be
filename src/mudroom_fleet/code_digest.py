"""Digest of the code that both ends of a connection must have in common."""

from __future__ import annotations

import hashlib
from pathlib import Path

import mudroom


def compute_code_digest() -> str:
    """Return the version of mudroom and a digest of its code, and of this package."""
    digest = hashlib.sha256()
    for package in (Path(mudroom.__file__).parent, Path(__file__).parent):
        for path in sorted(package.rglob("*.py")):
            digest.update(path.relative_to(package.parent).as_posix().encode())
            digest.update(path.read_bytes())
    return f"{mudroom.__version__} ({digest.hexdigest()[:12]})"
