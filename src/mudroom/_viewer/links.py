"""Addresses that open a session in the viewer."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from .sources import SessionSource

# Characters of an id in an address, few enough for an address to fit in 80 columns.
LINK_CHARACTERS = 8


async def make_session_link(url: str, source: SessionSource, session: str) -> str:
    """Make the address of a session in a running viewer, or of the list for "".

    It contains only the first characters of the id if they are unique among the listed sessions;
    the page completes them.
    """
    if not session:
        return url
    start = _shorten_id(session, await source.list_ids())
    return f"{url}#session={quote(start)}"


def _shorten_id(session: str, listed: Sequence[str]) -> str:
    start = session[:LINK_CHARACTERS]
    matches = [each for each in listed if each.startswith(start)]
    return start if matches == [session] else session
