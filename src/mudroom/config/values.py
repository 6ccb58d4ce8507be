"""Check of the values of settings, from files, variables and flags."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import cast, get_args

import msgspec

from .._core.ports.sandbox import SANDBOX_MODES
from ..errors import UsageError, suggest_names
from ..options import parse_worker
from .settings import (
    COLORS,
    NOTIFICATIONS,
    OUTPUT_FORMATS,
    PERMISSION_MODES,
    SCREENS,
    THEMES,
    Settings,
)

_CHOICES = {
    "output_format": OUTPUT_FORMATS,
    "color": COLORS,
    "screen": SCREENS,
    "theme": THEMES,
    "notifications": NOTIFICATIONS,
    "sandbox": SANDBOX_MODES,
    "permission_mode": PERMISSION_MODES,
}
_EXPECTED = {
    int: "a whole number from 1",
    float: "a number above 0",
    bool: "true or false",
    str: "text in quotes",
}
_PERCENT = "a whole number from 1 to 100"
_TABLES = {"child_model": ", or a table of agents and models"}
_TYPES = {field.name: field.type for field in msgspec.structs.fields(Settings)}


def validate_value(key: str, value: object, origin: str, *, is_text: bool = False) -> object:
    """Return a value in the type of its setting. Raises UsageError.

    Arguments:
        is_text: true if the source has only text, such as a flag or a variable.
    """
    if isinstance(value, str):
        value = value.strip()
    kind = _find_kind(_TYPES[key])
    is_strict = kind in (bool, str) and not is_text
    try:
        checked = msgspec.convert(value, _TYPES[key], strict=is_strict)
    except msgspec.ValidationError:
        checked = None
    rules = None
    if isinstance(checked, Mapping):
        rules = _strip_rules(cast("Mapping[str, str]", checked))
        checked = None
    if rules is not None:
        return rules
    if checked is None:
        is_percent = key in ("clear_at", "compact_at")
        expected = _PERCENT if is_percent else _EXPECTED[kind] + _TABLES.get(key, "")
        raise UsageError(f"{key} must be {expected}, not {value!r}", where=origin)
    if checked == "":
        remedy = "Leave it out for the default, or give a value."
        raise UsageError(f"{key} is blank", where=origin, remedy=remedy)
    if key in _CHOICES and checked not in _CHOICES[key]:
        remedy = suggest_names(checked, _CHOICES[key])
        raise UsageError(f"{key} cannot be {value!r}", where=origin, remedy=remedy)
    if key == "worker":
        parse_worker(checked, origin)
    return os.path.abspath(os.path.expanduser(checked)) if key == "home" else checked


def _strip_rules(rules: Mapping[str, str]) -> dict[str, str] | None:
    """Return a table of rules; None if it is empty or a text in it is blank."""
    stripped = {agent.strip(): model.strip() for agent, model in rules.items()}
    is_whole = len(stripped) == len(rules) and all(map(all, stripped.items()))
    return stripped if stripped and is_whole else None


def _find_kind(annotation: object) -> type:
    """Return the key of _EXPECTED that an annotation contains, as int in `PositiveInt | None`."""
    if isinstance(annotation, type) and annotation in _EXPECTED:
        return annotation
    return next(_find_kind(part) for part in get_args(annotation))
