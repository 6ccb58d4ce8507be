"""Print a report."""

from __future__ import annotations

import sys

import msgspec

from ..._core.agents import Report
from ...projections.safe_text import sanitize


def explain_failure(report: Report) -> str:
    """One line for the person: why a run did not reach its goal; "" if it did."""
    if report.ok:
        return ""
    if report.error:
        return sanitize(report.error)
    partial = "what it has so far is its answer" if report.text else "it gave no answer"
    return f"the run ended with {report.reason.value} after {report.turns} turns; {partial}"


def encode_answer(report: Report, *, as_json: bool = False) -> bytes:
    """What stdout carries: the text, or the values that were asked for as JSON."""
    text = msgspec.json.encode(report.outputs).decode() if as_json else report.text
    text = sanitize(text) if sys.stdout.isatty() else text
    return (text.rstrip("\n") + "\n").encode("utf-8", "replace") if text else b""
