"""Explains why a value does not have the expected type: where, what it is, what it should be."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

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
