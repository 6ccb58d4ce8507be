"""Declared outputs, read from names with descriptions or from a JSON Schema."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, cast

import msgspec
from msgspec import Struct

from ..errors import quote_value, suggest_names
from .agents import Output
from .json_values import find_schema_error

# Name of the only output when a schema describes one value instead of named fields.
SINGLE_OUTPUT = "result"

_TYPES = ("null", "boolean", "object", "array", "number", "string", "integer")
# An object schema with only these keywords can be split: its fields are emitted and checked one
# by one. Any other keyword may relate fields to each other.
_FIELD_KEYWORDS = {
    *("type", "properties", "required", "additionalProperties", "$defs", "$schema", "$comment"),
    *("title", "description", "default", "examples", "deprecated"),
}


# Keywords found beside `type` in the schema of one value.
_VALUE_KEYWORDS = {
    *("type", "items", "properties", "required", "additionalProperties", "format", "pattern"),
    *("minItems", "maxItems", "minLength", "maxLength", "minimum", "maximum"),
}

# An empty schema would not do: an `Output` without a schema is a text.
_ANY_VALUE = {"type": list(_TYPES)}


class OutputDeclaration(Struct, frozen=True):
    """The outputs an agent or caller declares, by name; SINGLE_OUTPUT if it describes one value."""

    outputs: dict[str, Output]
    describes_one_value: bool = False


def parse_outputs(
    declared: Mapping[str, Any], read_type: Callable[[str, object], Output] | None = None
) -> OutputDeclaration:
    """Read outputs from a JSON Schema or a mapping of names. Raises ValueError.

    In a mapping of names, each value is a description, a JSON Schema or an Output. The mapping is
    taken as a JSON Schema if `type` is a JSON type, a key begins with `$`, `properties` maps names
    to schemas, or `enum`, `anyOf`, `oneOf` or `allOf` is a list. `read_type` reads any other value,
    such as a type.
    """
    if not all(isinstance(name, str) for name in declared):
        raise ValueError("the names must be texts")
    if _is_json_schema(declared):
        return parse_schema(dict(declared))
    _check_type(declared)
    for name in declared:
        _check_name(name)
    return OutputDeclaration(
        {name: _parse_output(name, value, read_type) for name, value in declared.items()}
    )


def parse_schema(schema: dict[str, Any]) -> OutputDeclaration:
    """Declare one output per field if the fields can be checked one by one, else a single output.

    Raises ValueError if it is not a JSON Schema.
    """
    target = _resolve_reference(schema)
    if not _has_separate_fields(target):
        _check_schema(SINGLE_OUTPUT, schema)
        output = make_output(schema)
        return OutputDeclaration({SINGLE_OUTPUT: output}, describes_one_value=True)
    outputs: dict[str, Output] = {}
    for name, field_schema in target["properties"].items():
        _check_name(name)
        complete = field_schema
        if "$defs" in target and b'"$ref"' in msgspec.json.encode(field_schema):
            complete = {**field_schema, "$defs": target["$defs"]}
        _check_schema(name, complete)
        is_optional = name not in target.get("required", ())
        outputs[name] = make_output(complete, is_optional=is_optional)
    return OutputDeclaration(outputs)


def make_output(schema: dict[str, Any], *, is_optional: bool = False) -> Output:
    """Make the output of a JSON Schema; an empty schema accepts any value."""
    description = str(schema.get("description", ""))
    return Output(description, schema or _ANY_VALUE, optional=is_optional)


def _check_name(name: str) -> None:
    # Names are listed in a prompt, and the model has to repeat them exactly.
    if not name.strip() or not name.isprintable():
        raise ValueError(f"the output name {name!a} is blank or has characters that do not print")


def _check_type(declared: Mapping[str, Any]) -> None:
    kind = declared.get("type")
    # A misspelt `type` would silently turn a schema into a mapping of names. It counts as
    # misspelt if it is one word and either resembles a JSON type or stands among schema keywords
    # only.
    if not isinstance(kind, str) or not kind.isidentifier():
        return
    remedy = suggest_names(kind, _TYPES)
    if remedy.startswith("Did") or declared.keys() <= _VALUE_KEYWORDS:
        raise ValueError(
            f"{quote_value(kind)} is no JSON type. {remedy} "
            'For an output with the name type write {"type": {"type": "string"}}'
        )


def _check_schema(name: str, schema: dict[str, Any]) -> None:
    if reason := find_schema_error(schema):
        raise ValueError(f"{name} is not a JSON Schema: {reason}")


def _parse_output(
    name: str, value: object, read_type: Callable[[str, object], Output] | None
) -> Output:
    if isinstance(value, str):
        return Output(value)
    if isinstance(value, Mapping):
        value = make_output(dict(cast("Mapping[str, Any]", value)))
    if read_type and value is not None and not isinstance(value, Output):
        value = read_type(name, value)
    if not isinstance(value, Output):
        raise ValueError(f"{name} is neither a description nor a JSON Schema")
    if value.schema:
        _check_schema(name, value.schema)
    return value


def _is_json_schema(declared: Mapping[str, Any]) -> bool:
    kind = declared.get("type")
    kinds = cast("list[Any]", kind) if isinstance(kind, list) else [kind]
    return (
        all(kind in _TYPES for kind in kinds)
        or any(name.startswith("$") for name in declared)
        or _maps_to_mappings(declared.get("properties"))
        or any(isinstance(declared.get(key), list) for key in ("enum", "anyOf", "oneOf", "allOf"))
    )


def _maps_to_mappings(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    items = cast("Mapping[str, object]", value).values()
    return all(isinstance(item, Mapping) for item in items)


def _resolve_reference(schema: dict[str, Any]) -> dict[str, Any]:
    """Follow a top-level `$ref`, as schemas generated from classes have it."""
    definitions = schema.get("$defs")
    path, _, name = str(schema.get("$ref", "")).rpartition("/")
    if path != "#/$defs" or not isinstance(definitions, Mapping) or name not in definitions:
        return schema
    return {**definitions[name], "$defs": definitions}


def _has_separate_fields(schema: dict[str, Any]) -> bool:
    fields = schema.get("properties")
    if not fields or not _maps_to_mappings(fields) or schema.get("type", "object") != "object":
        return False
    references = re.findall(rb'"\$ref":"([^"]*)', msgspec.json.encode(schema))
    return (
        schema.keys() <= _FIELD_KEYWORDS
        and isinstance(schema.get("additionalProperties", False), bool)
        and fields.keys() >= set(schema.get("required", ()))
        and all(reference.startswith(b"#/$defs/") for reference in references)
    )
