"""Type of decoded JSON and YAML values."""

from __future__ import annotations

from typing import TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
"""A decoded JSON or YAML value of any shape; `isinstance` narrows it level by level."""
