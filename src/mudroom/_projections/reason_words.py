"""Words for why runs ended, used by all screens; machine formats have the names."""

from __future__ import annotations

from typing import NamedTuple

from .._core.runs import Reason, Report


class ReasonWords(NamedTuple):
    """The words for one reason: alone, as in a list, and after the name of a run."""

    outcome: str
    predicate: str


REASON_WORDS = {
    Reason.GOAL: ReasonWords("done", "reached its goal"),
    Reason.ERROR: ReasonWords("failed", "failed"),
    Reason.TIMEOUT: ReasonWords("time limit", "reached its time limit"),
    Reason.MAX_TURNS: ReasonWords("turn limit", "reached its turn limit"),
    Reason.BUDGET: ReasonWords("budget limit", "reached its budget limit"),
    Reason.CANCELLED: ReasonWords("stopped", "was stopped"),
    Reason.LOOP: ReasonWords("repeated itself", "repeated itself and was stopped"),
    Reason.LOST: ReasonWords("lost", "was lost"),
}


def describe_reason(reason: str) -> str:
    """Describe a reason; a name from a newer version stays as it is."""
    return REASON_WORDS[Reason(reason)].outcome if reason in REASON_WORDS else reason


def describe_end(report: Report) -> str:
    """Describe in one sentence why a run ended: its error, or its reason in words.

    Arguments:
        report: the run's report.
    """
    return report.error or f"The run {REASON_WORDS[report.reason].predicate}."
