"""JSON Schemas: values read as a schema means them, schemas that every provider accepts.

Models write numbers and booleans as strings, and whole lists and objects as JSON strings. Every
value with a schema is read leniently here before validation: tool arguments and emitted values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec

from .json_values import JsonValue, find_json_fault

# Levels of a schema that are read. Anything deeper stays as the model wrote it.
_MAX_LEVELS = 100

# Choices tried for one value. Nested `anyOf` multiply: without a limit, a hostile schema of an
# MCP server could keep the process busy forever.
_MAX_TRIES = 10_000

# Length of a chain of `$ref`, which may be a circle.
_MAX_REFERENCES = 20

_VALUES = frozenset(("enum", "const"))
_FENCE = "```"
_COMBINERS = ("anyOf", "oneOf", "allOf")
_CHOICES = frozenset(_COMBINERS)
_DEFINITIONS = ("$defs", "definitions")

# None would not do as a marker: it is the value of the JSON text "null".
NOT_JSON: Any = object()


def read_leniently(schema: Mapping[str, Any], value: JsonValue) -> JsonValue:
    """Convert a value to what its schema asks for; anything else stays unchanged.

    `"1"` becomes 1 where the schema wants an integer, `"true"` becomes true, and a JSON text
    becomes the list or object it holds. A text stays a text wherever the schema allows one, so
    `"007"` and `'{"a":1}'` are safe. The result is not validated here.

    Example:
        read_leniently({"type": "array", "items": {"type": "integer"}}, '["1", 2]') == [1, 2]
    """
    return _Reader(schema).read(schema, value, 0)


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
        decoded: JsonValue = decode_json(value) if isinstance(value, str) else NOT_JSON
        if decoded is not NOT_JSON and self._fits_one(choices, decoded):
            return decoded
        for choice in choices:
            read = self._try(choice, value, level)
            if self._fits_one([choice], read):
                return read
        # The check then says what is wrong inside, not that a text is no object.
        return decoded if isinstance(decoded, list | dict) else value

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


_OMITTED = ("$schema", "$id", "$defs", "definitions", "$comment", "$anchor", "$dynamicAnchor")
_TYPES = ("string", "number", "boolean", "object", "array", "null")
# Levels that are sent. Anything deeper is sent as "any value".
_MAX_DEPTH = 12
# Each use of a reference becomes a copy of its target, so a small schema can expand without end.
# After this many parts, the rest is sent as "any value".
_MAX_PARTS = 5_000


def make_sendable(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Rewrite a tool's parameters as an object with its properties at the root.

    Providers refuse choices at the root and references to other documents, and some accept no
    references at all. Constraints lost here are still enforced when arguments are validated.
    """
    parameters = _flatten(_expand(schema))
    parameters["type"] = "object"
    parameters.setdefault("properties", {})
    return parameters


