"""Decides what a provider's error means, whichever wire it arrived on.

Providers agree on little. An empty account is HTTP 402 at DeepSeek, 429 at OpenAI, 403 at xAI, 400
at Anthropic and 412 at Fireworks, and Gemini uses the same words for a used-up minute and a used-up
day. So the code counts first, then the fields of the body, then the words, and the status last.

The rules come from the real refusals in `tests/models/test_refusals.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, cast

import msgspec
from msgspec import Struct

from ...._platform.patterns import compile_later
from .overflow import collect_texts, is_overflow, join_words
from .repairs import TEMPLATE_ERROR, find_room


class Meaning(StrEnum):
    """A refusal's meaning, which decides what happens next."""

    LOAD = "load"  # too many requests for now: wait, and make the provider's other runs wait
    FAULT = "fault"  # a server error: try again
    NO_MONEY = "no money"  # the account is out of credit or has reached its spending limit: final
    NO_QUOTA = "no quota"  # a daily, weekly or monthly quota is used up: final
    TOO_LONG = "too long"  # the request does not fit the model: shorten it
    NO_TOOLS = "no tools"  # the model, or the server as started, takes no tools: final
    NOT_ALLOWED = "not allowed"  # the key is wrong or lacks permission: final
    REFUSED = "refused"  # something in the request is refused: final unless it can be left out


class Refusal(Struct, frozen=True):
    meaning: Meaning
    wait: float = 0.0  # seconds the provider asks to wait, 0 if it does not ask
    may_retry: bool = False  # the same request may succeed later


# The status each type of error would have as a response, for errors inside streams. In lower
# case.
_STATUSES = {
    "aborted": 409,
    "accessdeniedexception": 403,
    "authentication_error": 401,
    "billing_error": 402,
    "context_length_exceeded": 400,
    "deadline_exceeded": 504,
    "engine_overloaded_error": 429,
    "failed_precondition": 400,
    "insufficient_quota": 429,
    "internal": 500,
    "invalid_argument": 400,
    "invalid_request_error": 400,
    "modeltimeoutexception": 408,
    "not_found": 404,
    "not_found_error": 404,
    "overloaded_error": 529,
    "permission_denied": 403,
    "permission_error": 403,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "rate_limit_reached_error": 429,
    "rate_limited": 429,
    "request_too_large": 413,
    "resource_exhausted": 429,
    "serviceunavailableexception": 503,
    "throttlingexception": 429,
    "timeout_error": 504,
    "unauthenticated": 401,
    "unavailable": 503,
    "validationexception": 400,
}

