"""Event encoding shared by all journals: events to JSON bytes and back."""

from __future__ import annotations

from functools import cache

import msgspec

from .._core.events import Delta, StoredEvent
from .._core.json_values import clean_json
from ..errors import JournalError

_encoder = msgspec.json.Encoder(enc_hook=repr)


@cache
def make_decoder() -> msgspec.json.Decoder[StoredEvent]:
    """Return the decoder. A new session needs none, and it takes 3 ms to make."""
    return msgspec.json.Decoder(StoredEvent)


def encode(event: StoredEvent) -> bytes:
    """Encode an event as JSON in UTF-8.

    Values that JSON cannot hold are stored as their `repr`, surrogates as in `clean_text`.

    Raises JournalError for a Delta, and for an event that nests too deeply.
    """
    if isinstance(event, Delta):
        raise JournalError("a Delta cannot be stored", remedy="Append the whole answer instead.")
    try:
        return _encoder.encode(event)
    except (ValueError, OverflowError):  # a surrogate, or a number with too many digits
        return _encoder.encode(clean_json(msgspec.to_builtins(event, enc_hook=repr)))
    except RecursionError as error:
        message = "an event nests too deeply to be recorded"
        raise JournalError(message, where=f"run {event.run}") from error


def decode(body: bytes) -> StoredEvent:
    """Decode an event. Raises ValueError if the bytes are not an event."""
    try:
        return make_decoder().decode(body)
    except RecursionError as error:
        raise ValueError(str(error)) from error
