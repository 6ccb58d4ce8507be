"""Hostile text of any length, and a measure of how the time to read it grows."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any, AnyStr

LONG_WORDS = ("x", "x1", "9", "一", "-", "_", ".", "/", "*", "#", "@", "=", ":", "é")
GAPS = (" ", "\n", "\t", "\r\n", " \n", "\n\n ", ", ", "x ", "- x\n", "| a | b |\n", "> ")
OPENERS = ("(", "[", "{", "<", "<a ", "</", "${", "$(", "%{", "@{", "{{", "[[", "](", "<!--", "/*")
QUOTES = (
    '"',
    "'",
    "`",
    "```",
    '" ',
    "' ",
    '\\"',
    "\\",
    "\\\\ ",
    '{"a":',
    '"a": "',
    "'a' ",
    "~~~\n",
)
CODES = (
    "\x1b",
    "\x1b[",
    "\x1b[3",
    "\x1b]0;",
    "\x1b[0m",
    "\\x",
    "\\u",
    "%2",
    "&#",
    "0x",
    "1.",
    "1,",
    "\r",
)
_parser: Any = re._parser  # type: ignore[attr-defined]  # pyright: ignore
sre: Any = re._constants  # type: ignore[attr-defined]  # pyright: ignore
"""Private modules: nothing public says what a pattern consists of."""

UNITS = (*LONG_WORDS, *GAPS, *OPENERS, *QUOTES, *CODES)
"""What a text is made of by repeating it."""

FLOOR = 0.005
"""Seconds. Shorter times say nothing about growth."""
FLOOR_OF_LARGE = 0.2
"""The same above `_CACHED` characters: linear code took 14 times as long."""
WORST_RATIO = 8
"""Four times the text may take this many times as long; quadratic time takes 16 times as long."""
WORST_RATIO_OF_LARGE = 12
"""The same above `_CACHED` characters, whose text and results no longer fit the processor's cache:
linear code took up to 9 times as long there while other programs ran."""
_CACHED = 65_536
_LENGTHS = (16, 24, 32, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576)


def find_quadratic_growth(
    read: Callable[[Any], object], write: Callable[[int], str | bytes], longest: int
) -> str | None:
    """Compare the time for a text with that for one of a quarter of its length.

    Arguments:
        read: the code under test.
        write: makes a text of about so many characters.
        longest: the length to stop at, if the time is still too short to judge.

    Returns:
        What was measured, None if the time grows about as fast as the text.
    """

    def measure(length: int, times: int = 1) -> float:
        return min(_measure(read, write(length)) for _ in range(times))

    for length in _LENGTHS:
        if length > longest:
            return None
        if (long := measure(length)) < FLOOR or long <= _find_most(length, measure(length // 4)):
            continue
        # A machine under load makes one measurement too long, hardly each of five.
        long, short = measure(length, 5), measure(length // 4, 5)
        if long > _find_most(length, short):
            return f"{length // 4:,} characters {short:.5f} s, {length:,} {long:.5f} s"
    return None


def _find_most(length: int, short: float) -> float:
    """Return the seconds that a text may take whose quarter takes `short` seconds."""
    if length > _CACHED:
        return max(FLOOR_OF_LARGE, short * WORST_RATIO_OF_LARGE)
    return max(FLOOR, short * WORST_RATIO)


def _measure(read: Callable[[Any], object], text: str | bytes) -> float:
    start = time.thread_time()
    read(text)
    return time.thread_time() - start


def repeat(unit: AnyStr, length: int) -> AnyStr:
    return unit * (length // len(unit) + 1)


def list_near_matches(pattern: str | bytes, flags: int) -> list[tuple[str, str]]:
    """Return pairs (start, unit): the start and many units nearly match the pattern.

    The unit is what the pattern may repeat, or a beginning of a match.
    """
    text = pattern if isinstance(pattern, str) else pattern.decode("latin-1")
    pairs: dict[tuple[str, str], None] = {}
    whole = _collect(list(_parser.parse(text, flags & ~(2**5))), "", pairs)
    for end in range(1, len(whole) + 1):
        if end < 12 or end == len(whole):
            pairs["", whole[:end]] = None
    return [(start, unit) for start, unit in pairs if unit]


def _collect(nodes: list[Any], start: str, pairs: dict[tuple[str, str], None]) -> str:
    """Return a text that the nodes match; add a pair for each repetition in them."""
    text = ""
    for kind, value in nodes:
        if kind in _CHARACTERS:
            text += _CHARACTERS[kind](value)
        elif kind in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            least, most, body = value
            one = _collect(list(body), start + text, pairs)
            if most is sre.MAXREPEAT or most > 8:
                pairs[start + text, one] = None
                pairs["", text[-1:] + one] = None
            text += one * (max(least, 1) if least < 64 else 64)
        elif kind in (sre.SUBPATTERN, sre.ATOMIC_GROUP):
            body = value[-1] if kind is sre.SUBPATTERN else value
            text += _collect(list(body), start + text, pairs)
        elif kind is sre.BRANCH:
            choices = [_collect(list(body), start + text, pairs) for body in value[1]]
            pairs |= {("", text + choice): None for choice in choices[:8]}
            text += choices[0]
        elif kind in (sre.ASSERT, sre.ASSERT_NOT):
            _collect(list(value[1]), start + text, pairs)
    return text


def _choose_member(members: list[Any]) -> str:
    if members[0][0] is sre.NEGATE:
        excluded = _join_members(members[1:])
        return next((one for one in "x1 -一\n" if one not in excluded), "~")
    return _join_members(members)[:1]


_CATEGORIES: dict[Any, str] = {
    sre.CATEGORY_DIGIT: "0123456789",
    sre.CATEGORY_SPACE: " \t\n\r",
    sre.CATEGORY_WORD: "xa0_一",
    sre.CATEGORY_NOT_DIGIT: "x -",
    sre.CATEGORY_NOT_SPACE: "x-1",
    sre.CATEGORY_NOT_WORD: " -",
}


def _join_members(members: list[Any]) -> str:
    text = ""
    for kind, value in members:
        if kind is sre.LITERAL:
            text += chr(value)
        elif kind is sre.RANGE:
            text += "".join(map(chr, range(value[0], min(value[1], value[0] + 128) + 1)))
        elif kind is sre.CATEGORY:
            text += _CATEGORIES[value]
    return text


_CHARACTERS: dict[Any, Callable[[Any], str]] = {
    sre.LITERAL: chr,
    sre.NOT_LITERAL: lambda value: "b" if value == ord("a") else "a",
    sre.ANY: lambda _: "x",
    sre.IN: _choose_member,
}


def list_texts(
    pattern: str | bytes, flags: int
) -> Iterator[tuple[str, Callable[[int], str | bytes]]]:
    """Yield descriptions of hostile texts, and functions that write them at any length."""
    near = dict.fromkeys(list_near_matches(pattern, flags))
    pairs = dict.fromkeys([*(("", unit) for unit in UNITS), *near])
    for start, unit in pairs:
        for end in ("", "\0") if (start, unit) in near else ("",):

            def write(length: int, start: str = start, unit: str = unit, end: str = end) -> Any:
                text = start + repeat(unit, length) + end
                if isinstance(pattern, str):
                    return text
                return text.encode("latin-1", "replace")

            yield f"{start!r} + {unit!r} * n + {end!r}", write
