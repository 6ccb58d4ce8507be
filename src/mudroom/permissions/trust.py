"""Folders the person trusts: what a project brings is used, beyond narrowing, only in these."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec

from ..errors import UsageError

TRUST_FILE = "trusted.json"


def is_trusted(state_dir: str, folder: str) -> bool:
    """Whether a folder, or one it lies in, is trusted.

    Arguments:
        home: folder of mudroom's own files.
    """
    real, known = os.path.realpath(folder), set(load_trusted(state_dir))
    return any(str(place) in known for place in (Path(real), *Path(real).parents))


def load_trusted(state_dir: str) -> list[str]:
    """The trusted folders, absolute, sorted. Raises UsageError when the file cannot be read: nothing is trusted by mistake."""
    path = Path(state_dir, TRUST_FILE)
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


def trust_folder(state_dir: str, folder: str) -> str:
    """Trust a folder and all below it; its absolute path. Raises UsageError for one that is not there, or that holds everything."""
    real = os.path.realpath(folder)
    if not os.path.isdir(real):
        raise UsageError("no such directory", where=folder, remedy="Name a folder that exists.")
    if real in ("/", os.path.realpath(os.path.expanduser("~"))):
        raise UsageError(
            "this would trust every project", where=real, remedy="Name the folder of one project."
        )
    _write(state_dir, {*load_trusted(state_dir), real})
    return real


def untrust_folder(state_dir: str, folder: str) -> bool:
    """Trust a folder no longer; False if it was not in the list."""
    known, real = set(load_trusted(state_dir)), os.path.realpath(folder)
    _write(state_dir, known - {real})
    return real in known


def _write(home: str, folders: set[str]) -> None:
    os.makedirs(home, mode=0o700, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=home, prefix=TRUST_FILE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(sorted(folders))) + b"\n")
    os.replace(name, Path(home, TRUST_FILE))
