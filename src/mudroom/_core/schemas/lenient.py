"""Lenient reading of values that models write.

Models write numbers and booleans as strings, and whole lists and objects as JSON strings. Every
value with a schema passes through here before validation: tool arguments and emitted values alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import msgspec

from ..json_values import JsonValue, find_json_fault
from .sendable_schema import resolve_reference

# Levels of a schema that are read. Anything deeper stays as the model wrote it.
_MAX_LEVELS = 100

# Choices tried for one value. Nested `anyOf` multiply: without a limit, a hostile schema of an
# MCP server could keep the process busy forever.
_MAX_TRIES = 10_000

# Length of a chain of `$ref`, which may be a circle.
_MAX_REFERENCES = 20

_VALUES = frozenset(("enum", "const"))
_FENCE = "```"
_CHOICES = frozenset(("anyOf", "oneOf", "allOf"))
_DEFINITIONS = ("$defs", "definitions")

# None would not do as a marker: it is the value of the JSON text "null".
NOT_JSON: Any = object()


def read_leniently(
    schema: Mapping[str, Any], value: JsonValue, root: Mapping[str, Any] | None = None
) -> JsonValue:
    """Convert a value to what its schema asks for; anything else stays unchanged.

    `"1"` becomes 1 where the schema wants an integer, `"true"` becomes true, and a JSON text
    becomes the list or object it holds. A text stays a text wherever the schema allows one, so
    `"007"` and `'{"a":1}'` are safe. The result is not validated here.

    Arguments:
        root: the schema holding the definitions that references point to; default: `schema`.

    Example:
        read_leniently({"type": "array", "items": {"type": "integer"}}, '["1", 2]') == [1, 2]
    """
    return _Reader(schema if root is None else root).read(schema, value, 0)


def decode_json(text: str) -> JsonValue:
    """Decode a JSON text; NOT_JSON if it is not JSON or cannot be recorded."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return NOT_JSON
    return NOT_JSON if find_json_fault(value) else value


def find_json(text: str) -> JsonValue:
    """Find the JSON value in an answer: the whole text, or its only fenced block.

    Other words may surround the block. NOT_JSON if there is none, or if there are two blocks, since
    either could be meant.
    """
    value = decode_json(text)
    if value is not NOT_JSON:
        return value
    parts = text.split(_FENCE)
    if len(parts) != 3:
        return NOT_JSON
    block = parts[1]
    value = decode_json(block)
    if value is NOT_JSON:
        word, _, rest = block.partition("\n")
        block = rest if rest and word.strip().isalnum() else block.lstrip().removeprefix("json")
        value = decode_json(block)
    return value


