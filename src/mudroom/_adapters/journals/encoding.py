"""Event encoding shared by all journals: events to JSON bytes and back."""

from __future__ import annotations

from typing import cast

import msgspec

from ..._core.events import Delta, StoredEvent
from ..._core.json_values import clean_json, get_decoder
from ...errors import JournalError

_encoder = msgspec.json.Encoder(enc_hook=repr)
_KIND = cast("type[StoredEvent]", StoredEvent)


def encode(event: StoredEvent) -> bytes:
    """Encode an event as JSON in UTF-8.

    Values without a JSON form are stored as their `repr`, surrogates as by `clean_text`. Raises
    JournalError for a Delta and for an event that nests too deeply.
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
        return get_decoder(_KIND).decode(body)
    except RecursionError as error:
        raise ValueError(str(error)) from error
