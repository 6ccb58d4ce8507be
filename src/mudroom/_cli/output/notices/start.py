"""A session's notices: sandbox, offline model, the folder's agents; each shown only once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from ...._core.notices import Notice
from ...._platform.private_files import make_private_folder, write_private_file
from ...._session.session import Session

# Printed below an answer of the offline model.
OFFLINE_LINE = "Model: offline, which follows rules. For a real one see: mudroom models"

SHOWN_FILE = "shown-notices.txt"

_TIER_DESCRIPTIONS = {
    "full": "commands can access this folder; system read-only",
    "file": "commands can write only here and in temporary folders",
}
# Kinds of notices about the machine, and about the folder.
_OF_MACHINE = ("sandbox", "offline")
_OF_FOLDER = ("agents",)


def describe_sandbox(opened: Session, *, network: bool) -> str:
    """Describe the sandbox; "" if one of the session's notices already does."""
    tier = opened.sandbox.tier
    if any(notice.kind == "sandbox" for notice in opened.notices):
        return ""
    description = _TIER_DESCRIPTIONS.get(tier)
    if not description:
        return f"sandbox {tier}"
    return f"sandbox {tier}: {description}; {'network open' if network else 'no network'}"


def select_new_notices(home: str, folder: str, notices: Iterable[Notice]) -> Iterator[Notice]:
    """Yield notices; those about this machine or folder only the first time."""
    # `mudroom doctor` says the same at any time.
    path = Path(home, SHOWN_FILE)
    for notice in notices:
        of_folder = notice.kind in _OF_FOLDER
        if of_folder or notice.kind in _OF_MACHINE:
            # `!a` escapes line feeds and bytes that are not UTF-8 in the folder's name.
            line = f"{folder!a}: {notice.text}\n" if of_folder else f"{notice.text}\n"
            # If the list cannot be written, the notice is shown again.
            with suppress(OSError, ValueError):
                shown = path.read_text("utf-8") if path.exists() else ""
                if line in shown:
                    continue
                make_private_folder(path.parent)
                write_private_file(path, f"{shown}{line}".encode())
        yield notice
