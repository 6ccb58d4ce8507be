"""List of the checks in a conformance suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def collect_checks(names: Mapping[str, Any]) -> tuple[Callable[..., Any], ...]:
    """Return the functions `check_...` of a module in their order, from its `globals()`."""
    return tuple(value for name, value in names.items() if name.startswith("check_"))
