"""Budgets: the limits of a run and of all runs below it."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from msgspec import Struct
from msgspec.structs import astuple


class Limit(StrEnum):
    """Limits that can end a run."""

    TURNS = "turns"
    SECONDS = "seconds"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    TOTAL_TOKENS = "total_tokens"
    USD = "usd"


class Budget(Struct, frozen=True, omit_defaults=True):
    """Limits of a run and all its descendants; None means no limit.

    Arguments:
        turns: model calls of the run itself; the call that asks for a summary at the end is extra.
        seconds: wall-clock time of the run, without waiting for approvals.
        input_tokens, output_tokens, total_tokens: tokens of the run and all its descendants.
        usd: US dollars of the run and all its descendants; needs a model with a known price.
        children: runs started below this one, at any depth.
        depth: levels of children below this run; 0 forbids the task tool.

    Example:
        Budget(turns=30, seconds=600)
    """

    turns: int | None = None
    seconds: float | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    usd: float | None = None
    children: int | None = None
    depth: int | None = None
    total_tokens: int | None = None

    def with_defaults(self, defaults: Budget) -> Budget:
        """Return these limits, with those of `defaults` where a limit is None."""
        pairs: Any = zip(astuple(self), astuple(defaults), strict=True)
        return Budget(*[default if own is None else own for own, default in pairs])


class Grant(Struct, frozen=True):
    """The right of a run to spend, within limits.

    Arguments:
        run_id: the run; the session's process holds its meter.
    """

    run_id: str
    budget: Budget
