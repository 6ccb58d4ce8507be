"""Cursors: opaque texts for positions in the record of a session, and in lists."""

from __future__ import annotations

import base64
import binascii

from .request_errors import make_wrong_request

_CHECKED = 8
"""Characters of a session's id that a cursor has."""


def make_cursor(session: str, position: int) -> str:
    """Return the cursor of an event. `session`: id, or "" for a place in a list."""
    text = f"{session[:_CHECKED]}.{position}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def parse_cursor(session: str, cursor: str) -> int:
    """Return the position of a cursor; "" is 0. Raises RequestError for a wrong one."""
    if not cursor:
        return 0
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        text = base64.b64decode(padded, b"-_", validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        text = ""
    start, dot, position = text.partition(".")
    is_number = position.isascii() and position.isdecimal() and len(position) < 19
    if not (dot and start == session[:_CHECKED] and is_number):
        raise make_wrong_request(
            "the cursor is not one of this list or session. Use one that the server sent, or none "
            "to begin at the start",
            "after",
        )
    return int(position)
