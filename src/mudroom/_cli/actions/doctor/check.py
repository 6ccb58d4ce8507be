"""The result of one check of this machine."""

from __future__ import annotations

from msgspec import Struct, field


class Check(Struct, frozen=True):
    """The result of one check.

    Arguments:
        name: subject of the check. state: "ok", "warn" (mudroom works without it) or "fail".
        result: one sentence. remedy: what to do about it, "" for nothing.
    """

    name: str
    state: str
    # The key in the JSON output, which scripts read: it must not change.
    result: str = field(name="found")
    remedy: str = ""
