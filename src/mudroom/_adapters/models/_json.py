"""JSON for the wires, cleaned of NUL and lone surrogates, which providers reject."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import msgspec

from ..._core.json_values import clean_text, find_json_fault, is_clean_json
from ..._platform.patterns import compile_later
from ...errors import quote_value

_T = TypeVar("_T")
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder()
_KEY_ENDS = compile_later(r'"[ \t\r\n]*:')


def encode(value: object) -> bytes:
    try:
        data = _ENCODER.encode(value)
    except UnicodeEncodeError:
        return _ENCODER.encode(_clean_value(value))
    # Cleaning walks the whole value, so it is done only if the cheap checks fail.
    if b"\\u0000" in data:
        return _ENCODER.encode(_clean_value(value))
    return data


def clean(text: str) -> str:
    """Remove NUL, and replace lone surrogates with U+FFFD."""
    return clean_text(text).replace("\0", "")


def is_json(data: bytes) -> bool:
    try:
        _DECODER.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    return True


def make_decoder(kind: type[_T]) -> Callable[[bytes], _T]:
    """Make a function that decodes JSON as `kind` and raises msgspec.DecodeError.

    It falls back to a slower, tolerant parser for lone surrogates and invalid UTF-8. A field of
    type Raw keeps its JSON text, including repeated keys.
    """
    decode_strict = msgspec.json.Decoder(kind).decode

    def decode(data: bytes) -> _T:
        try:
            return decode_strict(data)
        except msgspec.ValidationError:
            raise
        except RecursionError:
            raise msgspec.DecodeError("it nests too deeply") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            try:
                value = json.loads(data.decode("utf-8", "replace"))
                return _convert(value, kind, decode_strict)
            except (ValueError, RecursionError):
                raise msgspec.DecodeError(str(error)) from None

    return decode


def _convert(value: object, kind: type[_T], decode: Callable[[bytes], _T]) -> _T:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        # Only a decoder can fill fields of type Raw; `convert` cannot.
        return decode(json.dumps(_clean_value(value)).encode())


_decode_any: Callable[[bytes], Any] = make_decoder(cast("type[Any]", Any))


def parse_arguments(text: str) -> tuple[dict[str, Any], str]:
    """Parse a tool call's arguments; return them and "".

    If the text is not a JSON object, return {} and the text. If a value cannot be recorded or an
    object repeats a key, return {} and the reason. Empty text means no arguments.
    """
    if not text.strip():
        return {}, ""
    try:
        value = _decode_any(text.encode("utf-8", "surrogatepass"))
    except msgspec.DecodeError:
        return {}, clean(text)
    if isinstance(value, dict):
        arguments = cast("dict[str, object]", value)
        if is_clean_json(arguments) and "\\u0000" not in text:
            fault = _find_repeated_key(text, len(arguments))
            return {} if fault else arguments, fault
        fault = find_json_fault(arguments) or _find_repeated_key(text, len(arguments))
        return {} if fault else _clean_mapping(arguments), fault
    return {}, clean(text)


def read_arguments(raw: msgspec.Raw) -> str:
    """Return the JSON text of arguments sent as an object or as a string; "" for none."""
    data = bytes(raw)
    if data.startswith(b'"'):
        return _decode_any(data)
    return "" if data == b"null" else data.decode("utf-8", "replace")


def _find_repeated_key(text: str, count: int) -> str:
    # The text has as many keys as the outer object, so none was overwritten, and the second, slower
    # reading is not needed.
    if len(_KEY_ENDS.findall(text)) == count:
        return ""
    repeated: list[str] = []

    def check(pairs: list[tuple[str, object]]) -> dict[str, object]:
        fields: dict[str, object] = {}
        for name, value in pairs:
            if name in fields:
                repeated.append(name)
            fields[name] = value
        return fields

    json.loads(text, object_pairs_hook=check, parse_int=str)
    return f"the key {quote_value(clean(repeated[0]))} occurs twice" if repeated else ""


def _clean_value(value: object) -> object:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return _clean_mapping(cast("Mapping[object, object]", value))
    if isinstance(value, list | tuple):
        return [_clean_value(item) for item in cast("list[object]", value)]
    return value


def _clean_mapping(mapping: Mapping[Any, object]) -> dict[str, object]:
    return {clean(str(key)): _clean_value(item) for key, item in mapping.items()}
