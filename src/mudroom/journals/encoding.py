"""Events as bytes and back: the one encoding that all journals share."""

from __future__ import annotations

from typing import Any

import msgspec

from .._core.events import Delta, StoredEvent
from ..errors import JournalError

_encoder = msgspec.json.Encoder(enc_hook=repr)
_decoder = msgspec.json.Decoder(StoredEvent)


def encode(event: StoredEvent) -> bytes:
    """The event as JSON in UTF-8. What JSON cannot hold is recorded as its `repr`; text is cleaned as `clean` says.

    Raises JournalError for what is no stored event, or nests too deeply to be written.
    """
    if isinstance(event, Delta):
        raise JournalError(
            "a delta is shown, never stored", remedy="Append the whole answer instead."
        )
    try:
        return _encoder.encode(event)
    except UnicodeEncodeError:
        return _encoder.encode(replace_surrogates(msgspec.to_builtins(event, enc_hook=repr)))
    except RecursionError as error:
        raise JournalError(
            "an event nests too deeply to be recorded", where=f"run {event.run}"
        ) from error


def decode(body: bytes) -> StoredEvent:
    """The event those bytes stand for. Raises ValueError when they are not one."""
    try:
        return _decoder.decode(body)
    except RecursionError as error:
        raise ValueError(str(error)) from error


def replace_surrogates(value: Any) -> Any:
    """The same value with text that UTF-8 can hold: surrogate pairs joined, lone surrogates replaced by U+FFFD."""
    if isinstance(value, str):
        return (
            value
            if value.isascii()
            else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        )
    if isinstance(value, dict):
        return {replace_surrogates(key): replace_surrogates(item) for key, item in value.items()}  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, list | tuple):
        return [replace_surrogates(item) for item in value]  # pyright: ignore[reportUnknownVariableType]
    return value
