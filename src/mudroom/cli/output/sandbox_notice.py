"""The first line of a session: which sandbox its commands run in."""

from __future__ import annotations

from ...session import Session

_HELD = {
    "full": "commands see this folder, and the system read-only",
    "file": "commands write in this folder and temporary ones only",
}


def describe_sandbox(opened: Session, *, network: bool) -> str:
    """The line; "" where a notice of the session says it already, as it does of what is less than could be.

    Arguments:
        network: whether commands may reach it.
    """
    tier = opened.sandbox.tier
    if any(notice.startswith("sandbox ") for notice in opened.notices):
        return ""
    held = _HELD.get(tier)
    return (
        f"sandbox {tier}: {held}; {'the network is open to them' if network else 'no network'}"
        if held
        else f"sandbox {tier}"
    )
