"""Overflow: refusals of requests that are too long for the model."""

from __future__ import annotations

from ..._platform.lazy_pattern import compile_later

_STATED_WINDOWS = (
    compile_later(r"\d > (\d{4,})"),
    compile_later(r"tokens > (\d{4,}) maximum"),
    compile_later(r"(?i)maximum number of tokens allowed \((\d{4,})\)"),
    compile_later(r"(?i)maximum prompt length is (\d{4,})"),
    compile_later(r"(?i)model token limit: (\d{4,})"),
    compile_later(r"(?i)(\d{4,}) maximum context length"),
    compile_later(r"(?i)context (?:length|window|size)(?:(?! by )\D){0,30}?(\d{4,})"),
)


def find_stated_window(refusal: str) -> int:
    """Return the context window that the refusal of a long request states, 0 if it states none."""
    text = refusal.replace(",", "")
    matches = (pattern.search(text) for pattern in _STATED_WINDOWS)
    return next((int(match[1]) for match in matches if match), 0)
