"""Plain progress lines on stderr."""

from __future__ import annotations

import io

from msgspec.structs import replace

from mudroom._cli.output.plain_progress import PlainProgress
from mudroom._core.events import AnyEvent, Delta, ModelCallRetried, WorkMerged
from mudroom._core.messages import ToolCallBlock, Usage
from mudroom._core.runs import Reason, Work
from mudroom._projections.run_tree import RunTree
from mudroom.testing.event_builders import (
    run_finished,
    run_started,
    tool_call_events,
    turn_finished,
    turn_started,
)


def make_session() -> list[AnyEvent]:
    read = ToolCallBlock("a", "read", {"file_path": "setup.cfg"})
    prompt = "Find the testing framework.\nBe quick."
    return [
        run_started("1"),
        turn_started("1"),
        run_started("1.1.1", "1", description="Testing framework", prompt=prompt),
        run_started("1.1.2", "1", prompt="总结所有 .py 文件"),
        Delta(at=1, run="1.1.1", kind="text", text="let me see"),
        *tool_call_events("1.1.1", read, "x"),
        turn_finished("1.1.1", text="t", usage=Usage(41_000, 400), at=3),
        ModelCallRetried(at=4, run="1.1.2", attempt=1, delay=2.0, status=429),
        ModelCallRetried(at=6, run="1.1.2", attempt=2, delay=4.0),
        run_finished("1.1.1", Reason.GOAL, at=29),
        run_finished("1.1.2", Reason.ERROR, at=64, error="the provider\nrefused"),
        run_finished("1", Reason.GOAL, at=65),
    ]


def list_progress_lines(events: list[AnyEvent], *, verbose: bool = False) -> list[str]:
    stream = io.StringIO()
    progress = PlainProgress(stream, RunTree(), verbose=verbose)
    for event in events:
        progress.on_event(event)
    return stream.getvalue().splitlines()


def test_start_retry_and_end_of_a_child_have_one_line_each():
    assert list_progress_lines(make_session()) == [
        "> task (Testing framework): Find the testing framework. Be quick.",
        "> task: 总结所有 .py 文件",
        "explore (总结所有 .py 文件): retry 1 in 2.0s (HTTP 429)",
        "explore (总结所有 .py 文件): retry 2 in 4.0s (connection lost)",
        "explore (Testing framework): Done (1 tool use · 41.4k tokens · 29s)",
        "explore (总结所有 .py 文件): Failed: the provider refused "
        "(0 tool uses · 0 tokens · 1m 04s)",
    ]


def test_verbose_adds_a_line_for_each_tool_call():
    usual = list_progress_lines(make_session())
    verbose = list_progress_lines(make_session(), verbose=True)
    added = [line for line in verbose if line not in usual]
    assert added == ["explore (Testing framework): read setup.cfg"]


def test_a_run_stopped_at_a_limit_with_a_summary_is_recovered():
    ended = run_finished("1.1.1", Reason.MAX_TURNS, at=1, recovered=True)
    *_, line = list_progress_lines([run_started("1"), run_started("1.1.1", "1"), ended])
    assert line == "explore (Look.): Turn limit, with a summary (0 tool uses · 0 tokens · 1.0s)"


def test_long_text_with_control_sequences_becomes_one_safe_line():
    hostile = "\x1b]0;owned\x07\x1b[2Jrun\u202e this\r\n> task (fake): x" + "y" * 500
    (line,) = list_progress_lines(
        [run_started("1"), run_started("1.1.1", "1", prompt=hostile, description="a\x1b[31mb\nc")]
    )
    assert line.startswith("> task (ab c): run this > task (fake): xyyy")
    assert len(line) == 160
    assert line.endswith("…")
    assert line.isprintable()


def test_an_ascii_stream_gets_ascii_glyphs():
    raw = io.BytesIO()
    progress = PlainProgress(
        io.TextIOWrapper(raw, encoding="ascii", errors="backslashreplace"), RunTree()
    )
    for event in make_session():
        progress.on_event(event)
    assert b"Done (1 tool use - 41.4k tokens - 29s)" in raw.getvalue()
    assert raw.getvalue().isascii()


class ClosedStream(io.StringIO):
    def write(self, s: str, /) -> int:
        raise BrokenPipeError


def test_a_closed_stderr_does_not_stop_the_run():
    progress = PlainProgress(ClosedStream(), RunTree())
    for event in make_session():
        progress.on_event(event)
    assert progress.tree.runs["1"].report


def test_the_merge_of_isolated_work_has_a_line() -> None:
    work = Work("base", "tree", ("a.py", "b.py"))
    finished = run_finished("1.1.1")
    merged = WorkMerged(at=3, run="1", child="1.1.1", state="merged", files=work.files)
    lines = list_progress_lines(
        [
            run_started("1"),
            run_started("1.1.1", "1", prompt="Change."),
            replace(finished, report=replace(finished.report, work=work)),
            merged,
        ]
    )
    assert lines[1].startswith("explore (Change.): Done (")
    assert lines[2:] == ["explore (Change.): merged 2 files"]
