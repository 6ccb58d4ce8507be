"""Recorded sessions as text: the tree with its ledger, and transcripts."""

from __future__ import annotations

import re

import pytest
from tests.transcripts import render_transcript

from mudroom._cli.output.text import ASCII, measure_width
from mudroom._cli.output.transcript_lines import (
    SessionText,
    TextStyle,
    render_transcripts,
    render_tree,
)
from mudroom._core.events import NoteInjected, RunFinished, SessionOpened, StoredEvent
from mudroom._core.messages import TextBlock, ThinkingBlock, ToolCallBlock, Usage
from mudroom._core.runs import Reason
from mudroom._projections.run_tree import RunTree
from mudroom.errors import UnknownName
from mudroom.testing.event_builders import (
    run_finished,
    run_started,
    tool_call_events,
    tool_call_finished,
    tool_call_started,
    turn_events,
)


def make_session() -> list[StoredEvent]:
    tasks = [ToolCallBlock(f"t{n}", "task", {"prompt": "p"}) for n in range(3)]
    reading = ToolCallBlock("r", "read", {"file_path": "src/mypackage/module.py", "limit": 20})
    searching = ToolCallBlock("g", "grep", {"pattern": "定义 \x1b[31m红色"})
    prompt = "Read all .py files\nand summarize what each one does"
    first = [ThinkingBlock("Where to look?"), TextBlock("I read it."), reading]
    text = "All is well.\nNothing to do."
    title = "总结 agents 目录下的所有 Python 文件"
    return [
        SessionOpened(at=0, session="5f1c", cwd="/home/ada/project", version="1"),
        run_started("1", agent="general", prompt=prompt),
        *turn_events("1", *tasks, usage=Usage(3000, 100)),
        *(tool_call_started("1", task, at=1) for task in tasks),
        run_started("1.1.1", "1", at=1, description="Summarize mypackage .py files"),
        *turn_events("1.1.1", *first, usage=Usage(41_000, 300)),
        *tool_call_events("1.1.1", reading, "     1\timport os\n" * 315),
        NoteInjected(at=3, run="1.1.1", text="Mind the list."),
        *turn_events("1.1.1", TextBlock(text), turn=2, at=28, usage=Usage(50, 50)),
        run_finished("1.1.1", at=30),
        run_started("1.1.2", "1", at=1, description=title, prompt="总结"),
        *tool_call_events("1.1.2", searching, "no match", error=True),
        run_finished("1.1.2", Reason.ERROR, at=5, error="the provider refused: 401"),
        run_started("1.1.3", "1", at=1, agent="general", description="Create a new module"),
        *tool_call_events("1.1.3", ToolCallBlock("b", "bash", {"command": "make test"})),
        run_finished("1.1.3", Reason.MAX_TURNS, at=125, recovered=True),
        tool_call_finished("1", "t0", text, name="task", at=126),
        *turn_events("1", TextBlock("They do nothing."), turn=2, at=127, usage=Usage(3100, 20)),
        run_finished("1", at=128),
    ]


WIDE = """\
session 5f1c · /home/ada/project

> Read all .py files and summarize what each one does
● 1 · turn 2 · Done (1 tool use · 6.2k tokens · 47.6k with children · 2m 08s)
├─ explore#1.1.1  Summarize mypackage .py files
│  ⎿ Done (1 tool use · 41.4k tokens · 29s)
├─ explore#1.1.2  总结 agents 目录下的所有 Python 文件
│  ⎿ Failed: the provider refused: 401 (1 tool use · 0 tokens · 4.0s)
└─ general#1.1.3  Create a new module
   ⎿ Turn limit, with a summary (1 tool use · 0 tokens · 2m 04s)

3 children read 316 lines (5.4 kB, ~1,340 tokens); 2 lines (27 B, ~7 tokens) came back. \
Parent context: 3,100 tokens, 30% less than without children (about 4,430).
"""

NARROW = """\
session 5f1c · /hom…

> Read all .py file…
● 1 · turn 2 · Done
├─ explore#1.1.1  S…
│  ⎿ Done (29s)
├─ explore#1.1.2…
│  ⎿ Failed: the pr…
└─ general#1.1.3  C…
   ⎿ Turn limit, wi…
"""

COLORED = """\
<1>session 5f1c - /home/ada/project<0>

<1>> Read all .py files and summarize wha..<0>
<2>* <0><32>1 - turn 2 - Done<0><2> (2m 08s)<0>
<2>|- <0><1;36>explore#1.1.1<0>  Summarize mypackage ..
<2>|  > <0><32>Done<0><2> (41.4k tokens - 29s)<0>
<2>|- <0><1;36>explore#1.1.2<0>  总结 agents 目录下的..
<2>|  > <0><31>Failed: the pro..<0><2> (0 tokens - 4.0s)<0>
<2>`- <0><1;32>general#1.1.3<0>  Create a new module
<2>   > <0><33>Turn limit, with a summary<0><2> (2m 04s)<0>
"""


def test_the_tree_at_80_and_at_20_columns():
    assert render_tree(make_session(), TextStyle(columns=80)) == WIDE
    tree, ledger = render_tree(make_session(), TextStyle(columns=20)).rsplit("\n\n", 1)
    assert tree + "\n" == NARROW
    assert max(measure_width(line) for line in tree.splitlines()) <= 20
    assert ledger.startswith("3 children read 316 lines")


