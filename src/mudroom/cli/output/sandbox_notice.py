"""Notice at the start of a session: the sandbox that its commands run in."""

from __future__ import annotations

from ...session import Session

_TIER_DESCRIPTIONS = {
    "full": "commands can access this folder; system read-only",
    "file": "commands can write only here and in temporary folders",
}


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
