"""Lists the checks in a conformance suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def collect_checks(names: Mapping[str, Any]) -> tuple[Callable[..., Any], ...]:
    """Collect a module's `check_...` functions in order, from its `globals()`."""
    return tuple(value for name, value in names.items() if name.startswith("check_"))