# 1113 and 1309 are GLM's codes, 1008 is MiniMax's.
_MONEY_CODES = compile_later(
    r"(?i)^(insufficient_quota|insufficient_(balance|credits?|funds)\w*|credit_balance_\w+"
    r"|billing_\w+|exceeded_current_quota_error|payment_required|arrearage|accountoverdue\w*"
    r"|not_enough_balance|allocationquota\.freetieronly|\S*:spending-limit|spend(ing)?_limit\w*"
    r"|balance_\w+|account_deactivated_for_billing|quota_exceeded_billing|(\w+_)?budget_exceeded"
    r"|\S*resourcepackexhausted|1113|1309|1008)$"
)
_QUOTA_CODES = compile_later(r"(?i)^(1304|1308|1310|quota_exceeded|setlimitexceeded)$")
_LOAD_CODES = compile_later(
    r"(?i)^(throttling\w*(\.\w+)?|\w*rate_?limit\w*|too_many_requests\w*|engine_overloaded_error"
    r"|overloaded\w*|queue_exceeded|service_tier_capacity_exceeded|130[235]|1312)$"
)
_MONEY = compile_later(
    r"(?i)insufficient (account )?(balance|credits?|funds)|not enough (balance|credits?|funds)"
    r"|(balance|credits?)\b( balance)?[^.;]{0,40}"
    r"\b(insufficient|too low|exhausted|depleted|used up)"
    r"|(out of|no|any|all available|all (of )?(your|its)|monthly included|run out of) credits\b"
    r"|credit (balance|limit)[^.;]{0,30}(too low|exceeded|reached)|reached your credit limit"
    r"|(spend(ing)?|billing) (hard )?(limit|cap)|payment required|account balance is \$?0"
    r"|overdue (balance|payment|invoice)|in arrears|inactive subscription"
    r"|account is in good standing|please (recharge|top ?up)|positive credit balance"
    r"|extra usage is required|free tier[^.;]{0,40}exhausted|credits? (has |have )?expired"
    r"|exhausted its free|budget has been exceeded|\bover budget\b|key limit exceeded \(total"
    r"|余额不足|已?欠费|请充值|套餐已到期"
)
# Used for an empty account, but also for a used-up minute if the refusal says how long to wait.
_PLAN = compile_later(
    r"(?i)check your (plan and )?billing|(enter|add) a payment method|add \d+ credits"
    r"|you have no quota|exceeded your current quota"
)
_PERIOD = compile_later(
    r"(?i)\b(per|a|each|this|/) ?(day|week|month)\b|/ ?(day|week|month)\b"
    r"|\b(daily|weekly|monthly)\b|per[-_](day|week|month)|api usage limits"
    r"|usage limit (reached|exceeded)|reached your \w+ usage limit|limit: 0\b"
    r"|今日|每日|每周|每月|使用上限"
)
_SHORT_PERIOD = compile_later(r"(?i)\b(per|a|/) ?(second|minute|min)\b|/ ?(min|sec)|\b[rt]pm\b")
# Alibaba's words for tokens per minute, under the code OpenAI uses for empty accounts.
_ALLOCATED = compile_later(r"(?i)allocated quota|allocation ?quota exceeded")
_LOAD = compile_later(
    r"(?i)rate.?limit[^.;]{0,30}(exceed|reach|hit)|too many (concurrent )?requests|\boverloaded\b"
)
# A single request above a whole minute's tokens: waiting does not help.
_TOO_LARGE = compile_later(r"(?i)request too large for|reduce your message size")
_NO_TOOLS = compile_later(
    r"(?i)does(n't| not) support (tools?|function)( calling| use)?\b"
    r"|tool-call-parser|requires --jinja|endpoints found that support tool use"
    r"|(?<!built-in )(?<!side )\b(tools|tool (use|calling)|function calling)`? (is|are) "
    r"not (supported|enabled)|is not supported for [\w /]{0,20}function calling"
)
_BAD_KEY = compile_later(
    r"(?i)api.?key.{0,20}(not valid|not found|invalid|expired|missing|required)"
    r"|(invalid|incorrect|missing|no|wrong).{0,20}(api.?key|credentials|(access|auth|bearer) token)"
)
# llama.cpp's errors for schemas it cannot handle, some with HTTP 500.
_GRAMMAR = compile_later(r"(?i)failed to (parse|compile) (the )?grammar|initialize samplers")

_CODE_FIELDS = ("code", "type", "status", "reason", "error_type", "errorCode", "__type")
_LOAD_STATUSES = frozenset({429, 498, 529})  # 498 is Groq's status for a full flex tier
_MAX_DEPTH = 5
_MAX_CODE = 100  # no provider sends longer codes
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


def find_status(error: object, default: int = 500) -> int:
    """Find the HTTP status an error inside a stream would have as a response."""
    for code in _list_codes(error):
        status = int(code) if code.isdecimal() else _STATUSES.get(code.lower(), 0)
        if 400 <= status < 600:
            return status
    return default


