"""The read side of a session: values that screens, servers, stores and exporters compute from it.

Most are folds of events, live from `Session.watch` or recorded in the journal, so two readers of
one session always show the same. `stream_events` reads the recorded ones, and `redact_event` takes
the secrets out of those that others may see. The rest makes safe text of what models, tools and
files wrote.

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
    assert find_root_id("1.3.2") == "1"
    assert find_first_id("1.3.2~2") == "1.3.2"  # the second run of the same child

    # A tool call, for a user who must decide on it.
    arguments = {"file_path": "paper.md", "limit": 20}
    print(make_call_title(arguments, find_builtin_tool("read")))  # paper.md
    print(format_arguments(arguments))
    assert len(escape_line("two" + chr(10) + "lines").splitlines()) == 1

    # The same call, and the state of an MCP server, in the terms of Claude Code.
    assert get_claude_name("read") == "Read"
    assert to_claude_arguments("read", arguments, "/home/you")["file_path"] == "/home/you/paper.md"
    print([get_claude_state(status) for status in session.mcp.servers])

    # A report for another model: what the engine knows of the run is around its words.
    ended = Report(text="pytest", reason=Reason.TIMEOUT, run_id="1")
    assert describe_end(ended) == "The run reached its time limit."
    print(add_facts(ended, format_words(ended)))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._platform.imports import load_later

if TYPE_CHECKING:
    from ._adapters.journals.sessions import stream_events
    from ._adapters.models.pricing import calculate_cost
    from ._adapters.output_filters import Redactor
    from ._adapters.tools import find_builtin_tool
    from ._core.runs import find_first_id, find_root_id, is_child_id
    from ._engine.child_report import ParsedReport, add_facts, format_words, parse_report
    from ._projections.claude import get_claude_name, to_claude_arguments
    from ._projections.engine_text import quote, wrap
    from ._projections.ledger import LedgerBuilder
    from ._projections.reason_words import describe_end
    from ._projections.run_tree import RunTree
    from ._projections.run_view import RunState, RunView
    from ._projections.safe_text import (
        escape_line,
        format_arguments,
        make_call_title,
        redact_event,
        sanitize,
        sanitize_line,
    )
    from ._projections.session_summary import SummarySaver, find_folder
    from ._projections.stream_json import StreamJson, get_claude_state
    from ._projections.transcript import build_transcript

__all__ = [
    "LedgerBuilder",
    "ParsedReport",
    "Redactor",
    "RunState",
    "RunTree",
    "RunView",
    "StreamJson",
    "SummarySaver",
    "add_facts",
    "build_transcript",
    "calculate_cost",
    "describe_end",
    "escape_line",
    "find_builtin_tool",
    "find_first_id",
    "find_folder",
    "find_root_id",
    "format_arguments",
    "format_words",
    "get_claude_name",
    "get_claude_state",
    "is_child_id",
    "make_call_title",
    "parse_report",
    "quote",
    "redact_event",
    "sanitize",
    "sanitize_line",
    "stream_events",
    "to_claude_arguments",
    "wrap",
]

# A screen needs few of them.
__getattr__ = load_later(
    __name__,
    {
        "_adapters.journals.sessions": "stream_events",
        "_adapters.models.pricing": "calculate_cost",
        "_adapters.output_filters": "Redactor",
        "_adapters.tools": "find_builtin_tool",
        "_core.runs": "find_first_id find_root_id is_child_id",
        "_engine.child_report": "ParsedReport add_facts format_words parse_report",
        "_projections.claude": "get_claude_name to_claude_arguments",
        "_projections.engine_text": "quote wrap",
        "_projections.ledger": "LedgerBuilder",
        "_projections.reason_words": "describe_end",
        "_projections.run_tree": "RunTree",
        "_projections.run_view": "RunState RunView",
        "_projections.safe_text": (
            "escape_line format_arguments make_call_title redact_event sanitize sanitize_line"
        ),
        "_projections.session_summary": "SummarySaver find_folder",
        "_projections.stream_json": "StreamJson get_claude_state",
        "_projections.transcript": "build_transcript",
    },
)