class _Reader:
    """Reads one value. The time is linear in its size, apart from a bounded number of tries."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._tries = 0
        self._validators: dict[int, Callable[[JsonValue], bool] | None] = {}

    def read(
        self, schema: Mapping[str, Any] | bool | None, value: JsonValue, level: int
    ) -> JsonValue:
        if not schema or schema is True or level > _MAX_LEVELS:
            return value
        if "$ref" in schema:
            schema = self._resolve(schema)
        if not _CHOICES.isdisjoint(schema):
            value = self._read_choices(schema, value, level)
        if isinstance(value, str):
            return self._read_text(schema, value, level)
        if isinstance(value, dict):
            return self._read_fields(schema, value, level)
        if isinstance(value, list):
            return self._read_items(schema, value, level)
        return _read_number(value, schema) if isinstance(value, int | float) else value

    def _read_text(self, schema: Mapping[str, Any], text: str, level: int) -> JsonValue:
        value = _read_text(text, schema)
        return self.read(schema, value, level + 1) if isinstance(value, list | dict) else value

    def _read_choices(self, schema: Mapping[str, Any], value: JsonValue, level: int) -> JsonValue:
        for keyword in ("anyOf", "oneOf"):
            if choices := _list_schemas(schema.get(keyword)):
                value = self._choose(choices, value, level)
        for part in _list_schemas(schema.get("allOf")):
            value = self._try(part, value, level)
        return value

    def _try(self, schema: Mapping[str, Any], value: JsonValue, level: int) -> JsonValue:
        self._tries += 1
        return value if self._tries > _MAX_TRIES else self.read(schema, value, level + 1)

    def _read_items(
        self, schema: Mapping[str, Any], items: list[JsonValue], level: int
    ) -> JsonValue:
        rest = schema.get("items")
        if not rest and "prefixItems" not in schema:
            return items
        first = _list_schemas(schema.get("prefixItems"))
        schemas = [*first[: len(items)], *[rest] * (len(items) - len(first))]
        return [self.read(*pair, level + 1) for pair in zip(schemas, items, strict=True)]

    def _read_fields(
        self, schema: Mapping[str, Any], fields: dict[str, JsonValue], level: int
    ) -> JsonValue:
        known: Mapping[str, Any] = schema.get("properties") or {}
        others = schema.get("additionalProperties")
        changed: dict[str, JsonValue] = {}
        for name, value in fields.items():
            own = known.get(name, others)
            if not own or own is True:
                continue
            if "type" in own and own["type"] == "string" and _VALUES.isdisjoint(own):
                continue  # the usual case
            new = self.read(own, value, level + 1)
            if new is not value:
                changed[name] = new
        return {**fields, **changed} if changed else fields

    def _choose(
        self, choices: Sequence[Mapping[str, Any]], value: JsonValue, level: int
    ) -> JsonValue:
        # The reading that changes least wins: a value that already fits stays as it is, then the
        # JSON inside a text is tried unchanged, and only then are its parts converted as well.
        if self._fits_one(choices, value):
            return value
        if isinstance(value, str):
            decoded = decode_json(value)
            if decoded is not NOT_JSON and self._fits_one(choices, decoded):
                return decoded
        for choice in choices:
            read = self._try(choice, value, level)
            if self._fits_one([choice], read):
                return read
        if isinstance(value, str):
            # The check then says what is wrong inside, not that a text is no object.
            decoded = decode_json(value)
            return decoded if isinstance(decoded, list | dict) else value
        return value

    def _fits_one(self, choices: Sequence[Mapping[str, Any]], value: JsonValue) -> bool:
        for choice in choices:
            if id(choice) not in self._validators:  # the root keeps the choices alive
                self._validators[id(choice)] = self._make_validator(choice)
            is_valid = self._validators[id(choice)]
            if is_valid and is_valid(value):
                return True
        return False

    def _make_validator(self, schema: Mapping[str, Any]) -> Callable[[JsonValue], bool] | None:
        import jsonschema_rs

        definitions = {key: self._root[key] for key in _DEFINITIONS if key in self._root}
        try:
            return jsonschema_rs.validator_for({**schema, **definitions}, offline=True).is_valid
        except (ValueError, jsonschema_rs.ValidationError):
            return None

    def _resolve(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        for _ in range(_MAX_REFERENCES):
            reference = schema.get("$ref")
            if not isinstance(reference, str):
                return schema
            rest = {key: item for key, item in schema.items() if key != "$ref"}
            schema = {**resolve_reference(reference, self._root), **rest}
        return {}


def _list_schemas(value: object) -> list[Mapping[str, Any]]:
    if not isinstance(value, list):
        return []
    items = cast("list[Any]", value)
    return [cast("Mapping[str, Any]", item) for item in items if isinstance(item, Mapping)]


def _list_types(schema: Mapping[str, Any]) -> tuple[str, ...]:
    kind = schema.get("type")
    if isinstance(kind, str):
        return (kind,)
    if isinstance(kind, list):
        return tuple(str(item) for item in cast("list[Any]", kind))
    if "properties" in schema:
        return ("object",)
    return ("array",) if "items" in schema else ()


def _list_values(schema: Mapping[str, Any]) -> list[Any] | None:
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum")
    return cast("list[Any]", values) if isinstance(values, list) else None


def _read_text(text: str, schema: Mapping[str, Any]) -> JsonValue:
    types = _list_types(schema)
    values = _list_values(schema)
    if values is None and (not types or "string" in types):
        return text
    if values is not None and text in values:
        return text
    decoded = decode_json(text.lower() if text.lower() in ("true", "false") else text)
    if decoded is NOT_JSON:
        wants_parts = "array" in types or "object" in types
        found: JsonValue = find_json(text) if wants_parts else text
        return found if isinstance(found, list | dict) else text
    if values is not None:
        return decoded if any(_is_same(decoded, each) for each in values) else text
    decoded = _read_number(decoded, schema) if isinstance(decoded, int | float) else decoded
    return decoded if _has_type(decoded, types) else text


def _read_number(number: float, schema: Mapping[str, Any]) -> JsonValue:
    """Read 1 and 0 where only a boolean is allowed, and 2.0 where only an integer is."""
    types = _list_types(schema)
    if isinstance(number, bool) or "number" in types or not types:
        return number
    if isinstance(number, float):
        return int(number) if "integer" in types and number.is_integer() else number
    if "boolean" in types and "integer" not in types and number in (0, 1):
        return bool(number)
    return number


def _is_same(one: object, other: object) -> bool:
    # In Python, 1 == True.
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _has_type(value: JsonValue, types: Sequence[str]) -> bool:
    if value is None:
        return "null" in types
    if isinstance(value, bool):
        return "boolean" in types
    if isinstance(value, int):
        return "integer" in types or "number" in types
    if isinstance(value, float):
        return "number" in types
    return ("array" if isinstance(value, list) else "object") in types
