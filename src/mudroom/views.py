"""The read side of a session: values that screens, servers, stores and exporters compute from it.

Each is a fold of events, live from `Session.watch` or recorded in the journal, so two readers of
one session always show the same. `stream_events` reads the recorded ones, and `redact_event` takes
the secrets out of those that others may see.

Example:
    tree = RunTree()
    session.watch(tree.apply)
    await session.run("use a subtask to find what testing framework this project uses")
    for run in tree.walk():
        run: RunView
        print("working" if run.state is RunState.RUNNING else sanitize_line(run.title))

    lines = ["[MAX_TURNS: stopped after 30 turns; what follows is partial]", "pytest, so far"]
    report: ParsedReport = parse_report(chr(10).join(lines))
    report.text == "pytest, so far"

    assert sanitize("bell" + chr(7)) == "bell"
    assert find_folder(None, "") == ""
    transcript = build_transcript([], run_id="1")
    assert transcript == ()

    # Ids of runs: "1.3.2" is the child that call 2 in turn 3 of run "1" started.
    assert is_child_id("1.3.2") and not is_child_id("1")
"""

from __future__ import annotations

from ._adapters.journals.sessions import stream_events
from ._adapters.models.pricing import calculate_cost
from ._adapters.output_filters.redaction import Redactor
from ._core.run_ids import is_child_id
from ._engine.child_report import ParsedReport, parse_report
from ._projections.run_tree import RunTree
from ._projections.run_view import RunState, RunView
from ._projections.safe_text import redact_event, sanitize, sanitize_line
from ._projections.session_summary import SummarySaver, find_folder
from ._projections.transcript import build_transcript

__all__ = [
    "ParsedReport",
    "Redactor",
    "RunState",
    "RunTree",
    "RunView",
    "SummarySaver",
    "build_transcript",
    "calculate_cost",
    "find_folder",
    "is_child_id",
    "parse_report",
    "redact_event",
    "sanitize",
    "sanitize_line",
    "stream_events",
]
