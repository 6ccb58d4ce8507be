"""JSON values from outside: their type, their limits, and the repair of bad characters.

Every text and JSON value from a model, tool, hook or user passes through here when it enters a run,
so whatever is in a run can be recorded, sent and read back.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import msgspec

_T = TypeVar("_T")

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
"""A decoded JSON or YAML value of any shape; `isinstance` narrows it level by level."""

OBJECT_TYPES = (dict, Mapping)
_LISTS = (list, tuple)
_NUMBERS = (int, float)

# Levels of nested lists and objects. Python's parsers and encoders fail at about 1,000.
MAX_DEPTH = 200

_INTEGER_BITS = 256

# msgspec stores its description of a type in the type before the description is complete. A
# second thread that uses the type meanwhile crashes the process.
_decoders_lock = threading.Lock()


def get_decoder(kind: type[_T]) -> msgspec.json.Decoder[_T]:
    """Return the cached decoder of a record type, safe to use from several threads."""
    with _decoders_lock:
        return msgspec.json.Decoder(kind)


if not TYPE_CHECKING:  # `cache` would lose the type of the records
    get_decoder = cache(get_decoder)


def make_binary_decoder(kind: type[_T]) -> msgspec.msgpack.Decoder[_T]:
    with _decoders_lock:
        return msgspec.msgpack.Decoder(kind)


def clean_text(text: str) -> str:
    """Make a text encodable as UTF-8.

    Surrogate pairs become one character; lone surrogates become U+FFFD.
    """
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def is_clean_json(value: object, levels: int = MAX_DEPTH) -> bool:
    """Quickly test whether a value can be recorded as it is.

    May answer False for a recordable value, such as text that is not ASCII; never the reverse.
    """
    if type(value) is str:
        return value.isascii()
    if type(value) is dict:
        if not levels:
            return False
        for key, item in cast("dict[object, object]", value).items():
            if type(key) is not str or not key.isascii() or not is_clean_json(item, levels - 1):
                return False
        return True
    if type(value) is list:
        items = cast("list[object]", value)
        return levels > 0 and all(is_clean_json(item, levels - 1) for item in items)
    if type(value) is int:
        return value.bit_length() <= _INTEGER_BITS
    if value is None or type(value) is bool:
        return True
    return type(value) is float and math.isfinite(value)


def find_json_fault(value: object, levels: int = MAX_DEPTH) -> str:
    """Explain why a value cannot be recorded as it is; "" if it can."""
    if type(value) is str:
        return ""  # the usual case, first
    if isinstance(value, float) and not math.isfinite(value):
        return f"the number {value} does not exist in JSON"
    if isinstance(value, int) and value.bit_length() > _INTEGER_BITS:
        return f"a number has {value.bit_length()} bits; at most {_INTEGER_BITS} are allowed"
    if isinstance(value, OBJECT_TYPES):
        items = cast("Mapping[object, object]", value).values()
    elif isinstance(value, _LISTS):
        items = cast("list[object]", value)
    else:
        return ""
    if not levels:
        return f"it nests deeper than {MAX_DEPTH} levels"
    for item in items:
        if fault := find_json_fault(item, levels - 1):
            return fault
    return ""


def clean_json(value: object, levels: int = MAX_DEPTH) -> JsonValue:
    """Make a value recordable: clean its texts, and describe in words what JSON lacks."""
    if isinstance(value, str):
        return clean_text(value)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, _NUMBERS):
        fault = find_json_fault(value)
        return f"({fault})" if fault else value
    is_object = isinstance(value, OBJECT_TYPES)
    if not is_object and not isinstance(value, _LISTS):
        return clean_text(repr(value))
    if not levels:
        return f"(nested deeper than {MAX_DEPTH} levels)"
    if is_object:
        pairs = cast("Mapping[object, object]", value).items()
        return {clean_text(str(key)): clean_json(item, levels - 1) for key, item in pairs}
    return [clean_json(item, levels - 1) for item in cast("list[object]", value)]


def map_texts(value: object, change: Callable[[str], str], *, keys: bool = False) -> object:
    """Change every text in a JSON value, and its keys if asked to."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        items = cast("dict[str, object]", value).items()
        return {
            change(key) if keys else key: map_texts(item, change, keys=keys) for key, item in items
        }
    if isinstance(value, _LISTS):
        items = cast("list[object]", value)
        return [map_texts(item, change, keys=keys) for item in items]
    return value


def find_schema_error(schema: dict[str, Any]) -> str:
    """Explain why a schema is not JSON Schema, "" if it is; loads no other documents."""
    import jsonschema_rs

    try:
        jsonschema_rs.validator_for(schema, offline=True)
    except (ValueError, jsonschema_rs.ValidationError) as error:
        return str(error).splitlines()[0]
    return ""
