"""A conversation told in short by its own model, so that it goes on from that; nothing is taken out of the record."""

from __future__ import annotations

from collections.abc import Mapping

from .._core.agents import Brief, Reason, Report

SUMMARY_PROMPT = """\
Summarise this conversation, so that somebody who knows only your summary can go on with the work. Call no tools. Say in this order: \
what was asked for, in the words it was asked in; what was done and found, with the names of files, functions and commands; \
what was decided and why; what failed; what is left to do, and the next step. Leave out what no longer matters.\
"""

RUN_TITLE = "the conversation, told in short"
"""What screens call such a run."""


def summary_prompt(focus: str) -> str:
    """The prompt of a run that compacts. `focus`: what must not be lost, in the person's words."""
    return f"{SUMMARY_PROMPT}\nAbove all keep: {focus.strip()}" if focus.strip() else SUMMARY_PROMPT


def has_summary(report: Report | None) -> bool:
    """Whether a run that was to compact did so; else the conversation goes on from before it."""
    return (
        report is not None
        and (report.reason is Reason.GOAL or report.recovered)
        and bool(report.text)
    )


def continued_runs(run: str, briefs: Mapping[str, Brief]) -> list[str]:
    """The runs whose messages a run's model knows, oldest first, itself last: all it goes on with, back to one that compacts."""
    known = [run]
    while (earlier := briefs[known[0]].continues) in briefs:
        known.insert(0, earlier)
        if briefs[earlier].compacts:
            break
    return known
