"""Event encoding shared by all journals: events to JSON bytes and back."""

from __future__ import annotations

from typing import cast

import msgspec

from .._core.events import Delta, StoredEvent
from ..errors import JournalError

_encoder = msgspec.json.Encoder(enc_hook=repr)
_decoder = msgspec.json.Decoder(StoredEvent)


def encode(event: StoredEvent) -> bytes:
    """Encode an event as JSON in UTF-8.

    Values that JSON cannot hold are stored as their `repr`. Surrogates are replaced as in
    `replace_surrogates`.

    Raises JournalError for a Delta, and for an event that nests too deeply.
    """
    if isinstance(event, Delta):
        raise JournalError("a Delta cannot be stored", remedy="Append the whole answer instead.")
    try:
        return _encoder.encode(event)
    except UnicodeEncodeError:
        return _encoder.encode(_clean_value(msgspec.to_builtins(event, enc_hook=repr)))
    except RecursionError as error:
        message = "an event nests too deeply to be recorded"
        raise JournalError(message, where=f"run {event.run}") from error


def decode(body: bytes) -> StoredEvent:
    """Decode an event. Raises ValueError if the bytes are not an event."""
    try:
        return _decoder.decode(body)
    except RecursionError as error:
        raise ValueError(str(error)) from error


def replace_surrogates(text: str) -> str:
    """Return the text in a form that UTF-8 can hold.

    Surrogate pairs become one character; lone surrogates become U+FFFD.
    """
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _clean_value(value: object) -> object:
    """Replace surrogates at any depth of dicts, lists and tuples; a tuple becomes a list."""
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, dict):
        pairs = cast("dict[object, object]", value).items()
        return {_clean_value(key): _clean_value(item) for key, item in pairs}
    if isinstance(value, list | tuple):
        return [_clean_value(item) for item in cast("list[object]", value)]
    return value
