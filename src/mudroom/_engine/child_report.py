"""A child's report as its parent's model reads it: the formatter and its inverse."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from .._core.budgets import LimitState
from .._core.listings import count_noun
from .._core.messages import Usage
from .._core.runs import Reason, Report
from .._platform.patterns import compile_later
from .._projections.engine_text import format_value, quote
from .._projections.safe_text import sanitize_line
from .call_context import CallContext
from .phase import LIMIT_REASONS

REPORT_CAP = 8_000  # characters for the parent; the whole text is in a spill file

NO_SUMMARY = "(no summary)"

_MAX_LISTED_FILES = 5
_MAX_LISTED_REASONS = 3
_MAX_REASON = 120  # characters of a reason, a command or a name among the facts
_MAX_CAUSE = 2_000  # characters of the error in a warning line
_OUTPUT_OF_SERVER = "; last lines:"
"""What a reason says before it quotes the server's last output."""
_NO_DELIMITERS = str.maketrans("[];", "(),")
"""Replaces the characters that would end the evidence line, or a fact in it."""
_WARNING = compile_later(rf"\[(?=.*\]\Z)((?:{'|'.join(Reason)}): .*; what follows is .*)\]")
_CUT = compile_later(r"\[… cut: the whole report, [\d,]+ characters, is in (.+)\]")
_EVIDENCE = compile_later(r"\[evidence: .*\]")


class ParsedReport(Struct, frozen=True):
    """The parts of a formatted report.

    Arguments:
        text: text and outputs, "" without a summary.
        warning: without its brackets, "" if the child reached its goal.
        spill: path of the whole text, "" if `text` is not cut.
    """

    text: str
    warning: str = ""
    spill: str = ""


def format_report(context: CallContext, report: Report) -> tuple[str, str]:
    """Format a report for the parent; also return the path of its spill file, "" if it is not cut.

    A warning line comes first unless the reason is GOAL, then the text and outputs, with anything
    that looks like the engine's own words quoted, then an empty line and the evidence.
    """
    text = format_words(report)
    spill = notice = ""
    if len(text) > REPORT_CAP:
        spill = context.spill_path("report")
        with open(spill, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        notice = f"\n[… cut: the whole report, {len(text):,} characters, is in {spill}]"
    words = context.run.services.mark_report(text[:REPORT_CAP]) + notice
    return add_facts(report, words), spill


def join_evidence(legs: Sequence[Report]) -> Report:
    """Return a child's last report with the evidence of all its runs.

    `legs` are the reports of a child whose work came back to it, oldest first.
    """
    last = legs[-1]
    if len(legs) == 1:
        return last
    calls: dict[str, int] = {}
    for each in legs:
        for name, count in each.calls.items():
            calls[name] = calls.get(name, 0) + count
    return replace(
        last,
        calls=calls,
        failed=sum(each.failed for each in legs),
        files_read=_join(each.files_read for each in legs),
        files_changed=_join(each.files_changed for each in legs),
        observed_changes=_join(each.observed_changes for each in legs),
        unknown_changes=next((each.unknown_changes for each in legs if each.unknown_changes), ""),
        parallel_runs=_join(each.parallel_runs for each in legs),
        missing_tools=_join(each.missing_tools for each in legs),
        stopped_commands=_join(each.stopped_commands for each in legs),
        has_unknown_usage=any(each.has_unknown_usage for each in legs),
        usage=sum((each.usage for each in legs), Usage()),
        seconds=sum(each.seconds for each in legs),
    )


def _join(groups: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for group in groups for text in group))


def format_words(report: Report) -> str:
    """Return the child's own words: its text and outputs, quoted."""
    parts = [quote(report.text.strip())]
    if report.outputs:
        parts.append(f"Outputs: {quote(msgspec.json.encode(report.outputs).decode())}")
    return "\n".join(filter(None, parts)) or NO_SUMMARY


def add_facts(report: Report, words: str) -> str:
    """Put the engine's facts about a child's run around its words.

    The empty line keeps the evidence out of the last paragraph or list of the words.

    Arguments:
        report: of the child.
        words: those of `format_words`, or their beginning.
    """
    text = f"{words}\n\n{format_evidence(report)}"
    return text if report.reason is Reason.GOAL else f"{format_warning(report)}\n{text}"


def parse_report(text: str) -> ParsedReport:
    """Return the parts of a text that `format_report` made; any other text is returned whole."""
    lines = text.strip().split("\n")
    warning = ""
    spill = ""
    if match := _WARNING.fullmatch(lines[0]):
        warning = match[1]
        lines = lines[1:]
    if lines and _EVIDENCE.fullmatch(lines[-1]):
        lines = "\n".join(lines[:-1]).rstrip("\n").split("\n")
        if lines and (match := _CUT.fullmatch(lines[-1])):
            spill = match[1]
            lines = lines[:-1]
    whole = "\n".join(lines)
    return ParsedReport("" if whole == NO_SUMMARY else whole, warning, spill)