def test_the_tree_in_color_with_ascii_glyphs():
    style = TextStyle(columns=40, color=True, glyphs=ASCII)
    tree, _ = render_tree(make_session(), style).rsplit("\n\n", 1)
    assert re.sub(r"\x1b\[([\d;]+)m", r"<\1>", tree + "\n") == COLORED


def test_a_run_without_an_end_is_unfinished():
    assert "⎿ unfinished: bash make test · 1 tool" in render_tree(
        [e for e in make_session() if not isinstance(e, RunFinished)]
    )


def test_a_session_without_children_has_no_ledger():
    events = [*make_session()[:2], *turn_events("1", TextBlock("Hello.")), run_finished("1", at=2)]
    assert render_tree(events).endswith("● 1 · turn 1 · Done (0 tool uses · 0 tokens · 2.0s)\n")
    assert render_tree([]) == ""


def make_prompts(*, has_open_child: bool) -> list[StoredEvent]:
    """Return two prompts; a child of the first one ends before its root, or after the second."""
    child_end = run_finished("1.1.1", at=4)
    return [
        *make_session()[:1],
        run_started("1", prompt="The first."),
        run_started("1.1.1", "1", at=1),
        *([] if has_open_child else [child_end]),
        run_finished("1", at=5),
        run_started("2", prompt="The second.", continues="1"),
        *turn_events("2", TextBlock("Hello.")),
        run_finished("2", at=9),
        *([child_end] if has_open_child else []),
    ]


def test_a_root_run_is_shown_as_soon_as_the_next_one_is_read():
    text = SessionText()
    events = make_prompts(has_open_child=False)
    parts = [text.apply(event) for event in events]
    shown = [part for part in parts if part]
    assert [part.splitlines()[:2] for part in shown] == [
        ["session 5f1c · /home/ada/project"],
        ["", "> The first."],
    ]
    assert parts.index(shown[1]) < len(events) - 3
    assert "".join(parts) + text.finish() == render_tree(events)


def test_a_root_run_with_a_child_that_still_works_is_shown_at_the_end():
    text = SessionText()
    parts = [text.apply(event) for event in make_prompts(has_open_child=True)]
    assert [part for part in parts[1:] if part] == []
    lines = text.finish().splitlines()
    assert lines.index("> The first.") < lines.index("> The second.")
    assert not any("unfinished" in line or "running" in line for line in lines)


def test_the_transcripts_of_many_runs_read_the_events_once():
    events = make_prompts(has_open_child=False)
    tree = RunTree.from_events(events)
    shown = list(render_transcripts(tree, iter(events), ["1", "2"]))
    assert shown == [render_transcript(events, run) for run in ("1", "2")]
    assert "Hello." in shown[1]


CHILD = """\
run 1.1.1 · explore · offline · Summarize mypackage .py files
Done (1 tool use · 41.4k tokens · 29s)

user
    Look.

assistant
    Where to look?
    I read it.
  → read file_path=src/mypackage/module.py limit=20

user
  result of read
    … 295 more lines
    Mind the list.

assistant
    All is well.
    Nothing to do.
"""


def test_the_transcript_shows_what_the_model_saw_and_notes_omissions():
    shown = render_transcript(make_session(), "1.1.1").splitlines()
    lines = [line for line in shown if not line.endswith("import os")]
    assert len(shown) - len(lines) == 20
    assert lines == CHILD.splitlines()


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_on_a_terminal_the_transcript_wraps_between_words(columns: int):
    text = "Read the files of the package and summarize what each does. 总结所有文件，然后报告。"
    events = [run_started("1"), *turn_events("1", TextBlock(text)), run_finished("1")]
    tree = RunTree.from_events(events)
    (shown,) = render_transcripts(tree, events, ["1"], TextStyle(columns=columns, wraps=True))
    rows = shown.split("assistant\n")[1].splitlines()
    assert all(measure_width(row) <= columns and row.startswith("    ") for row in rows)
    words = " ".join(rows).split()
    assert [word for word in text.split() if word.isascii()] == [
        word for word in words if word.isascii()
    ]
    assert "".join(words) == text.replace(" ", "")


def test_the_full_transcript_omits_nothing():
    shown = render_transcript(make_session(), "1.1.1", TextStyle(full=True))
    assert shown.count("import os") == 315
    assert "…" not in shown


def test_long_results_and_arguments_are_cut_with_a_note():
    call = ToolCallBlock("w", "write", {"content": "x" * 5000, "options": {"键": [1]}})
    events = [
        run_started("1"),
        *turn_events("1", call),
        *tool_call_events("1", call, "y" * 2500, error=True),
    ]
    shown = render_transcript(events, "1")
    assert f'  → write content={"x" * 200}… (5,000 characters) options={{"键": [1]}}' in shown
    assert "    … 500 more characters" in shown
    assert (
        render_transcript(events, "1", TextStyle(color=True)).count(
            "\x1b[1;31m  result of write\x1b[0m"
        )
        == 1
    )


def test_calls_without_a_result_and_malformed_arguments_are_noted():
    call = ToolCallBlock("a", "read", {}, "{oops")
    shown = render_transcript([run_started("1"), *turn_events("1", call)], "1")
    assert "→ read {oops (not JSON)" in shown
    assert shown.endswith("\nSome of these tool calls have no result.\n")


def test_an_unknown_run_is_named_with_the_nearest_ones():
    with pytest.raises(UnknownName, match=r"unknown run '1\.1\.9'.*1\.1\.1"):
        render_transcript(make_session(), "1.1.9")
