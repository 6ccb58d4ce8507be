"""Garbage collector thresholds for mudroom's own processes."""

import gc

# Starting the command line makes about 50,000 objects, none of them garbage.
_FIRST_THRESHOLD = 100_000
# With Python's defaults, each further child makes the collector take more time: with 500
# children, a sixth of all CPU time. It stops the event loop for up to 0.5 µs per object.
_THRESHOLDS = (50_000, 40, 100)


def collect_garbage_less_often() -> None:
    """Set thresholds suited to many long-lived objects."""
    gc.set_threshold(_FIRST_THRESHOLD, *_THRESHOLDS[1:])
    if _collect_less_at_once not in gc.callbacks:
        gc.callbacks.append(_collect_less_at_once)


def _collect_less_at_once(phase: str, info: dict[str, int]) -> None:
    """Set the final thresholds after the start; called by the garbage collector."""
    if phase == "stop" and gc.get_threshold()[0] == _FIRST_THRESHOLD:
        gc.set_threshold(*_THRESHOLDS)
