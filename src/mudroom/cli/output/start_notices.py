"""Notices of a session: its sandbox, its offline model; those of the machine only once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from ..._platform.private_files import make_private_folder, write_private_file
from ...build import OFFLINE_NOTICE
from ...session import Session

OFFLINE_LINE = "Model: offline, which follows rules. For a real one see: mudroom models"
"""Printed below an answer of the offline model."""

SHOWN_FILE = "shown-notices.txt"

_TIER_DESCRIPTIONS = {
    "full": "commands can access this folder; system read-only",
    "file": "commands can write only here and in temporary folders",
}
_MACHINE_NOTICES = ("sandbox ", OFFLINE_NOTICE)
"""First words of the notices that describe the machine, not the session."""


def describe_sandbox(opened: Session, *, network: bool) -> str:
    """Return the notice; "" if a notice of the session describes the sandbox already.

    Arguments:
        network: whether commands may use the network.
    """
    tier = opened.sandbox.tier
    if any(notice.startswith("sandbox ") for notice in opened.notices):
        return ""
    description = _TIER_DESCRIPTIONS.get(tier)
    if not description:
        return f"sandbox {tier}"
    return f"sandbox {tier}: {description}; {'network open' if network else 'no network'}"


def select_new_notices(home: str, notices: Iterable[str]) -> Iterator[str]:
    """Yield the notices, but those about this machine only once.

    `mudroom doctor` says the same at any time.

    Arguments:
        home: mudroom's state folder, which has the list of the notices shown before.
    """
    path = Path(home, SHOWN_FILE)
    for notice in notices:
        if notice.startswith(_MACHINE_NOTICES):
            with suppress(OSError, ValueError):
                shown = path.read_text("utf-8") if path.exists() else ""
                if f"{notice}\n" in shown:
                    continue
                make_private_folder(path.parent)
                write_private_file(path, f"{shown}{notice}\n".encode())
        yield notice
