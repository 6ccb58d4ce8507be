"""Reasons of runs as stop reasons of the protocol."""

from __future__ import annotations

from typing import Any

from mudroom import Reason, Report, Usage
from mudroom.ports import StopReason
from mudroom.views import describe_end

from .json_rpc import INTERNAL_ERROR, RequestError

_REASONS = {
    Reason.GOAL: "end_turn",
    Reason.CANCELLED: "cancelled",
    Reason.MAX_TURNS: "max_turn_requests",
    Reason.TIMEOUT: "max_turn_requests",
    Reason.BUDGET: "max_turn_requests",
}
_TOKEN_LIMITS = ("input_tokens", "output_tokens", "total_tokens")
_MODEL_STOPS = {StopReason.LENGTH: "max_tokens", StopReason.REFUSAL: "refusal"}


def make_child_end(report: Report) -> dict[str, Any]:
    """Return the state of a child whose run has ended."""
    state: dict[str, Any] = {"state": "idle", "stopReason": find_stop_reason(report) or "error"}
    if state["stopReason"] == "error":
        state["error"] = RequestError(INTERNAL_ERROR, describe_end(report)).to_json()
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
        raise RequestError(INTERNAL_ERROR, describe_end(report), details)
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
