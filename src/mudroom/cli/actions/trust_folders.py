"""`mudroom trust`: the folders whose files are trusted."""

from __future__ import annotations

import os

from ...errors import UsageError
from ...permissions import trust
from .load_settings import load_settings


def print_trusted() -> int:
    """Print the trusted folders and return the exit code."""
    print("\n".join(trust.load_trusted(load_settings(".").home)) or "no folder is trusted")
    return 0


def add_trusted(folder: str) -> int:
    """Trust a folder and all below it, and return the exit code."""
    print(f"trusted: {trust.trust_folder(load_settings('.').home, folder)}")
    return 0


def remove_trusted(folder: str) -> int:
    """Stop trusting a folder and return the exit code. Raises UsageError if it is not trusted."""
    if not trust.untrust_folder(load_settings(".").home, folder):
        raise UsageError(
            "this folder is not in the list of trusted folders",
            where=os.path.realpath(folder),
            remedy="mudroom trust shows the list.",
        )
    print(f"no longer trusted: {os.path.realpath(folder)}")
    return 0
