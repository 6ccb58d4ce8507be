"""The base class of all events."""

from __future__ import annotations

from msgspec import Struct


class Event(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag_field="type"):
    """Fields common to all events.

    Arguments:
        at: seconds since 1970.
        run: run id, "" for events of the session itself.
        turn: number of the model call, from 1; 0 before the first one.
        prompt_id: "session#run id#turn", unique for each turn of each run.
    """

    at: float
    run: str = ""
    turn: int = 0
    prompt_id: str = ""
