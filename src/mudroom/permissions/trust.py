"""Folders the person trusts: what a project brings is used, beyond narrowing, only in these."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec

from ..errors import UsageError

FILE = "trusted.json"


def trusted(home: str, folder: str) -> bool:
    """Whether a folder, or one it lies in, is trusted.

    Arguments:
        home: folder of mudroom's own files.
    """
    real, known = os.path.realpath(folder), set(listing(home))
    return any(str(place) in known for place in (Path(real), *Path(real).parents))


def listing(home: str) -> list[str]:
    """The trusted folders, absolute, sorted. Raises UsageError when the file cannot be read: nothing is trusted by mistake."""
    path = Path(home, FILE)
    try:
        return sorted(msgspec.json.decode(path.read_bytes(), type=list[str]))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(
            f"the list of trusted folders cannot be read: {error}",
            where=str(path),
            remedy="Mend or remove the file.",
        ) from None


def add(home: str, folder: str) -> str:
    """Trust a folder and all below it; its absolute path. Raises UsageError for one that is not there, or that holds everything."""
    real = os.path.realpath(folder)
    if not os.path.isdir(real):
        raise UsageError("no such directory", where=folder, remedy="Name a folder that exists.")
    if real in ("/", os.path.realpath(os.path.expanduser("~"))):
        raise UsageError(
            "this would trust every project", where=real, remedy="Name the folder of one project."
        )
    _write(home, {*listing(home), real})
    return real


def remove(home: str, folder: str) -> bool:
    """Trust a folder no longer; False if it was not in the list."""
    known, real = set(listing(home)), os.path.realpath(folder)
    _write(home, known - {real})
    return real in known


def _write(home: str, folders: set[str]) -> None:
    os.makedirs(home, mode=0o700, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=home, prefix=FILE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(sorted(folders))) + b"\n")
    os.replace(name, Path(home, FILE))
