"""How long a refusal asks to wait: in a header, a field of the error, or only in words."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

from ...._platform.patterns import compile_later

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_UNIT = (
    r"ms|milli(?:second)?s?|s(?:ec(?:ond)?s?)?|m(?:in(?:ute)?s?)?|h(?:(?:ou)?rs?)?|d(?:ays?)?"
    "|秒|分钟"
)
_DURATION = compile_later(rf"(?i)(?<!\d)(\d++(?:\.\d++)?) ?({_UNIT})(?![a-z])")
_WHOLE_DURATION = compile_later(rf"(?i)(?:\d++(?:\.\d++)? ?(?:{_UNIT})(?![a-z])[ ,]*+)+")
_BEFORE_WAIT = compile_later(
    r"(?i)((re)?try(ing)?( again| your request)?( in| after)|resets? in|wait( for)?"
    r"|available( again)? in)( about| at least)?:? (?=\d)|请(在|等待) ?(?=\d)"
)
_COMPOUND = compile_later(r"(?i)(?<=\d)(ms|[dhms])(?=\d)")
# Fields of an error that state a wait, in lower case, with their unit in seconds.
_FIELDS = {
    "retrydelay": 1.0,
    "retry_after": 1.0,
    "retryafter": 1.0,
    "retry-after": 1.0,
    "retry_after_seconds": 1.0,
    "retry_after_ms": 0.001,
    "retryafterms": 0.001,
}
_MAX_DEPTH = 6
# Larger numbers are dates in seconds since 1970, not durations.
_OLDEST_DATE = 1e9


def find_wait(headers: Mapping[str, str], error: object, text: str, now: float) -> float:
    """Find the seconds a refusal asks to wait, 0 for none.

    A header takes precedence over a field of the error, and a field over words.

    Arguments:
        headers: response headers by lower-case name.
        error: the decoded body of the refusal.
        text: its message.
        now: seconds since 1970, for waits given as a date.
    """
    return (
        parse_retry_after(headers, now) or _find_field(error, now, _MAX_DEPTH) or _find_words(text)
    )


def parse_retry_after(headers: Mapping[str, str], now: float) -> float:
    """Parse the seconds a response's headers ask to wait, 0 for none.

    Reads `Retry-After-Ms`, then `Retry-After` in seconds, with a unit, or as a date.

    Arguments:
        headers: by lower-case name.
        now: seconds since 1970, for the date.
    """
    value = headers.get("retry-after", "").strip()
    wait = _to_seconds(headers.get("retry-after-ms"), 0.001) or _to_seconds(value)
    if wait or not value:
        return wait
    from email.utils import parsedate_to_datetime

    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _to_seconds(value: object, unit: float = 1.0) -> float:
    """Read a number, or a text such as "7", "6.4s" or "1m30s", as seconds; 0 for anything else."""
    if isinstance(value, str):
        if _WHOLE_DURATION.fullmatch(value.strip()):
            return _add_up(value)
        try:
            value = float(value)
        except ValueError:
            return 0.0
    if not isinstance(value, int | float) or isinstance(value, bool):
        return 0.0
    return float(value) * unit if 0 < value < math.inf else 0.0


def _add_up(duration: str) -> float:
    parts = cast("list[tuple[str, str]]", _DURATION.findall(_COMPOUND.sub(r"\1 ", duration)))
    return sum(float(number) * _get_unit(unit) for number, unit in parts)


def _get_unit(name: str) -> float:
    name = name.lower()
    if name in ("秒", "分钟"):
        return 1.0 if name == "秒" else 60.0
    return _UNITS["ms" if name.startswith(("ms", "milli")) else name[0]]


def _find_field(value: object, now: float, depth: int) -> float:
    """Find the first wait in the fields of an error and of what is nested in it."""
    if not depth:
        return 0.0
    if isinstance(value, list):
        items = cast("list[object]", value)
        return next((wait for item in items if (wait := _find_field(item, now, depth - 1))), 0.0)
    if not isinstance(value, dict):
        return 0.0
    for name, item in cast("dict[str, Any]", value).items():
        name = name.lower()
        if name in _FIELDS:
            wait = _read_protobuf(item) or _to_seconds(item, _FIELDS[name])
        elif name == "x-ratelimit-reset":
            wait = _read_reset(item, now)
        else:
            wait = _find_field(item, now, depth - 1)
        if wait:
            return wait
    return 0.0


def _read_protobuf(value: object) -> float:
    """Read a duration given as an object, as Google's libraries write it."""
    if not isinstance(value, dict):
        return 0.0
    fields = cast("dict[str, Any]", value)
    return _to_seconds(fields.get("seconds")) + _to_seconds(fields.get("nanos"), 1e-9)


def _read_reset(value: object, now: float) -> float:
    """Return the seconds until a reset; OpenRouter states it in milliseconds since 1970."""
    moment = _to_seconds(value)
    if moment > _OLDEST_DATE * 100:
        moment /= 1000
    return max(0.0, moment - now) if moment > _OLDEST_DATE else moment


def _find_words(text: str) -> float:
    """Find the wait in a text such as "Please try again in 1m6.4s", 0 for none."""
    for before in _BEFORE_WAIT.finditer(text):
        rest = _COMPOUND.sub(r"\1 ", text[before.end() : before.end() + 60])
        if match := _WHOLE_DURATION.match(rest):
            return _add_up(match[0])
    return 0.0
