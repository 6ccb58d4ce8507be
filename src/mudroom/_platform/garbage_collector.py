"""Thresholds of the garbage collector for processes that belong to mudroom."""

import gc

_FIRST_THRESHOLD = 100_000
"""The start of the command line makes about 50,000 objects, none of them garbage."""
_THRESHOLDS = (50_000, 40, 100)
"""With Python's defaults the collector takes more time with each child: a sixth of the CPU time
with 500 children. It stops the event loop for up to 0.5 µs an object."""


def collect_garbage_less_often() -> None:
    """Set thresholds for many objects that live long."""
    gc.set_threshold(_FIRST_THRESHOLD, *_THRESHOLDS[1:])
    if _collect_less_at_once not in gc.callbacks:
        gc.callbacks.append(_collect_less_at_once)


def _collect_less_at_once(phase: str, info: dict[str, int]) -> None:
    """Set the thresholds after the start (called by the garbage collector)."""
    if phase == "stop" and gc.get_threshold()[0] == _FIRST_THRESHOLD:
        gc.set_threshold(*_THRESHOLDS)
