"""Recognises refusals of requests too long for the model.

Most providers have no code for this, so their words decide. Missing such a refusal ends a run that
a shorter request would have saved; a false alarm only costs a clearing and another request.
`tests/models/test_overflow_wordings.py` lists each provider's words.
"""

from __future__ import annotations

from typing import Any, cast

import msgspec
from msgspec import Struct

from ...._platform.patterns import compile_later

_TOO_LONG = compile_later(
    "(?i)"
    + "|".join(
        (
            r"context[ _-]?(length|size|window|limit)|exceed_context|context_overflow",
            r"\b(prompt|input|messages|conversation)\b[^.;]{0,40}\btoo long",
            r"\b(content|text|output)'?: string too long",
            r"(prompt|input)_too_long|max_prompt_tokens|tokens_limit_reached",
            r"\b(prompt|inputs?|messages?)\b[^;]{0,60}\btokens?\b[^;]{0,60}"
            r"\b(exceed(s|ed)?|longer than|must be <=|too large for)",
            r"\b(prompt|input|message)s?( token)? length[^;]{0,40}(exceed|longer)",
            r"tokens in the (prompt|input|messages)[^;]{0,20}exceed|total tokens[^;]{0,40}exceed",
            r"must have less than [\d,]+ tokens|input token count is [\d,]+ but",
            r"too many( input| prompt)? tokens|range of input length|maximum (prompt|input) length",
            r"exceeds? max(imum)? length|model token limit|token limit exceeded",
            r"reduce (the|your) ((length|size) of (the|your) )?(input |prompt |message)",
            r"reduce (the|your) ((length|size) of (the|your) )?(prompt|input|conversation|context)",
            r"(longer|greater) than the (maximum )?(model|context) length",
            r"expected max_?length: \d+, actual",
            r"(上下文|提示词?|输入|消息|对话|prompt)[^。;,，a-z]{0,12}(超长|过长|太长|超出|超过)",
        )
    )
)
# Refusals with similar words that a shorter request would not help.
_OTHER_LIMIT = compile_later(
    r"(?i)per[ _-]?(minute|min|second|hour|day)\b|\b[tr]p[md]\b|rate.?limit|quota|throttl"
    r"|please wait|max tokens must be"
    r"|(unknown|unrecognized|unexpected|unsupported|extra)\b[^.]{0,30}"
    r"\b(parameter|argument|field|option|property|inputs?)\b"
)

# Fields of an error that contain its words. Others may repeat the request.
_TEXT_FIELDS = ("error", "errors", "message", "msg", "detail", "code", "type", "metadata", "raw")

_MAX_DEPTH = 6
# Characters the patterns read. Every known error states its meaning within them, an error body may
# be long, and Python refuses to convert numbers of more than 4,300 digits.
_MAX_WORDS = 4_000


class StatedSizes(Struct, frozen=True):
    """Sizes in tokens stated by a refusal; 0 where it states none."""

    window: int = 0
    request: int = 0


def is_overflow(status: int, text: str, body: bytes = b"") -> bool:
    if status == 413:
        return True
    # Some servers send 500.
    if status not in (400, 422) and not 500 <= status < 600:
        return False
    words = join_words(text, _list_texts(body))
    return bool(_TOO_LONG.search(words)) and not _OTHER_LIMIT.search(words)


def join_words(text: str, others: list[str]) -> str:
    return " | ".join((text, *others))[:_MAX_WORDS]


def _list_texts(body: bytes | str) -> list[str]:
    try:
        return collect_texts(msgspec.json.decode(body)) if body else []
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return []


def collect_texts(value: object, depth: int = _MAX_DEPTH) -> list[str]:
    """Collect the words of an error. Gateways may nest another provider's error in a text."""
    if isinstance(value, str):
        return [value, *(_list_texts(value) if value.startswith("{") else [])]
    if not depth:
        return []
    if isinstance(value, list):
        items = cast("list[object]", value)
        return [text for item in items for text in collect_texts(item, depth - 1)]
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        inner = (fields[name] for name in _TEXT_FIELDS if name in fields)
        return [text for item in inner for text in collect_texts(item, depth - 1)]
    return []


_STATED_WINDOWS = tuple(
    compile_later(f"(?i){pattern}")
    for pattern in (
        r"\d(?: tokens)? > (\d{4,})",
        r"maximum number of tokens allowed \(?(\d{4,})",
        r"maximum (?:prompt|model|input) length (?:is|of) (\d{4,})",
        r"maximum allowed (?:input )?length (?:of )?\(?(\d{4,})",
        r"model token limit: (\d{4,})",
        r"(\d{4,}) maximum context length",
        r"input length should be \[1 ?(\d{4,})\]",
        r"only supports up to (\d{4,})",
        r"must (?:be <=|have less than) (\d{4,})",
        r"cannot exceed (?:the total tokens limit )?(\d{4,})",
        r"model limit \((\d{4,})",
        r"\blimit (?:of|is) (\d{4,})",
        r"max (?:input tokens|size): (\d{4,})",
        r"n_ctx: (\d{4,})",
        r"context (?:length|window|size)(?:(?! by | exceeds limit)\D){0,30}?(\d{4,})",
    )
)
_NUMBER = compile_later(r"(?<![\w.-])\d{4,}(?![\w-])")
# A larger multiple of the window is not the size of a request.
_MAX_RATIO = 100


def find_stated_sizes(refusal: str) -> StatedSizes:
    """Find the sizes stated in the refusal of a long request.

    The largest number above the window is taken for the request's size.
    """
    text = refusal.replace(",", "")
    matches = (pattern.search(text) for pattern in _STATED_WINDOWS)
    window = next((int(match[1]) for match in matches if match), 0)
    numbers = (int(number[0]) for number in _NUMBER.finditer(text))
    larger = (number for number in numbers if window < number <= window * _MAX_RATIO)
    return StatedSizes(window, max(larger, default=0))
