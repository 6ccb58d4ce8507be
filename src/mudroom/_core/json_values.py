"""Type of decoded JSON and YAML values, and a check of JSON Schemas."""

from __future__ import annotations

from typing import Any, TypeAlias

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
"""A decoded JSON or YAML value of any shape; `isinstance` narrows it level by level."""


def find_schema_error(schema: dict[str, Any]) -> str:
    """Return why this is no JSON Schema, "" if it is one. Load no references to other documents."""
    import jsonschema_rs

    try:
        jsonschema_rs.validator_for(schema, offline=True)
    except (ValueError, jsonschema_rs.ValidationError) as error:
        return str(error).splitlines()[0]
    return ""
