"""Trust in programs that a folder declares: the user's answer, for each folder and set."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ..._platform.private_files import make_private_folder, replace_private_file
from ..._platform.regular_files import is_missing, read_regular_file
from ...errors import UsageError

TRUST_FILE = "trusted-programs.json"


def load_trusted_programs(home: str) -> dict[str, frozenset[str]]:
    """Load the digests of the programs that the user trusts, by folder.

    Raises UsageError if the file cannot be read, so that no program is started by mistake.

    Arguments:
        home: mudroom's state folder.
    """
    path = Path(home, TRUST_FILE)
    try:
        return msgspec.json.decode(read_regular_file(path), type=dict[str, frozenset[str]])
    except (OSError, ValueError) as error:
        if is_missing(path, error):
            return {}
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"the list of trusted programs cannot be read: {reason}",
            where=str(path),
            remedy="Repair or remove the file.",
        ) from None


def trust_programs(home: str, place: str, digests: Iterable[str]) -> None:
    """Trust exactly these programs of a folder; an empty set removes the folder from the list.

    Arguments:
        place: the folder's real path.
    """
    trusted = load_trusted_programs(home)
    trusted.pop(place, None)
    if chosen := frozenset(digests):
        trusted[place] = chosen
    make_private_folder(Path(home))
    table = {place: sorted(trusted[place]) for place in sorted(trusted)}
    data = msgspec.json.format(msgspec.json.encode(table)) + b"\n"
    replace_private_file(Path(home, TRUST_FILE), data)


def untrust_programs(home: str, folder: str) -> bool:
    """Stop trusting the programs of a folder. Return False if they were not trusted."""
    place = os.path.realpath(folder)
    is_listed = place in load_trusted_programs(home)
    if is_listed:
        trust_programs(home, place, ())
    return is_listed
