"""Trusted folders, the only ones where a project's own agents get more than read access."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

import msgspec

from .._platform.private_files import replace_private_file
from .._platform.regular_files import is_missing, read_regular_file
from ..errors import UsageError

TRUST_FILE = "trusted.json"

_T = TypeVar("_T")


def is_trusted(home: str, folder: str) -> bool:
    """Return whether a folder or one of its parents is trusted."""
    real = Path(os.path.realpath(folder))
    trusted = set(load_trusted(home))
    return any(str(place) in trusted for place in (real, *real.parents))


def load_trusted(home: str) -> list[str]:
    """Load the trusted folders, absolute and sorted.

    Raises UsageError if the file cannot be read, so that nothing is trusted by mistake.
    """
    return sorted(read_kept(Path(home, TRUST_FILE), list[str], "the list of trusted folders"))


def trust_folder(home: str, folder: str) -> str:
    """Trust a folder and everything below it; return its absolute path.

    Raises UsageError if the folder does not exist, or is `/` or the home folder.
    """
    real = os.path.realpath(folder)
    if not os.path.isdir(real):
        raise UsageError("no such directory", where=folder, remedy="Name a folder that exists.")
    if is_too_wide(real):
        raise UsageError(
            "this would trust every project", where=real, remedy="Name the folder of one project."
        )
    write_kept(Path(home, TRUST_FILE), sorted({*load_trusted(home), real}))
    return real


def is_too_wide(folder: str) -> bool:
    """Return whether a folder is `/` or the home folder, which contain every project."""
    return os.path.realpath(folder) in ("/", os.path.realpath(os.path.expanduser("~")))


def untrust_folder(home: str, folder: str) -> bool:
    """Remove a folder from the list. Return False if it was not in the list."""
    trusted = set(load_trusted(home))
    real = os.path.realpath(folder)
    write_kept(Path(home, TRUST_FILE), sorted(trusted - {real}))
    return real in trusted


def read_kept(path: Path, kind: type[_T], name: str) -> _T:
    """Read a JSON file of the user's decisions; an empty value of its type if there is none."""
    try:
        return msgspec.json.decode(read_regular_file(path), type=kind)
    except (OSError, ValueError) as error:
        if is_missing(path, error):
            return kind()
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"{name} cannot be read: {reason}", where=str(path), remedy="Repair or remove the file."
        ) from None


def write_kept(path: Path, value: object) -> None:
    replace_private_file(path, msgspec.json.format(msgspec.json.encode(value)) + b"\n")
