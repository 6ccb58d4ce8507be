"""Text made safe to print: control characters removed, calls described in one line."""

from __future__ import annotations

import re

from .._core.messages import ToolCallBlock

ACTION_LENGTH = 160
"""Characters kept of a run's last action."""


_CONTROL_SEQUENCES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor moves
    r"|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles, links, device strings
    r"|\x1b[ -/]*[0-~]?"  # every other escape
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f]"  # control characters but tab and line feed
    r"|[\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"  # bidi marks, the invisible
)


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


_LINE_BREAKS = re.compile(r"\r\n?|[\u2028\u2029\x85\x0b\x0c]")


_TITLE_ARGUMENTS = (
    "description",
    "command",
    "file_path",
    "path",
    "pattern",
    "query",
    "url",
    "name",
    "prompt",
)


def sanitize(text: str) -> str:
    """Text that a terminal shows and does not obey: no escapes, no control characters but tab and line feed, no hidden marks.

    Lone surrogates become U+FFFD, so that the text can always be encoded.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _CONTROL_SEQUENCES.sub("", _LINE_BREAKS.sub("\n", text))
    return text if text.isascii() else _LONE_SURROGATE.sub("\ufffd", text)


def sanitize_line(text: str, limit: int = ACTION_LENGTH) -> str:
    """Clean text with every stretch of white space as one blank, cut at `limit` characters."""
    return " ".join(sanitize(text[: limit * 4]).split())[:limit]


def describe_call(call: ToolCallBlock) -> str:
    """A call in words for a screen: its tool and its most telling argument, "read src/x.py"."""
    given = [call.arguments[key] for key in _TITLE_ARGUMENTS if call.arguments.get(key)]
    told = next((v for v in (*given, *call.arguments.values()) if isinstance(v, str)), "")
    return sanitize_line(f"{call.name} {told}")
