"""From a msgspec struct to the small schema a model reads, and from what the model sent to the struct, leniently."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

T = TypeVar("T")

_NOISE = {"title", "default", "additionalProperties", "$defs"}
_JSON_TYPES = {
    "str": "string",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "array": "array",
    "object": "object",
    "null": "null",
}


def load_description(module: str) -> str:
    """The text for the model that lies beside a tool's file."""
    return Path(module).with_suffix(".md").read_text("utf-8").strip()


def build_schema(
    arguments: type[msgspec.Struct], *, hidden: tuple[str, ...] = ()
) -> dict[str, Any]:
    """A compact JSON Schema: no titles, references, defaults, docstrings.

    Arguments:
        silent: names that are accepted but not offered.
    """
    whole = msgspec.json.schema(arguments)
    compact = _compact(whole, whole.get("$defs", {}), ())
    for name in hidden:
        compact["properties"].pop(name)
    return compact


def build_parser(arguments: type[T]) -> Callable[[dict[str, Any]], T]:
    """A function from what the model sent to `arguments`.

    "5" is taken for 5, "true" for true, a JSON text for the list or object it holds, null for "left out".
    It raises ValueError that names the place and the reason.
    """
    full = build_schema(cast(Any, arguments))
    known: dict[str, Any] = full["properties"]

    def parse(given: dict[str, Any]) -> T:
        unknown = [name for name in given if name not in known]
        if unknown:
            raise ValueError(f"{', '.join(unknown)}: unknown; the arguments are {', '.join(known)}")
        sent = {
            name: _opened(value, known[name]) for name, value in given.items() if value is not None
        }
        try:
            return msgspec.convert(sent, arguments, strict=False)
        except msgspec.ValidationError as error:
            raise ValueError(_said(str(error), full)) from None

    return parse


def _compact(node: Any, definitions: dict[str, Any], above: tuple[str, ...]) -> Any:
    """A schema without what a model need not read; `above` are the types that are being written out."""
    if isinstance(node, list):
        return [_compact(item, definitions, above) for item in cast(list[Any], node)]
    if not isinstance(node, dict):
        return node
    found = cast(dict[str, Any], node)
    if "$ref" in found:
        return _type(found["$ref"].rsplit("/", 1)[1], definitions, above)
    if "anyOf" in found:
        choices = [choice for choice in found["anyOf"] if choice != {"type": "null"}]
        if len(choices) == 1:
            return _compact(
                {**choices[0], **{key: found[key] for key in found if key != "anyOf"}},
                definitions,
                above,
            )
    compact: dict[str, Any] = {}
    if "enum" in found and all(isinstance(value, str) for value in found["enum"]):
        compact["type"] = "string"
    for key, value in found.items():
        if key == "properties":
            compact[key] = {
                name: _compact(inner, definitions, above) for name, inner in value.items()
            }
        elif key not in _NOISE and value != []:
            compact[key] = (
                value if key in ("enum", "required") else _compact(value, definitions, above)
            )
    return compact


def _type(name: str, definitions: dict[str, Any], above: tuple[str, ...]) -> dict[str, Any]:
    """A named type written out in place. One that holds itself would have no end: inside itself it is just an object."""
    if name in above:
        return {"type": "object"}
    compact = _compact(definitions[name], definitions, (*above, name))
    if "properties" in compact:
        compact.pop("description", None)  # a docstring, meant for programmers
    return compact


def _opened(value: Any, expected: dict[str, Any]) -> Any:
    """A list or object that came as JSON text."""
    if isinstance(value, str) and expected.get("type") in ("array", "object"):
        try:
            return msgspec.json.decode(value)
        except msgspec.DecodeError:
            return value
    return value


def _said(message: str, full: dict[str, Any]) -> str:
    """msgspec's message as `place: reason`."""
    reason, _, path = message.partition(" - at `$")
    path = path.rstrip("`").removeprefix(".")
    if missing := re.search(r"missing required field `(.+?)`", reason):
        path = f"{path}.{missing[1]}" if path else missing[1]
        reason = "required"
    expected = _expected(path, full)
    if got := re.search(r", got `(\w+)`", reason):
        reason = f"is {_JSON_TYPES.get(got[1], got[1])}"
    return f"{path or 'arguments'}: {reason[0].lower()}{reason[1:]}" + (
        f"; expected {expected}" if expected else ""
    )


def _expected(path: str, node: dict[str, Any]) -> str:
    for part in re.findall(r"[^.\[\]]+|\[\.*\d*\]|\[\.\.\.\]", path):
        node = (
            node.get("items", {})
            if part.startswith("[")
            else node.get("properties", {}).get(part, {})
        )
    if "enum" in node:
        return "one of " + ", ".join(str(value) for value in node["enum"])
    return str(node.get("type", ""))
