"""JSON Schemas for models from msgspec structs, and lenient parsing of arguments."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from ..._core.json_values import JsonValue
from ..._core.schemas import read_leniently

T = TypeVar("T")

_OMITTED_KEYS = {"title", "default", "additionalProperties", "$defs"}


def load_description(module: str) -> str:
    """Read a tool's text for the model: the .md file beside its module."""
    return Path(module).with_suffix(".md").read_text("utf-8").strip()


def build_schema(
    arguments: type[msgspec.Struct], *, hidden: tuple[str, ...] = ()
) -> dict[str, Any]:
    """Build a compact JSON Schema: no titles, references, defaults, docstrings or hidden names."""
    full = msgspec.json.schema(arguments)
    compact = _compact(full, full.get("$defs", {}), ())
    for name in hidden:
        compact["properties"].pop(name)
    return compact


def build_parser(arguments: type[T]) -> Callable[[dict[str, Any]], T]:
    """Build a lenient parser for arguments sent by a model.

    It drops null values, and raises ValueError with place and reason.
    """

    @cache
    def get_schema() -> dict[str, Any]:
        # Most tools of a session are called late or never, and each schema takes a millisecond.
        return build_schema(cast(Any, arguments))

    known = frozenset(cast("type[msgspec.Struct]", arguments).__struct_encode_fields__)

    def parse(sent: dict[str, Any]) -> T:
        if known.issuperset(sent) and None not in sent.values():
            try:
                return msgspec.convert(sent, arguments)  # the usual case
            except msgspec.ValidationError:
                pass  # the lenient reading below explains anything it cannot read
        schema = get_schema()
        properties: dict[str, Any] = schema["properties"]
        # Under a strict schema, a model sends null for omitted arguments, even unknown ones.
        values = {name: value for name, value in sent.items() if value is not None}
        unknown = [name for name in values if name not in properties]
        if unknown:
            names = ", ".join(properties)
            raise ValueError(f"{', '.join(unknown)}: unknown; the arguments are {names}")
        try:
            # Hidden arguments are not among the parameters with which the engine read the others.
            return msgspec.convert(read_leniently(schema, values), arguments, strict=False)
        except msgspec.ValidationError as error:
            from ..._core.schemas import explain_mismatch

            raise ValueError(explain_mismatch(error, schema)) from None

    return parse


def take_flag(arguments: dict[str, Any], name: str, default: bool = False) -> bool:
    value = _take(arguments, name, "boolean")
    if value is not None and not isinstance(value, bool):
        raise ValueError(f"{name}: is not true or false")
    return default if value is None else value


def take_integer(arguments: dict[str, Any], name: str) -> int | None:
    """Remove and return an argument that is in no schema; None if it is missing."""
    if name not in arguments:
        return None
    value = _take(arguments, name, "integer")
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise ValueError(f"{name}: is not a whole number")
    return value


def _take(arguments: dict[str, Any], name: str, kind: str) -> JsonValue:
    return read_leniently({"type": kind}, arguments.pop(name)) if name in arguments else None


def _compact_value(
    node: JsonValue, definitions: dict[str, Any], parents: tuple[str, ...]
) -> JsonValue:
    if isinstance(node, list):
        return [_compact_value(item, definitions, parents) for item in node]
    if isinstance(node, dict):
        return _compact(node, definitions, parents)
    return node


def _compact(
    schema: dict[str, Any], definitions: dict[str, Any], parents: tuple[str, ...]
) -> dict[str, Any]:
    """Remove parts a model need not read; `parents` are the enclosing types."""
    schema = _remove_null(schema)
    if "$ref" in schema:
        return _expand_type(schema["$ref"].rsplit("/", 1)[1], definitions, parents)
    compact: dict[str, Any] = {}
    if "enum" in schema and all(isinstance(value, str) for value in schema["enum"]):
        compact["type"] = "string"
    for key, value in schema.items():
        if key in _OMITTED_KEYS or value == []:
            continue
        if key == "properties":
            compact[key] = {
                name: _compact_value(inner, definitions, parents) for name, inner in value.items()
            }
        elif key in ("enum", "required"):
            compact[key] = value
        else:
            compact[key] = _compact_value(value, definitions, parents)
    return compact


def _remove_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Reduce a union of a type and null to the type: a model can leave the argument out."""
    choices = [choice for choice in schema.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) != 1:
        return schema
    others = {key: value for key, value in schema.items() if key != "anyOf"}
    return {**choices[0], **others}


def _expand_type(
    name: str, definitions: dict[str, Any], parents: tuple[str, ...]
) -> dict[str, Any]:
    """Inline a named type; a recursive type becomes a plain object inside itself."""
    if name in parents:
        return {"type": "object"}
    compact = _compact(definitions[name], definitions, (*parents, name))
    if "properties" in compact:
        compact.pop("description", None)  # a docstring, meant for programmers
    return compact