def make_sendable_value(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Rewrite the schema of one value without references, with a type in every part.

    The grammars of llama.cpp take a schema without a type for an object, so a model constrained by
    one could write neither text nor numbers there.
    """
    return cast("dict[str, Any]", _name_types(_expand(schema)))


def _expand(schema: Mapping[str, Any]) -> dict[str, Any]:
    return cast("dict[str, Any]", _Expansion(schema).expand(schema))


def _name_types(schema: object) -> object:
    if not isinstance(schema, Mapping):
        return {"type": list(_TYPES)} if schema is True else schema
    named = dict(cast("Mapping[str, Any]", schema))
    for key in ("items", "additionalProperties"):
        if isinstance(named.get(key), Mapping):
            named[key] = _name_types(named[key])
    for key in (*_COMBINERS, "prefixItems"):
        if isinstance(named.get(key), list):
            named[key] = [_name_types(item) for item in named[key]]
    if properties := _get_mapping(named, "properties"):
        named["properties"] = {name: _name_types(item) for name, item in properties.items()}
    if not named.keys() & {"type", "enum", "const", *_COMBINERS}:
        kind = "object" if properties else "array" if "items" in named else list(_TYPES)
        named = {"type": kind, **named}
    return named


class _Expansion:
    """Copies a schema, with every reference replaced by what it refers to."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._parts = 0

    def expand(self, value: object, references: tuple[str, ...] = (), depth: int = 0) -> object:
        if isinstance(value, list):
            items = cast("list[Any]", value)
            return [self.expand(item, references, depth) for item in items]
        if not isinstance(value, Mapping):
            return value
        part = cast("Mapping[str, Any]", value)
        self._parts += 1
        if depth > _MAX_DEPTH or self._parts > _MAX_PARTS:
            return {}
        reference = part.get("$ref")
        if isinstance(reference, str):
            rest = {key: item for key, item in part.items() if key != "$ref"}
            if reference in references:  # a recursive schema
                return self.expand(rest, references, depth + 1)
            target = {**resolve_reference(reference, self._root), **rest}
            return self.expand(target, (*references, reference), depth + 1)
        return {
            key: self.expand(item, references, depth + 1)
            for key, item in part.items()
            # A tool may have a property that is called like a keyword, such as `definitions`.
            if key not in _OMITTED or _is_property(item, key)
        }


def _is_property(item: object, key: str) -> bool:
    return key == "definitions" and isinstance(item, Mapping) and "type" in item


def resolve_reference(reference: str, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Find the target of a reference within a document; an empty schema for any other."""
    if not reference.startswith("#"):
        return {}
    part: Any = root
    for step in filter(None, reference[1:].split("/")):
        # JSON Pointer (RFC 6901) escapes "/" and "~" in names.
        name = step.replace("~1", "/").replace("~0", "~")
        part = cast("Mapping[str, Any]", part).get(name) if isinstance(part, Mapping) else None
    return cast("Mapping[str, Any]", part) if isinstance(part, Mapping) else {}


def _flatten(schema: Mapping[str, Any]) -> dict[str, Any]:
    merged = {key: value for key, value in schema.items() if key not in _COMBINERS}
    properties = dict(_get_mapping(merged, "properties"))
    required = set(_get_names(merged))
    for keyword in _COMBINERS:
        choices = [_flatten(item) for item in _list_schemas(schema.get(keyword))]
        for choice in choices:
            for name, value in _get_mapping(choice, "properties").items():
                properties.setdefault(name, value)
        names = [set(_get_names(choice)) for choice in choices]
        if names:
            union = keyword == "allOf"
            required |= set[str]().union(*names) if union else names[0].intersection(*names[1:])
    if properties or "properties" in merged:
        merged["properties"] = properties
    if known := [name for name in properties if name in required]:
        merged["required"] = known
    else:
        merged.pop("required", None)
    return merged


def _get_mapping(schema: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = schema.get(key)
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def _get_names(schema: Mapping[str, Any]) -> Iterable[str]:
    value = schema.get("required")
    names = cast("list[Any]", value) if isinstance(value, list) else []
    return [name for name in names if isinstance(name, str)]


_JSON_TYPES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "array": "array",
    "object": "object",
    "null": "null",
}
_STEP = r"[^.\[\]]+|\[[^\[\]]*\]"
_BOUND = r"`[^\s`]+` ((?:of|matching|that|>|<|with).*)"


def explain_mismatch(
    error: Exception, schema: Mapping[str, Any] | None = None, what: str = "arguments"
) -> str:
    """Describe a mismatch as `place: reason; expected type`.

    Only errors of msgspec are reworded; any other text, as of a `__post_init__`, stays unchanged.

    Arguments:
        error: as msgspec raised it.
        schema: JSON Schema of the value, which adds the choices of an enumeration; None for none.
        what: what to call the value when the place is the value as a whole.

    Example:
        import msgspec

        class Message(msgspec.Struct):
            prompt: str

        try:
            msgspec.json.decode(b'{"prompt": {}}', type=Message)
        except msgspec.ValidationError as error:
            explain_mismatch(error) == "prompt: is object; expected string"
    """
    if not isinstance(error, msgspec.ValidationError):
        return str(error)
    # msgspec reports the place only in the text of its error, so it is taken from there.
    reason, has_place, path = str(error).rpartition(" - at `")
    if not has_place:
        reason, path = path, ""
    is_key = path.startswith("key")
    path = path.rpartition("$")[2].rstrip("`").removeprefix(".")
    if error.__cause__ is not None:  # of a `__post_init__`
        return f"{path}: {error.__cause__}" if path else str(error.__cause__)
    expected = _describe_type(path, schema or {}) or _find_expected(reason)
    if missing := re.match(r"Object missing required field `(.+?)`", reason):
        path = f"{path}.{missing[1]}" if path else missing[1]
        reason, expected = "required", _describe_type(path, schema or {})
    elif unknown := re.match(r"Object contains unknown field `(.*)`", reason, re.DOTALL):
        path = f"{path}.{unknown[1]}" if path else unknown[1]
        names = ", ".join((schema or {}).get("properties", {})) if "." not in path else ""
        return f"{path}: unknown; the {what} are {names}" if names else f"{path}: unknown"
    elif wrong := re.search(r", got `(\w+)`", reason):
        reason = f"is {_JSON_TYPES.get(wrong[1], wrong[1])}"
    elif bound := re.search(_BOUND, reason):
        reason, expected = "is out of bounds", f"{expected} {bound[1]}"
    place = f"a key of {path or what}" if is_key else path or what
    text = f"{place}: {reason[0].lower()}{reason[1:]}"
    return f"{text}; expected {expected}" if expected else text


def _find_expected(reason: str) -> str:
    found = re.match(r"Expected `([^`]+)`", reason)
    names = found[1].split(" | ") if found else []
    return " or ".join(_JSON_TYPES.get(name, name) for name in names)


def _describe_type(path: str, schema: Mapping[str, Any]) -> str:
    for step in re.findall(_STEP, path):
        if step.startswith("["):
            schema = schema.get("items") or schema.get("additionalProperties") or {}
        else:
            schema = schema.get("properties", {}).get(step, {})
        if not isinstance(schema, Mapping):
            return ""
    if "enum" in schema:
        return "one of " + ", ".join(str(value) for value in schema["enum"])
    kind = schema.get("type", "")
    return kind if isinstance(kind, str) else " or ".join(map(str, kind))
