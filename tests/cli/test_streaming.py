"""Streaming at the prompt: blocks, thinking, groups of calls, cut results, moving figures."""

from __future__ import annotations

import re
from collections.abc import Iterable

from mudroom._cli.interactive.scrollback_writer import ScrollbackWriter
from mudroom._cli.output.markdown import MarkdownBlocks, format_unfinished, render_markdown
from mudroom._cli.output.scrollback import Scrollback
from mudroom._cli.output.text import ASCII, UNICODE, paint
from mudroom._cli.output.tree_lines import TreeStyle, format_figures, format_tree
from mudroom._core.events import AnyEvent, Delta
from mudroom._core.messages import AssistantMessage, TextBlock, ThinkingBlock, ToolCallBlock
from mudroom._projections.run_tree import RunTree
from mudroom.testing.event_builders import (
    run_finished,
    run_started,
    tool_call_events,
    tool_call_started,
    turn_finished,
    turn_started,
)


class Screen:
    """A writer at a terminal of 60 columns, and what it has written."""

    def __init__(self, *, color: bool = False) -> None:
        self.pages: list[str] = []
        self.tree = RunTree()
        scrollback = Scrollback(write=self.pages.append, columns=lambda: 60, color=color)
        self.writer = ScrollbackWriter(scrollback, self.tree)
        self.feed([run_started("1"), turn_started("1")])

    def feed(self, events: Iterable[AnyEvent]) -> str:
        """Apply events; return what is new."""
        self.pages.clear()
        for event in events:
            self.tree.apply(event)
            self.writer.apply(event)
        return "".join(self.pages)

    def format_pending(self) -> str:
        return paint(self.writer.format_pending(60, 20), color=False)


def stream(text: str, kind: str = "text") -> list[AnyEvent]:
    return [Delta(at=1, run="1", kind=kind, text=text)]


def call_tool(name: str, text: str, number: int = 0, **arguments: object) -> list[AnyEvent]:
    return [*tool_call_events("1", ToolCallBlock(f"c{number}", name, arguments), text)]


def glob_times(count: int) -> Iterable[AnyEvent]:
    for n in range(count):
        yield from call_tool("glob", "no match", n, pattern=f"*.{n}")


def test_items_of_a_list_are_written_one_by_one_without_blank_lines() -> None:
    screen = Screen()
    assert screen.feed(stream("- one\n  more\n- tw")) == "- one\n  more\n"
    assert screen.format_pending() == "- tw\n"
    assert screen.feed(stream("o\n\n3. three\n4. four\n")) == "- two\n\n3. three\n"
    assert screen.feed(stream("\nThe end.\n")) == "4. four\n\n"
    assert (
        screen.feed(
            [turn_finished("1", text="- one\n  more\n- two\n\n3. three\n4. four\n\nThe end.\n")]
        )
        == "The end.\n\n"
    )


def test_a_list_in_pieces_is_rendered_like_a_whole_list() -> None:
    text = "1. one **bold**\n2. two\n   - inner\n3. 三\n\nThe end.\n"
    blocks = MarkdownBlocks()
    pieces = ""
    for line in text.splitlines(keepends=True):
        if block := blocks.feed(line):
            pieces += render_markdown(block, columns=40, color=True, ends=not blocks.is_in_list)
    pieces += render_markdown(blocks.take_rest(), columns=40, color=True)
    assert pieces == render_markdown(text, columns=40, color=True)


def test_an_unfinished_block_looks_as_it_will_be_printed() -> None:
    table = "| a | b |\n|---|---|\n" + "".join(f"| {n} | 值{n} |\n" for n in range(30))
    rows = format_unfinished(table, columns=40, height=50, color=True)
    text = paint(rows, color=False)
    assert "|" not in text and "值29" in text and len(rows) == 32
    short = paint(format_unfinished(table, columns=40, height=5, color=True), color=False)
    assert short.splitlines() == ["… earlier rows", *text.splitlines()[-4:]]
    source = format_unfinished(table, columns=40, height=2, color=False, glyphs=ASCII)
    assert source == [[(".. earlier rows", "dim")], [("| 29 | 值29 |", "")]]
    (bold, rest) = format_unfinished("**x** y", columns=40, height=5, color=True)[0]
    assert (bold, rest) == (("x", "bold"), (" y", ""))
    assert format_unfinished("**x", columns=40, height=5, color=False) == [[("**x", "")]]
    assert format_unfinished("x", columns=40, height=0, color=True) == []


def test_numbers_have_a_dot_headings_begin_at_the_left_and_links_show_addresses() -> None:
    text = "# Head\n\n9. [nine](https://example.org/9)\n10. ten is wrapped at the end of the row\n"
    rendered = render_markdown(text, columns=40, color=True)
    assert "\x1b]8" not in rendered
    assert re.sub(r"\x1b\[[\d;]*m", "", rendered).splitlines() == [
        "Head",
        "",
        "  9. nine (https://example.org/9)",
        " 10. ten is wrapped at the end of the",
        "     row",
        "",
    ]
    pending = paint(format_unfinished(text, columns=40, height=9, color=True), color=False)
    assert "nine (https://example.org/9)" in pending


