"""Order of the calls of one answer: as written, and at the same time where nobody can tell."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct

from ..._core.tools import Effect, ToolCategory
from .prepared_call import PreparedCall

ALL_LANES = "*"
"""Lane of a call that may change anything: it runs alone, except for `is_parallel` tools."""
READING = "reading"
"""Lane of calls that change nothing: they run beside one another."""
_PARALLEL = "parallel "
"""Start of the lanes of effectful tools with `is_parallel`; each call has its own."""


def choose_lane(prepared: PreparedCall) -> str | None:
    """Return the lane of a call: calls of one lane run one after another, except in `READING`.

    None means that the call neither waits for others nor holds them up.
    """
    tool = prepared.tool
    if tool is None or prepared.refusal:
        return None
    if tool.effect is Effect.PURE:
        # `wait` may wait for the effect of a call after it, such as an answer to a message.
        return None if tool.category is ToolCategory.AGENT else READING
    if tool.effect is Effect.EFFECTFUL:
        return f"{_PARALLEL}{prepared.call.id}" if tool.is_parallel else ALL_LANES
    return tool.get_key(prepared.arguments)


class Slot(Struct):
    """Place of a call in the schedule: the events to wait for, and the event to set at its end."""

    before: Sequence[asyncio.Event]
    done: asyncio.Event


class CallScheduler:
    """Order of the calls of one answer.

    The model reads the results as if its calls ran one after another, so a call that changes
    something waits for earlier ones that read, and a call that reads waits for earlier ones that
    change something. Without that, a file that is written and read in one answer "does not exist"
    (as reported of several agents that run all reading calls first).

    Calls that read run beside one another, and so do keyed calls with different keys. Effectful
    calls of tools with `is_parallel` wait only for earlier ones that may change anything.
    """

    def __init__(self) -> None:
        self._changing: dict[str, asyncio.Event] = {}
        self._reading: list[asyncio.Event] = []

    def reserve(self, lane: str) -> Slot:
        """Return the slot of the next call with a lane; see `choose_lane`."""
        slot = Slot(self._list_before(lane), asyncio.Event())
        if lane == READING:
            self._reading.append(slot.done)
            return slot
        if lane == ALL_LANES:  # all that came before is over when this call begins
            self._changing = {}
            self._reading = []
        self._changing[lane] = slot.done
        return slot

    def _list_before(self, lane: str) -> list[asyncio.Event]:
        changing = self._changing
        if lane == READING:
            return [done for other, done in changing.items() if not other.startswith(_PARALLEL)]
        if lane == ALL_LANES:
            return [*changing.values(), *self._reading]
        before = [changing[other] for other in (lane, ALL_LANES) if other in changing]
        return before if lane.startswith(_PARALLEL) else [*before, *self._reading]
