"""Addresses that open one session in the viewer."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from .sources import SessionSource

LINK_CHARACTERS = 8
"""Characters of an id in an address: with them, an address fits in 80 columns."""


async def make_session_link(url: str, source: SessionSource, session: str) -> str:
    """Return the address of a session in a running viewer.

    The address has only the first characters of the id if no other listed session begins with
    them: the page finds the session by them.

    Arguments:
        url: address of the viewer, with its token. session: "" for the list of sessions.
    """
    if not session:
        return url
    start = _shorten_id(session, await source.list_ids())
    return f"{url}#session={quote(start)}"


def _shorten_id(session: str, listed: Sequence[str]) -> str:
    start = session[:LINK_CHARACTERS]
    matches = [each for each in listed if each.startswith(start)]
    return start if matches == [session] else session