def test_inline_code_has_no_background() -> None:
    assert "\x1b[1;36mcode" in render_markdown("see `code`", columns=40, color=True)


def test_thinking_is_shown_while_it_streams_then_folded_and_kept() -> None:
    screen = Screen()
    assert screen.feed(stream("I look.\n我先看。\nI decide.", "thinking")) == ""
    assert screen.format_pending() == "  我先看。\n  I decide.\n"
    assert screen.feed(stream("The answer.\n")) == "Thought (3 lines, ctrl+o): I look.\n"
    assert "The answer" in screen.format_pending()
    assert (
        paint(screen.writer.format_latest_result(), color=False) == "I look.\n我先看。\nI decide.\n"
    )
    message = AssistantMessage((ThinkingBlock("I look."), TextBlock("The answer.\n")))
    event = turn_finished("1", text="The answer.\n")
    assert "Thought" not in screen.feed([type(event)(at=2, run="1", turn=1, message=message)])
    screen.feed(call_tool("read", "x", file_path="a.py"))
    assert "I look." not in paint(screen.writer.format_latest_result(), color=False)


def test_thinking_that_did_not_stream_is_written_before_the_answer() -> None:
    message = AssistantMessage((ThinkingBlock("I look."), TextBlock("The answer.\n")))
    event = turn_finished("1", text="")
    shown = Screen().feed([type(event)(at=2, run="1", turn=1, message=message)])
    assert shown == "Thought (1 line, ctrl+o): I look.\n\nThe answer.\n\n"


def test_many_calls_with_one_line_become_a_group() -> None:
    screen = Screen()
    calls = [
        event for n in range(30) for event in call_tool("glob", "no match", n, pattern=f"*.{n}")
    ]
    assert screen.feed(calls) == ""
    assert "● 30 calls: glob 30\n  ⎿ *.0, *.1," in screen.format_pending()
    shown = screen.feed(call_tool("read", "1\tx", 40, file_path="甲.py"))
    shown += screen.feed(stream("Nothing.\n\nMore\n"))
    assert shown.startswith("● 31 calls: glob 30, read 1\n  ⎿ *.0, *.1,")
    assert shown.endswith("…\n\nNothing.\n\n") and screen.format_pending() == "More\n"
    assert screen.feed([*glob_times(3), run_finished("1")]).count("● glob *.") == 3


def test_the_last_lines_of_a_command_are_always_shown() -> None:
    output = "\n".join(map(str, range(100, 141))) + "\n7 failed, 291 passed"
    shown = Screen().feed(call_tool("bash", output, command="pytest"))
    assert "⎿ 100\n" in shown and "… 34 more lines (ctrl+o)\n" in shown
    assert shown.endswith("140\n    7 failed, 291 passed\n")
    nine = Screen().feed(call_tool("bash", "\n".join("abcdefghi"), command="x"))
    assert "more line" not in nine and nine.count("\n") == 10


def test_only_changed_todos_are_shown() -> None:
    screen = Screen()
    first = "[ ] a\n[ ] b\n[ ] 丙\n(0/3 completed)"
    assert screen.feed(call_tool("todo", first, todos=[])).count("[ ]") == 3
    second = "[x] a\n[>] b\n[ ] 丙\n(1/3 completed)"
    shown = screen.feed(call_tool("todo", second, todos=[]))
    assert "[x] a" in shown and "[>] b" in shown and "丙" not in shown
    assert "no change" in screen.feed(call_tool("todo", second, todos=[]))


def test_tokens_are_estimated_while_an_answer_streams() -> None:
    screen = Screen()
    screen.feed([*stream("x" * 400, "thinking"), *stream("y" * 4_000)])
    assert "~1.1k tokens" in format_figures(screen.tree.runs["1"], 2.0)
    screen.feed([turn_finished("1", text="y" * 4_000)])
    assert "110 tokens" in format_figures(screen.tree.runs["1"], 2.0)


def test_a_task_whose_result_is_printed_has_no_row_in_the_tree_but_is_counted() -> None:
    screen = Screen()
    tasks = [ToolCallBlock(f"t{n}", "task", {"prompt": "p"}) for n in range(2)]
    screen.feed(
        [
            turn_finished("1", *tasks),
            *(tool_call_started("1", task) for task in tasks),
            run_started("1.1.1", "1", description="first", call_id="t0"),
            run_started("1.1.2", "1", description="second", call_id="t1"),
            run_finished("1.1.1"),
        ]
    )
    shown = screen.feed(tool_call_events("1", tasks[0], "done")[-1:])
    assert "> task (first)" in shown
    style = TreeStyle(now=2.0, printed_runs=screen.writer.printed_runs, glyphs=UNICODE)
    tree = paint(format_tree(screen.tree, screen.tree.roots[-1], style), color=False)
    assert "2 tasks: 1 running, 1 done" in tree
    assert "second" in tree and "first" not in tree
