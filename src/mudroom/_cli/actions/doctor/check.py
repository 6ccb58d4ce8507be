"""The result of one check of this machine."""

from __future__ import annotations

from msgspec import Struct, field


class Check(Struct, frozen=True):
    """The result of one check.

    `field(name=...)` is the key in the JSON output; it never changes.

    Arguments:
        name: subject of the check. state: "ok", "warn" (mudroom works without it) or "fail".
        result: one sentence. remedy: what to do about it, "" for nothing.
    """

    name: str
    state: str
    result: str = field(name="found")
    remedy: str = ""
