"""Check of many native lines at once: a million lines are checked before the first one runs.

No Python code runs for a single line. Lines that are not all like most native lines are left to
`line_formats`, which also finds the errors.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable
from hashlib import blake2b
from itertools import repeat
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from .line_formats import DIGEST_BYTES, NativeLine

_encode_lines = msgspec.json.Encoder().encode_lines


class _ShortLine(Struct, forbid_unknown_fields=True, gc=False):
    """A native line with the keys that most have. It has the defaults of the others."""

    prompt: str
    custom_id: str | UnsetType = UNSET


_decode_short = msgspec.json.Decoder(_ShortLine).decode_lines
_decode_native = msgspec.json.Decoder(NativeLine).decode_lines


class QuickLines(Struct):
    """Correct lines that follow each other, one task each.

    Arguments:
        ids: of the tasks.
        agents, models: of the tasks; empty if no line names one.
    """

    ids: list[str]
    prompts: list[str]
    agents: list[str] = []
    models: list[str] = []

    def compute_keys(self) -> array[int]:
        """Return the keys of the tasks; see `BatchLine.compute_key`."""
        nothing = [""] * len(self.ids)
        agents = self.agents or nothing
        rows = zip(
            self.ids, self.prompts, agents, self.models or nothing, repeat(None), repeat(None)
        )
        texts = _encode_lines(list(rows)).split(b"\n")[:-1]
        digests = [blake2b(text, digest_size=DIGEST_BYTES).digest() for text in texts]
        keys = array("Q", b"".join(digests))
        if sys.byteorder == "little":  # keys are numbers in big-endian order
            keys.byteswap()
        return keys


def parse_quickly(first: int, count: int, text: bytes) -> QuickLines | None:
    """Return the tasks of many lines; None if one of them has to be parsed alone.

    Arguments:
        first: number of the first line. count: number of lines.
        text: the lines; each has an end of line.
    """
    if not _ends_lines_after_objects(text, count):
        return None
    lines = _decode(_decode_short, text)
    if lines is not None:
        if len(lines) != count:
            return None
        return _make_lines(first, [line.custom_id for line in lines], lines)
    lines = _decode(_decode_native, text)
    if lines is None or len(lines) != count:
        return None
    given = [line.custom_id for line in lines]
    old = [line.id for line in lines]
    if old.count(UNSET) < len(old):
        if given.count(UNSET) < len(given):
            return None
        given = old
    quick = _make_lines(first, given, lines)
    if quick is not None:
        quick.agents = [line.agent for line in lines]
        quick.models = [line.model for line in lines]
    return quick


def _decode(decode_lines: Callable[[bytes], list[Any]], text: bytes) -> list[Any] | None:
    try:
        return decode_lines(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _ends_lines_after_objects(text: bytes, count: int) -> bool:
    """Return whether each line ends after an object, if the text is a sequence of objects.

    An end of line between two braces is never inside such an object. A line can have two of them.
    """
    if not text.startswith(b"{") or not text.rstrip(b"\r\n").endswith(b"}"):
        return False
    ends = text.count(b"}\n{")
    if ends < count - 1:
        ends += text.count(b"}\r\n{")
    return ends == count - 1


def _make_lines(first: int, given: list[Any], lines: list[Any]) -> QuickLines | None:
    """Return the tasks of lines with these ids, None if an id or a prompt is wrong."""
    prompts = [line.prompt for line in lines]
    if not all(prompts) or any(map(str.isspace, prompts)):
        return None
    ids: list[str] = given
    if given.count(UNSET):
        ids = [f"line-{first + place}" if i is UNSET else i for place, i in enumerate(given)]
    if not all(ids) or not "".join(ids).isprintable():
        return None
    return QuickLines(ids, prompts)
