"""JSON for the wires: what no provider accepts (NUL, lone surrogates) never leaves the house, and comes in without harm."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import msgspec

_T = TypeVar("_T")
_ENCODER = msgspec.json.Encoder()


def encode(value: Any) -> bytes:
    """Compact JSON of a value; its strings are cleaned if they must be."""
    try:
        data = _ENCODER.encode(value)
    except UnicodeEncodeError:
        return _ENCODER.encode(_cleaned(value))
    return _ENCODER.encode(_cleaned(value)) if b"\\u0000" in data else data


def clean(text: str) -> str:
    """The text without NUL; a surrogate without its partner becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text.replace("\0", "")


def make_decoder(kind: type[_T]) -> Callable[[bytes], _T]:
    """Reads JSON as `kind`, fast; what strict JSON forbids (lone surrogates, bytes that are no UTF-8) is read too, slowly.

    The function raises msgspec.DecodeError.
    """
    fast = msgspec.json.Decoder(kind).decode

    def decode(data: bytes) -> _T:
        try:
            return fast(data)
        except msgspec.ValidationError:
            raise
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            try:
                return msgspec.convert(json.loads(data.decode("utf-8", "replace")), kind)
            except (ValueError, RecursionError):
                raise msgspec.DecodeError(str(error)) from None

    return decode


_any: Callable[[bytes], Any] = make_decoder(cast("type[Any]", Any))


def parse_arguments(text: str) -> tuple[dict[str, Any], str]:
    """The arguments of a call as a model wrote them, and "" or, if they are not a JSON object, their text. No text is no arguments."""
    if not text.strip():
        return {}, ""
    try:
        value = _any(text.encode("utf-8", "surrogatepass"))
    except msgspec.DecodeError:
        return {}, clean(text)
    return (_cleaned(value), "") if isinstance(value, dict) else ({}, clean(text))


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, Mapping):
        return {
            clean(str(key)): _cleaned(item)
            for key, item in cast("Mapping[Any, Any]", value).items()
        }
    if isinstance(value, list | tuple):
        return [_cleaned(item) for item in cast("list[Any]", value)]
    return value
