"""Events as JSON bytes, and back: the form in which every journal stores them."""

from __future__ import annotations

from typing import cast

import msgspec

from ..errors import JournalError
from .events import Delta, StoredEvent
from .json_values import clean_json, get_decoder

_encoder = msgspec.json.Encoder(enc_hook=repr)
_KIND = cast("type[StoredEvent]", StoredEvent)


def encode_event(event: StoredEvent) -> bytes:
    """Encode an event as JSON in UTF-8.

    Values that JSON cannot hold are stored as their `repr`, surrogates as in `clean_text`.

    Arguments:
        event: the event.

    Raises JournalError for a Delta, and for an event that nests too deeply.

    Example:
        body = encode_event(RunWaiting(run="r1", at=0.0))
        assert decode_event(body).run == "r1"
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


def decode_event(body: bytes) -> StoredEvent:
    """Decode an event.

    Arguments:
        body: what `encode_event` returned.

    Raises ValueError if the bytes are not an event.

    Example:
        try:
            decode_event(b"{}")
        except ValueError:
            print("not an event")
    """
    try:
        return get_decoder(_KIND).decode(body)
    except RecursionError as error:
        raise ValueError(str(error)) from error