def read_refusal(
    status: int,
    text: str,
    body: bytes = b"",
    headers: Mapping[str, str] = _NO_HEADERS,
    now: float = 0.0,
) -> Refusal:
    """Decide what an error means.

    Arguments:
        status: the HTTP status, or the one an error inside a stream would have.
        body: the whole error, if it is JSON.
        headers: by lower-case name.
        now: seconds since 1970, for waits given as a date.
    """
    error = _decode(body)
    words = join_words(text, collect_texts(error))
    # A header takes precedence over a field of the error, and a field over words.
    wait = parse_retry_after(headers, now) or _find_field(error, now) or _find_words(words)
    meaning = _find_meaning(status, words, error, wait)
    if meaning is Meaning.REFUSED and is_overflow(status, text, body):
        meaning = Meaning.TOO_LONG
    may_retry = meaning in (Meaning.LOAD, Meaning.FAULT)
    match headers.get("x-should-retry", "").strip().lower():
        case "false":
            may_retry = False
        case "true" if meaning is Meaning.REFUSED:
            return Refusal(Meaning.FAULT, wait, may_retry=True)
        case _:
            pass
    return Refusal(meaning, wait, may_retry)


def _find_meaning(status: int, words: str, error: object, wait: float) -> Meaning:
    """Find the meaning of an error; REFUSED may still turn out to be TOO_LONG."""
    codes = list(_list_codes(error))
    # From specific to general: repairable refusals, then final ones, then those where waiting or a
    # shorter request helps.
    if find_room(words)[1] or _GRAMMAR.search(words) or TEMPLATE_ERROR.search(words):
        return Meaning.REFUSED
    if _NO_TOOLS.search(words):
        return Meaning.NO_TOOLS
    # Before the load: an empty account often comes as 429.
    if final := _find_spent(status, words, codes, error, wait):
        return final
    if _TOO_LARGE.search(words) and status in (413, 429):
        return Meaning.TOO_LONG
    if is_overflow(status, words):
        return Meaning.TOO_LONG
    has_load_code = any(_LOAD_CODES.search(code) for code in codes)
    is_load = status in _LOAD_STATUSES or (status == 503 and wait > 0)
    if is_load or has_load_code or (400 < status < 500 and _LOAD.search(words)):
        return Meaning.LOAD
    if status in (408, 409) or status >= 500:
        return Meaning.FAULT
    if status in (401, 403) or _BAD_KEY.search(words):
        return Meaning.NOT_ALLOWED
    return Meaning.REFUSED


def _find_spent(
    status: int, words: str, codes: list[str], error: object, wait: float
) -> Meaning | None:
    # A refusal that asks to wait is believed, unless it mentions money or a day's quota.
    if _ALLOCATED.search(words) and "free tier" not in words.lower():
        return None
    if any(_MONEY_CODES.search(code) for code in codes):
        return Meaning.NO_MONEY
    periods = [quota for quota in _list_quotas(error) if quota]
    if any(_PERIOD_ID.search(quota) for quota in periods):
        return Meaning.NO_QUOTA
    if periods:
        return None
    if status == 402 or _MONEY.search(words):
        return Meaning.NO_MONEY
    if any(_QUOTA_CODES.search(code) for code in codes):
        return Meaning.NO_QUOTA
    if wait or _SHORT_PERIOD.search(words):
        return None
    is_about_use = status in (403, 429) or "limit" in words.lower()
    if _PERIOD.search(words) and is_about_use and status not in (404, 413, 422):
        return Meaning.NO_QUOTA
    return Meaning.NO_MONEY if _PLAN.search(words) else None


_PERIOD_ID = compile_later(r"(?i)per_?(day|week|month)|=0$")


def _list_quotas(error: object) -> Iterator[str]:
    """Yield the quotas named by Google's `QuotaFailure`, each with its value."""
    for fields in _walk(error):
        for violation in cast("list[Any]", fields.get("violations") or ()):
            if isinstance(violation, dict):
                quota = cast("dict[str, Any]", violation)
                yield f"{quota.get('quotaId', '')}={quota.get('quotaValue', '')}"


def _list_codes(error: object) -> Iterator[str]:
    for fields in _walk(error):
        for name in _CODE_FIELDS:
            value = fields.get(name)
            if isinstance(value, str | int) and not isinstance(value, bool):
                yield str(value)[:_MAX_CODE]


