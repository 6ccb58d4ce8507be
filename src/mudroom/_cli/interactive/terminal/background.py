"""The terminal's background color: the query, and its reply among the keys."""

from __future__ import annotations

import re
from collections.abc import Callable

from prompt_toolkit.input.base import Input
from prompt_toolkit.input.vt100 import Vt100Input

# Asks for the background color (OSC 11). Terminals that do not know it are silent.
BACKGROUND_QUERY = "\x1b]11;?\x1b\\"

_REPLY = re.compile(
    r"\x1b\]11;rgba?:([0-9a-f]{1,4})/([0-9a-f]{1,4})/([0-9a-f]{1,4})"
    r"(?:/[0-9a-f]{1,4})?(?:\x07|\x1b\\)",
    re.I,
)
# A longer sequence is something else, which is not held back.
_MAX_REPLY_LENGTH = 64
# How bright the eye sees red, green and blue (ITU-R BT.601).
_WEIGHTS = (0.299, 0.587, 0.114)


class ReplyFilter:
    """Removes the reply to the query from the input.

    Arguments:
        feed: takes the other input.
        on_reply: takes whether the background is light.
    """

    def __init__(self, feed: Callable[[str], object], on_reply: Callable[[bool], object]) -> None:
        self._feed = feed
        self._on_reply = on_reply
        self._incomplete = ""

    def __call__(self, data: str) -> None:
        """Take input as the terminal sent it; a reply may come in several pieces."""
        data = self._incomplete + data
        self._incomplete = ""
        for match in _REPLY.finditer(data):
            self._on_reply(_is_light(match[1], match[2], match[3]))
        data = _REPLY.sub("", data)
        start = data.rfind("\x1b]")
        if start >= 0 and len(data) - start < _MAX_REPLY_LENGTH:
            self._incomplete = data[start:]
            data = data[:start]
        if data:
            self._feed(data)


def watch_background(source: Input, on_reply: Callable[[bool], object]) -> None:
    """Remove replies to the query from the input of an application."""
    if isinstance(source, Vt100Input):
        parser = source.vt100_parser
        parser.feed = ReplyFilter(parser.feed, on_reply)


def _is_light(*channels: str) -> bool:
    """Return whether a color is light. `channels`: red, green and blue as hexadecimal digits."""
    # Terminals reply with one to four digits for each channel.
    shares = [int(channel, 16) / (16 ** len(channel) - 1) for channel in channels]
    return sum(weight * share for weight, share in zip(_WEIGHTS, shares, strict=True)) > 0.5
