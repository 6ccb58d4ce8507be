"""Files that only the user can read."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def write_private_file(path: Path, data: bytes) -> None:
    """Write a file in one step, with its missing folders: a reader finds all of it or none."""
    for missing in reversed(path.parents):
        with suppress(FileExistsError):
            missing.mkdir(0o700)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