def format_warning(report: Report) -> str:
    by_turns = "a run above it reached its limit of turns"
    if report.limit:
        by_turns = f"stopped after {report.limit.maximum:g} turns, its limit"
    causes = {
        Reason.MAX_TURNS: by_turns,
        Reason.TIMEOUT: report.error or f"its time was up after {report.seconds:.0f} s",
        Reason.BUDGET: _describe_budget(report.limit),
        Reason.CANCELLED: "it was cancelled",
        Reason.LOOP: "it repeated itself with the same results",
        Reason.LOST: ": ".join(filter(None, ("its worker was lost", report.error))),
    }
    cause = causes.get(report.reason, report.error or "it failed")
    cause = quote(sanitize_line(cause, _MAX_CAUSE))
    kind = "its summary, not a finished result" if report.recovered else "partial"
    if not report.turns and report.reason in LIMIT_REASONS and report.error:
        cause, kind = report.error, "empty"
    return f"[{report.reason}: {cause}; what follows is {kind}]"


def _describe_budget(limit: LimitState | None) -> str:
    if limit is None:
        return "a run above it used up its tokens or its money"
    maximum, spent = map(limit.name.format_amounts, (limit.maximum, limit.spent))
    return f"the limit of {maximum} was reached ({spent.removesuffix(f' {limit.name.unit}')} used)"


def format_evidence(report: Report) -> str:
    """Describe in one line what the engine saw the run do."""
    count = sum(report.calls.values())
    if count:
        by_tool = ", ".join(f"{_clean(name)} {calls}" for name, calls in report.calls.items())
        facts = [
            f"{count_noun(count, 'tool call')} ({by_tool})",
            _list_files("read", report.files_read) or "no file read",
            *(_list_changes(report) or ["no changed file seen"]),
        ]
    else:
        facts = ["it called no tool: nothing it says was looked up", *_list_changes(report)]
    if report.missing_tools:
        facts.append(_describe_missing(report.missing_tools))
    if report.merges:
        facts.append(f"work of children: {report.merges.describe()}")
    if report.stopped_commands:
        facts.append(f"stopped at its end: {', '.join(map(_clean, report.stopped_commands))}")
    if report.unread_messages:
        counts = (f"{count} to {_clean(name)}" for name, count in report.unread_messages.items())
        facts.append(f"messages that were not read: {', '.join(counts)}")
    at_least = "at least " if report.has_unknown_usage else ""
    facts.append(f"{at_least}{report.usage.total_tokens:,} tokens")
    facts.append(f"{report.seconds:.1f} s")
    facts.append(f"run {report.run_id}")
    return f"[evidence: {'; '.join(facts)}]"


def _describe_missing(lines: tuple[str, ...]) -> str:
    """Explain why MCP tools were missing: the first reason, and a count of the others.

    A reason may quote a server. The server's output is left out, and what remains can neither end
    the line nor pass for another fact.
    """
    first = _clean(lines[0].partition(_OUTPUT_OF_SERVER)[0].rstrip("."))
    more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
    return f"tools were missing: {first}{more}"


def _clean(text: str) -> str:
    """Shorten a text so that it can neither end the evidence line nor pass for another fact."""
    line = sanitize_line(text, _MAX_REASON + 1).translate(_NO_DELIMITERS)
    return f"{line[:_MAX_REASON]}…" if len(line) > _MAX_REASON else line


def _list_changes(report: Report) -> list[str]:
    facts = [
        _list_files("wrote", report.files_written),
        _list_observed(report),
    ]
    facts = list(filter(None, facts))
    if report.unknown_changes:
        subject = "more files" if facts else "files"
        facts.append(f"{subject} may have changed ({_join_reasons(report.unknown_changes)})")
    return facts


def _join_reasons(unknown_changes: str) -> str:
    reasons = unknown_changes.split("; ")
    listed = ", ".join(map(_clean, reasons[:_MAX_LISTED_REASONS]))
    more = len(reasons) - _MAX_LISTED_REASONS
    return f"{listed}, and {count_noun(more, 'more reason')}" if more > 0 else listed


def _list_observed(report: Report) -> str:
    text = _list_files("changed while commands ran:", report.observed_changes)
    if not text or not report.parallel_runs:
        return text
    others = ", ".join(report.parallel_runs[:_MAX_LISTED_FILES])
    more = len(report.parallel_runs) - _MAX_LISTED_FILES
    others += f" and {more} more" if more > 0 else ""
    return f"{text} (also while {others} ran a command)"


def _list_files(verb: str, paths: tuple[str, ...]) -> str:
    if not paths:
        return ""
    listed = ", ".join(_format_path(path) for path in paths[:_MAX_LISTED_FILES])
    more = len(paths) - _MAX_LISTED_FILES
    return f"{verb} {listed} and {more} more" if more > 0 else f"{verb} {listed}"


def _format_path(path: str) -> str:
    """Return a path without `..`, on one line; "folder/" keeps its slash."""
    return format_value(path if path.endswith("/") else os.path.normpath(path))
