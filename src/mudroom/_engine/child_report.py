"""Report of a child as its parent's model reads it: the formatter and its inverse."""

from __future__ import annotations

import os

import msgspec
from msgspec import Struct

from .._core.budgets import LimitState
from .._core.counts import count_noun
from .._core.merge_counts import describe_merges
from .._core.runs import Reason, Report
from .._platform.lazy_pattern import compile_later
from ..projections.safe_text import sanitize_line
from .call_context import CallContext

REPORT_CAP = 8_000
"""Maximum characters of a report for the parent; the whole text is in a spill file."""

NO_SUMMARY = "(no summary)"

_MAX_LISTED_FILES = 5
_MAX_REASON = 120
"""Characters of the reason why tools were missing."""
_MAX_PATH = 400
"""Characters of a path with characters that are not printed."""
_OUTPUT_OF_SERVER = "; last lines:"
"""Text of a reason before the last output of the server."""
_NO_DELIMITERS = str.maketrans("[];", "(),")
"""Replaces the characters that end the line of evidence, or one fact in it."""
_WARNING = compile_later(rf"\[((?:{'|'.join(Reason)}): .*; what follows is .*)\]")
_CUT = compile_later(r"\[… cut: the whole report, [\d,]+ characters, is in (.+)\]")
_EVIDENCE = compile_later(r"\[evidence: .*\]")


class ParsedReport(Struct, frozen=True):
    """The parts of a formatted report.

    Arguments:
        text: text and outputs, "" when there is no summary.
        warning: the warning line without its brackets, "" when the child reached its goal.
        spill: path of the whole text, "" when `text` is not cut.
    """

    text: str
    warning: str = ""
    spill: str = ""


def format_report(context: CallContext, report: Report) -> tuple[str, str]:
    """Return the report's text for the parent and the path of its spill file ("" if it is not cut).

    The text has a warning line unless the reason is GOAL, then text and outputs, then a line of
    evidence.
    """
    parts = [report.text.strip()]
    if report.outputs:
        parts.append(f"Outputs: {msgspec.json.encode(report.outputs).decode()}")
    text = "\n".join(filter(None, parts)) or NO_SUMMARY
    spill = ""
    if len(text) > REPORT_CAP:
        spill = context.spill_path("report")
        with open(spill, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        notice = f"[… cut: the whole report, {len(text):,} characters, is in {spill}]"
        text = f"{text[:REPORT_CAP]}\n{notice}"
    lines = [context.run.services.mark_report(text), format_evidence(report)]
    if report.reason is not Reason.GOAL:
        lines.insert(0, format_warning(report))
    return "\n".join(lines), spill


def parse_report(text: str) -> ParsedReport:
    """Return the parts of a text that `format_report` made; any other text is returned whole."""
    lines = text.strip().split("\n")
    warning = ""
    spill = ""
    if match := _WARNING.fullmatch(lines[0]):
        warning = match[1]
        lines = lines[1:]
    if lines and _EVIDENCE.fullmatch(lines[-1]):
        lines = lines[:-1]
        if lines and (match := _CUT.fullmatch(lines[-1])):
            spill = match[1]
            lines = lines[:-1]
    whole = "\n".join(lines)
    return ParsedReport("" if whole == NO_SUMMARY else whole, warning, spill)


def format_warning(report: Report) -> str:
    """Return one line that says why a run did not reach its goal."""
    turns = report.limit.maximum if report.limit else report.turns - report.recovered
    causes = {
        Reason.MAX_TURNS: f"stopped after {turns:g} turns, its limit",
        Reason.TIMEOUT: report.error or f"its time was up after {report.seconds:.0f} s",
        Reason.BUDGET: _describe_budget(report.limit),
        Reason.CANCELLED: "it was cancelled",
        Reason.LOOP: "it repeated itself with the same results",
        Reason.LOST: ": ".join(filter(None, ("its worker was lost", report.error))),
    }
    cause = causes.get(report.reason, report.error or "it failed")
    kind = "its summary, not a finished result" if report.recovered else "partial"
    if not report.turns and report.reason is Reason.BUDGET and report.error:
        cause, kind = report.error, "empty"
    return f"[{report.reason}: {cause}; what follows is {kind}]"


def _describe_budget(limit: LimitState | None) -> str:
    if limit is None:
        return "its tokens or its money were used up"
    unit = limit.name.unit
    return f"the limit of {limit.maximum:,.7g} {unit} was reached ({limit.spent:,.7g} used)"


def format_evidence(report: Report) -> str:
    """Return one line with what the engine saw the run do."""
    count = sum(report.calls.values())
    if count:
        by_tool = ", ".join(f"{name} {calls}" for name, calls in report.calls.items())
        facts = [
            f"{count_noun(count, 'tool call')} ({by_tool})",
            _list_files("read", report.files_read) or "no file read",
            *_list_changes(report),
        ]
    else:
        facts = ["it called no tool: nothing it says was looked up"]
    if report.missing_tools:
        facts.append(_describe_missing(report.missing_tools))
    if report.merges:
        facts.append(f"work of children: {describe_merges(report.merges)}")
    if report.stopped_commands:
        facts.append(f"stopped at its end: {', '.join(report.stopped_commands)}")
    if report.unread_messages:
        counts = (f"{count} to {name}" for name, count in report.unread_messages.items())
        facts.append(f"messages that were not read: {', '.join(counts)}")
    at_least = "at least " if report.has_unknown_usage else ""
    facts.append(f"{at_least}{report.usage.total_tokens:,} tokens")
    facts.append(f"{report.seconds:.1f} s")
    facts.append(f"run {report.run_id}")
    return f"[evidence: {'; '.join(facts)}]"


def _describe_missing(lines: tuple[str, ...]) -> str:
    """Return why tools of MCP servers were missing: the first reason, and a count of the others.

    A reason may quote a server. Its output is left out, and the rest cannot end the line or look
    like another fact.
    """
    reason = lines[0].partition(_OUTPUT_OF_SERVER)[0].rstrip(".")
    first = sanitize_line(reason, _MAX_REASON + 1).translate(_NO_DELIMITERS)
    first = f"{first[:_MAX_REASON]}…" if len(first) > _MAX_REASON else first
    more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
    return f"tools were missing: {first}{more}"


def _list_changes(report: Report) -> list[str]:
    facts = [
        _list_files("wrote", report.files_written),
        _list_files("changed while commands ran:", report.observed_changes),
    ]
    if report.unknown_changes:
        facts.append(f"commands may have changed other files ({report.unknown_changes})")
    return list(filter(None, facts)) or ["no changed file seen"]


def _list_files(verb: str, paths: tuple[str, ...]) -> str:
    if not paths:
        return ""
    listed = ", ".join(_format_path(path) for path in paths[:_MAX_LISTED_FILES])
    more = len(paths) - _MAX_LISTED_FILES
    return f"{verb} {listed} and {more} more" if more > 0 else f"{verb} {listed}"


def _format_path(path: str) -> str:
    """Return a path without `..`, on one line; "folder/" keeps its slash."""
    path = path if path.endswith("/") else os.path.normpath(path)
    return path if path.isprintable() else sanitize_line(path, _MAX_PATH)
