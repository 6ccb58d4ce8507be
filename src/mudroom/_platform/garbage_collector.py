"""Thresholds of the garbage collector for processes that belong to mudroom."""

import gc

_THRESHOLDS = (100_000, 20, 100)
"""With Python's defaults it takes more time with each child: a sixth of the CPU time with 500
children. The start of the command line makes about 50,000 objects, none of them garbage."""


def collect_garbage_less_often() -> None:
    """Set thresholds for many objects that live long."""
    gc.set_threshold(*_THRESHOLDS)
