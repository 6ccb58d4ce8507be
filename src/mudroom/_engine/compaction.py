"""Compaction of a session: a separate run of its model summarises the conversation.

Later runs continue from the summary. The journal keeps the whole conversation.
"""

from __future__ import annotations

from collections.abc import Mapping

from .._core.runs import Brief, Reason, Report

SUMMARY_PROMPT = (
    "Summarise this conversation, so that a reader who knows only your summary can continue the "
    "work. Call no tools. Say in this order: what was asked for, in the user's words; "
    "what was done and found, with the names of files, functions and commands; what was decided "
    "and why; what failed; what is left to do, and the next step. Leave out what no longer matters."
)

RUN_TITLE = "conversation summary"
"""Title of the run on screens."""


def make_summary_prompt(focus: str) -> str:
    """Return the prompt of a compaction run.

    `focus`: what the summary must keep, in the user's words.
    """
    focus = focus.strip()
    return f"{SUMMARY_PROMPT}\nAbove all keep: {focus}" if focus else SUMMARY_PROMPT


def has_summary(report: Report | None) -> bool:
    """Return whether a compaction run succeeded. If not, the conversation continues without it."""
    if report is None or not report.text:
        return False
    return report.reason is Reason.GOAL or report.recovered


def list_continued_runs(run: str, briefs: Mapping[str, Brief]) -> list[str]:
    """Return the ids of the runs whose messages a run knows: oldest first, itself last.

    The list begins with the last compaction run, if there is one.
    """
    known = [run]
    while (earlier := briefs[known[0]].continues) in briefs:
        known.insert(0, earlier)
        if briefs[earlier].is_compaction:
            break
    return known
