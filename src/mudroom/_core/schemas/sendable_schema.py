"""Rewrites JSON Schemas into a form that every provider accepts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

_CHOICES = ("anyOf", "oneOf", "allOf")
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
    for key in (*_CHOICES, "prefixItems"):
        if isinstance(named.get(key), list):
            named[key] = [_name_types(item) for item in named[key]]
    if properties := _get_mapping(named, "properties"):
        named["properties"] = {name: _name_types(item) for name, item in properties.items()}
    if not named.keys() & {"type", "enum", "const", *_CHOICES}:
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
    return key in ("definitions",) and isinstance(item, Mapping) and "type" in item


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


def _flatten(schema: dict[str, Any]) -> dict[str, Any]:
    merged = {key: value for key, value in schema.items() if key not in _CHOICES}
    properties = dict(_get_mapping(merged, "properties"))
    required = set(_get_names(merged))
    for keyword in _CHOICES:
        choices = [_flatten(item) for item in _list_mappings(schema.get(keyword))]
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
    return (
        [name for name in cast("list[Any]", value) if isinstance(name, str)]
        if isinstance(value, list)
        else []
    )


def _list_mappings(value: object) -> list[dict[str, Any]]:
    if not isinstance(value, list):
        return []
    return [
        cast("dict[str, Any]", item) for item in cast("list[Any]", value) if isinstance(item, dict)
    ]