def _walk(value: object, depth: int = _MAX_DEPTH) -> Iterator[dict[str, Any]]:
    """Yield an error and the errors nested in it, outer ones first."""
    if not depth:
        return
    if isinstance(value, list):
        for item in cast("list[object]", value):
            yield from _walk(item, depth - 1)
    elif isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        yield fields
        for name in ("error", "details", "detail", "errors", "metadata", "raw", "response"):
            inner = fields.get(name)
            if isinstance(inner, str) and inner.startswith("{"):
                inner = _decode(inner.encode("utf-8", "replace"))
            yield from _walk(inner, depth - 1)


def _decode(body: bytes) -> object:
    try:
        return msgspec.json.decode(body) if body else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_UNIT = (
    r"ms|milli(?:second)?s?|s(?:ec(?:ond)?s?)?|m(?:in(?:ute)?s?)?|h(?:(?:ou)?rs?)?|d(?:ays?)?"
    "|秒|分钟"
)
_DURATION = compile_later(rf"(?i)(?<!\d)(\d++(?:\.\d++)?) ?({_UNIT})(?![a-z])")
_WHOLE_DURATION = compile_later(rf"(?i)(?:\d++(?:\.\d++)? ?(?:{_UNIT})(?![a-z])(?:[ ,]|and )*+)+")
_BEFORE_WAIT = compile_later(
    r"(?i)((re)?try(ing)?( again| your request)?( in| after)|resets? in|wait( for)?"
    r"|available( again)? in)( about| at least)?:? (?=\d)|请(在|等待)? ?(?=\d)"
)
_COMPOUND = compile_later(r"(?i)(?<=\d)(ms|[dhms])(?=\d)")
# Fields of an error that state a wait, in lower case, with their unit in seconds.
_FIELDS = {
    "retrydelay": 1.0,
    "retry_after": 1.0,
    "retryafter": 1.0,
    "retry-after": 1.0,
    "retry_after_seconds": 1.0,
    "retryafterseconds": 1.0,
    "resets_in_seconds": 1.0,
    # Hugging Face, while it loads a model.
    "estimated_time": 1.0,
    "retry_after_ms": 0.001,
    "retryafterms": 0.001,
}
_WAIT_DEPTH = 6
# Larger numbers are dates in seconds since 1970, not durations.
_OLDEST_DATE = 1e9


def parse_retry_after(headers: Mapping[str, str], now: float) -> float:
    """Parse how many seconds headers ask to wait: a number, with a unit, or a date; 0 for none."""
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


def _find_field(value: object, now: float, depth: int = _WAIT_DEPTH) -> float:
    """Find the first wait in the fields of an error, including nested ones."""
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
        elif name in ("x-ratelimit-reset", "resets_at"):
            wait = _read_reset(item, now)
        else:
            wait = _find_field(item, now, depth - 1)
        if wait:
            return wait
    return 0.0


def _read_protobuf(value: object) -> float:
    """Read a duration given as an object, as written by Google's libraries."""
    if not isinstance(value, dict):
        return 0.0
    fields = cast("dict[str, Any]", value)
    return _to_seconds(fields.get("seconds")) + _to_seconds(fields.get("nanos"), 1e-9)


def _read_reset(value: object, now: float) -> float:
    """Read the seconds until a reset; OpenRouter states it in milliseconds since 1970."""
    moment = _to_seconds(value)
    if moment > _OLDEST_DATE * 100:
        moment /= 1000
    return max(0.0, moment - now) if moment > _OLDEST_DATE else moment


def _find_words(text: str) -> float:
    # For example "Please try again in 1m6.4s".
    for before in _BEFORE_WAIT.finditer(text):
        rest = _COMPOUND.sub(r"\1 ", text[before.end() : before.end() + 60])
        if match := _WHOLE_DURATION.match(rest):
            return _add_up(match[0])
    return 0.0
