"""Numbers of examples of generated tests: few in `make test`, many with MUDROOM_LONG."""

from __future__ import annotations

import os


def count_examples(short: int, long: int) -> int:
    """Return how many examples a generated test tries."""
    return long if os.environ.get("MUDROOM_LONG") else short
