"""Rows of the events table: encoded for COPY, decoded with a checksum test."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any
from uuid import UUID
from zlib import crc32

from mudroom.errors import JournalDamaged
from mudroom.events import StoredEvent, decode_event, encode_event

COLUMNS = ("session", "n", "run", "type", "body", "crc")

# The binary format of COPY, see the PostgreSQL manual under COPY, "Binary Format".
_HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack("!ii", 0, 0)
_END = struct.pack("!h", -1)
_KEY = struct.Struct("!hi16siq")
_LENGTH = struct.Struct("!i")
_CHECKSUM = struct.Struct("!iq")

DAMAGE_REMEDY = "Restore the database from a backup. The records before this one can be read."


def encode_row(session: UUID, n: int, event: StoredEvent) -> bytes:
    """Return the row of an event in the binary format of COPY. Raises JournalError for a Delta."""
    body = encode_event(event)
    run = event.run.encode(errors="replace")
    tag = get_tag(type(event)).encode()
    return b"".join(
        (
            _KEY.pack(len(COLUMNS), 16, session.bytes, 8, n),
            _LENGTH.pack(len(run)),
            run,
            _LENGTH.pack(len(tag)),
            tag,
            _LENGTH.pack(len(body)),
            body,
            _CHECKSUM.pack(8, crc32(body)),
        )
    )


def make_copy_message(rows: Sequence[bytes]) -> bytearray:
    """Join rows into one COPY message."""
    return bytearray(b"".join((_HEADER, *rows, _END)))


def is_stored_row(row: bytes, stored: Mapping[str, Any]) -> bool:
    """Return whether a stored row holds the event of an encoded row."""
    body: bytes = stored["body"]
    return row.endswith(_LENGTH.pack(len(body)) + body + _CHECKSUM.pack(8, stored["crc"]))


def decode_row(stored: Mapping[str, Any], place: str) -> StoredEvent:
    """Decode the event of a stored row. Raises JournalDamaged."""
    n = stored["n"]
    body: bytes = stored["body"]
    if crc32(body) != stored["crc"]:
        raise JournalDamaged(f"record {n} is damaged", where=place, remedy=DAMAGE_REMEDY)
    try:
        return decode_event(body)
    except ValueError as error:
        message = f"record {n} is no event: {error}"
        raise JournalDamaged(message, where=place, remedy=DAMAGE_REMEDY) from error


@cache
def get_tag(event_type: type[StoredEvent]) -> str:
    return str(event_type.__struct_config__.tag)
