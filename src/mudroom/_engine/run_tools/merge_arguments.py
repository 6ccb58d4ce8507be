"""Arguments of the merge tool."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class MergeArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of the merge tool."""

    run: str
    how: Literal["return", "retry", "clean", "side", "drop"] = "return"
    side: Literal["", "parent", "child"] = ""
    paths: tuple[str, ...] = ()
    background: bool = False
