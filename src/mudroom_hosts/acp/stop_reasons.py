"""Reasons of runs as stop reasons of the protocol."""

from __future__ import annotations

from typing import Any

from mudroom._core.budgets import Limit
from mudroom._core.messages import StopReason, Usage
from mudroom._core.runs import Reason, Report
from mudroom._projections.reason_words import REASON_WORDS

from .errors import INTERNAL_ERROR, RequestError

_REASONS = {
    Reason.GOAL: "end_turn",
    Reason.CANCELLED: "cancelled",
    Reason.MAX_TURNS: "max_turn_requests",
    Reason.TIMEOUT: "max_turn_requests",
    Reason.BUDGET: "max_turn_requests",
}
_TOKEN_LIMITS = (Limit.INPUT_TOKENS, Limit.OUTPUT_TOKENS, Limit.TOTAL_TOKENS)
_MODEL_STOPS = {StopReason.LENGTH: "max_tokens", StopReason.REFUSAL: "refusal"}


def make_child_end(report: Report) -> dict[str, Any]:
    """Return the state of a child whose run has ended."""
    state: dict[str, Any] = {"state": "idle", "stopReason": find_stop_reason(report) or "error"}
    if state["stopReason"] == "error":
        state["error"] = RequestError(INTERNAL_ERROR, describe_failure(report)).to_json()
    return state | make_reason_meta(report)


def make_prompt_end(report: Report, stop: StopReason) -> dict[str, Any]:
    """Return the answer to a prompt. Raises RequestError if the run failed.

    Arguments:
        stop: why the model stopped its last answer.
    """
    reason = find_stop_reason(report)
    if reason in ("", "end_turn"):
        reason = _MODEL_STOPS.get(stop, reason)
    if not reason:
        details = {"reason": report.reason.value}
        raise RequestError(INTERNAL_ERROR, describe_failure(report), details)
    return {
        "stopReason": reason,
        "usage": make_usage(report.usage),
        **make_reason_meta(report),
    }


def find_stop_reason(report: Report) -> str:
    """Return the stop reason of a run; "" if it failed."""
    is_for_tokens = report.limit is not None and report.limit.name in _TOKEN_LIMITS
    if report.reason is Reason.BUDGET and is_for_tokens:
        return "max_tokens"
    return _REASONS.get(report.reason, "")


def describe_failure(report: Report) -> str:
    """Return why a run failed."""
    return report.error or f"The run {REASON_WORDS[report.reason].predicate}."


def make_reason_meta(report: Report) -> dict[str, Any]:
    """Return the reason of a run as it is, beside the one of the protocol."""
    return {"_meta": {"mudroom": {"reason": report.reason.value}}}


def make_usage(usage: Usage) -> dict[str, Any]:
    """Return tokens in the terms of the protocol."""
    return {
        "totalTokens": usage.total_tokens,
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "thoughtTokens": usage.reasoning_tokens,
        "cachedReadTokens": usage.cache_read_tokens,
        "cachedWriteTokens": usage.cache_write_tokens,
    }
