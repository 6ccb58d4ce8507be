"""A finished run's text for the user: failure line, and answer on stdout."""

from __future__ import annotations

from typing import Any

from ..._core.budgets import Limit
from ..._core.listings import count_noun
from ..._core.messages import Usage
from ..._core.runs import Reason, Report
from ..._projections.reason_words import REASON_WORDS
from ..._projections.run_tree import RunTree
from ..._projections.safe_text import sanitize, sanitize_line
from .json_output import encode_json

NEXT_PROMPT = "Your next prompt continues this conversation."

# Changed files to name; the rest are counted.
MAX_LISTED_FILES = 10


def explain_failure(report: Report) -> str:
    """Explain in one line why a run did not reach its goal; "" if it did."""
    if report.ok:
        return ""
    if report.error:
        return sanitize(report.error)
    answer = "its partial result is the answer" if report.text else "it gave no answer"
    turns = report.turns
    limit = ""
    if report.limit and report.limit.name is Limit.TURNS:
        turns = int(report.limit.spent)  # without the turn that asks for a summary
    elif report.limit:
        amounts = report.limit.name.format_amounts(report.limit.spent, report.limit.maximum)
        limit = f", {amounts}"
    ending = REASON_WORDS[report.reason].predicate
    return f"the run {ending} after {count_noun(turns, 'turn')}{limit}; {answer}"


def make_paused_report(session_id: str, tree: RunTree) -> Report:
    root = tree.roots[-1] if tree.roots else None
    return Report(
        text="",
        reason=Reason.CANCELLED,
        run_id=root.run_id if root else "",
        usage=root.total_usage if root else Usage(),
        turns=root.turn if root else 0,
        seconds=root.count_seconds(root.last_event_at) if root else 0.0,
        error=f"the run is paused. To continue it: mudroom resume {session_id[:8]}",
        outputs=dict[str, Any](),
        is_interrupted=True,
    )


def describe_stop(report: Report) -> str:
    """Describe how the user stopped a run at the prompt; "" for any other ending."""
    if report.reason is not Reason.CANCELLED or report.error:
        return ""
    return f"Stopped after {count_noun(report.turns, 'turn')}. {NEXT_PROMPT}"


def describe_interrupt(work: str) -> str:
    """Describe an interrupt; `work` continues in the background, "" for none."""
    if not work:
        return f"Interrupted. {NEXT_PROMPT}"
    return (
        f"Interrupted; {work} in the background continue (/runs). Your next prompt continues this "
        "conversation and reads their reports. Ctrl-C again stops all."
    )


def describe_changed_files(report: Report) -> str:
    """Describe changed files and merges of children's work in one line; "" for none."""
    paths = [sanitize_line(path) for path in report.files_changed]
    more = len(paths) - MAX_LISTED_FILES
    if more > 0:
        paths[MAX_LISTED_FILES:] = [f"and {count_noun(more, 'more file')}"]
    text = f"Files changed: {', '.join(paths)}" if paths else ""
    if report.merges:
        merges = f"Work of children: {sanitize_line(report.merges.describe())}"
        text = ". ".join(filter(None, (text, merges)))
    if not report.unknown_changes:
        return text
    if not text:
        return f"Files changed: not known ({report.unknown_changes})"
    return f"{text} (perhaps more: {report.unknown_changes})"


def encode_answer(report: Report, *, as_json: bool = False) -> bytes:
    # Pipes also get the safe text: they may end at a terminal. JSON has the exact text.
    text = encode_json(report.outputs) if as_json else sanitize(report.text)
    return (text.rstrip("\n") + "\n").encode("utf-8", "replace") if text else b""
