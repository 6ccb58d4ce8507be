"""Order of the calls of one answer: in parallel where that is safe."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from ..._core.tools import Effect
from .prepared_call import PreparedCall

ALL_LANES = "*"
"""Lane of a call that may change anything: it runs alone among calls with an effect."""


def choose_lane(prepared: PreparedCall) -> str | None:
    """Return the lane of a call: calls of one lane run one after another.

    None means that the call may run in parallel with all others.
    """
    tool = prepared.tool
    if tool is None or prepared.refusal or tool.effect is Effect.PURE:
        return None
    if tool.effect is Effect.EFFECTFUL:
        return f"call {prepared.call.id}" if tool.is_parallel else ALL_LANES
    return tool.get_key(prepared.arguments)


class Slot(Struct):
    """Place of a call in the schedule: the events to wait for, and the event to set at its end."""

    before: Sequence[asyncio.Event]
    done: asyncio.Event


class CallScheduler:
    """Order of the calls of one answer.

    Pure calls and calls without a key never wait. Calls with the same key run one after another.
    An effectful call waits for all earlier calls with an effect, and all later ones wait for it;
    those of tools with `is_parallel` do not wait for one another.
    """

    def __init__(self) -> None:
        self._last: dict[str, asyncio.Event] = {}

    def reserve(self, lane: str) -> Slot:
        """Return the slot of the next call with a lane; see `choose_lane`."""
        done = asyncio.Event()
        if lane == ALL_LANES:
            before = list(self._last.values())
            self._last = {}
        else:
            before = [self._last[other] for other in (lane, ALL_LANES) if other in self._last]
        self._last[lane] = done
        return Slot(before, done)
