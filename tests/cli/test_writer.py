"""The scrollback of a conversation: answers, streams, calls, mentions, pastes, the status line."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inline_snapshot import snapshot
from msgspec.structs import replace
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from mudroom import Session
from mudroom._adapters.models.pricing import get_context_window
from mudroom._cli.actions.prompts import describe_unknown_mentions, expand_mentions, split_message
from mudroom._cli.interactive.key_actions import PasteStore
from mudroom._cli.interactive.mentions import MentionCompletions, find_mention
from mudroom._cli.interactive.prompt_ui import PromptCompleter
from mudroom._cli.interactive.scrollback_writer import ScrollbackWriter
from mudroom._cli.interactive.status_line import StatusLine
from mudroom._cli.output.markdown import MarkdownBlocks, format_unfinished, render_markdown
from mudroom._cli.output.scrollback import Scrollback
from mudroom._cli.output.text import ASCII, UNICODE, measure_width, paint
from mudroom._cli.output.tree_lines import TreeStyle, format_figures, format_tree
from mudroom._core.events import (
    AnyEvent,
    Delta,
    MessageDelivered,
    MessageSent,
    ModelCallRetried,
    StoredEvent,
    ToolCallFinished,
    TurnFailed,
)
from mudroom._core.messages import AssistantMessage, TextBlock, ThinkingBlock, ToolCallBlock, Usage
from mudroom._core.runs import InboxMessage, Reason
from mudroom._core.tools import ToolResult
from mudroom._engine.inbox import make_notification
from mudroom._projections.run_tree import RunTree
from mudroom.testing.event_builders import (
    run_finished,
    run_started,
    tool_call,
    tool_call_events,
    tool_call_finished,
    tool_call_started,
    turn_finished,
    turn_started,
)


def write_events(events: Sequence[AnyEvent], *, show_tasks: bool = True) -> str:
    pages: list[str] = []
    tree = RunTree()
    writer = ScrollbackWriter(
        Scrollback(write=pages.append, columns=lambda: 60, color=False), tree, show_tasks=show_tasks
    )
    for event in [run_started("1"), *events]:
        tree.apply(event)
        writer.apply(event)
    return "".join(pages)


def make_answer_events(*words: str) -> list[AnyEvent]:
    deltas = [Delta(at=1, run="1", kind="text", text=word) for word in words]
    return [turn_started("1"), *deltas, turn_finished("1", text="".join(words))]


def call_tool(
    name: str, arguments: dict[str, object], text: str, *, error: bool = False
) -> list[StoredEvent]:
    return tool_call_events("1", ToolCallBlock("c", name, arguments), text, error=error)


HALF = Delta(at=1, run="1", kind="text", text="half a th")
CUT_OFF = "half a th\n\n(the answer was cut off here)\n\n"
ANSWERS: dict[str, tuple[list[AnyEvent], str]] = {
    "streamed": (
        make_answer_events("One ", "line.\n\nAnother", " one."),
        "One line.\n\nAnother one.\n\n",
    ),
    "not streamed": ([turn_finished("1", text="All at once")], "All at once\n\n"),
    "of a failed model call": (
        [HALF, ModelCallRetried(at=2, run="1", attempt=1, delay=0.1), *make_answer_events("whole")],
        f"{CUT_OFF}whole\n\n",
    ),
    "partial": (
        [
            HALF,
            TurnFailed(at=2, run="1", error="cut off", text="half a th"),
            run_finished("1", Reason.CANCELLED, text="half a th"),
        ],
        CUT_OFF,
    ),
    "of a child": (
        [run_started("1.1.1", "1"), Delta(at=1, run="1.1.1", kind="text", text="mud\n\nmud\n\n")],
        "",
    ),
    "only in the report": ([run_finished("1", Reason.CANCELLED, text="partial")], "partial\n\n"),
    "also in the report": (
        [*make_answer_events("said"), run_finished("1", text="said")],
        "said\n\n",
    ),
    "of a run that a limit ends": (
        [
            *make_answer_events("I look."),
            turn_finished("1", tool_call("c"), turn=2),
            turn_finished("1", turn=3),
            run_finished("1", Reason.MAX_TURNS, text="I look."),
        ],
        "I look.\n\n",
    ),
}


@pytest.mark.parametrize("kind", ANSWERS)
def test_an_answer_is_written_once(kind: str) -> None:
    events, text = ANSWERS[kind]
    assert write_events(events) == text


def test_a_message_is_written_once_when_it_is_sent() -> None:
    sent = MessageSent(at=1, run="1", message=InboxMessage("m1", "mind\x1b[2J the gap"))
    delivered = MessageDelivered(at=2, run="1", text="mind the gap", origin="user", message_id="m1")
    to_child = MessageSent(at=3, run="1.1.1", message=InboxMessage("m2", "hurry"))
    unnamed = MessageSent(at=4, run="1", message=InboxMessage("m3", "ready", "1.1.1"))
    named = MessageSent(at=5, run="1", message=InboxMessage("m4", "ready", "1.1.2", name="alice"))
    child = run_started("1.1.2", "1", name="alice")
    shown = write_events([sent, delivered, to_child, unnamed, child, named])
    assert shown.startswith("  → mind the gap\n  → message from 1.1.1: ready\n")
    assert shown.endswith("  → message from alice: ready\n")
    assert shown.count("→") == 3


def test_the_end_of_background_work_is_written_as_that_of_a_task() -> None:
    end = make_notification("1.1.1", "completed", "explore: find it", "found", name="alice")
    stopped = make_notification("1.1.2", "stopped", "make \x1b[2Jtest", "no output")
    events: list[AnyEvent] = [
        run_started("1.1.1", "1", name="alice", prompt="Find it"),
        run_finished("1.1.1", text="found"),
        MessageSent(at=3, run="1", message=end),
        MessageSent(at=4, run="1", message=stopped, result=ToolResult("", error=True)),
    ]
    assert write_events(events) == (
        "> task (alice): Find it\n  ⎿ Done (0 tool uses · 0 tokens · 9.0s)\n"
        "● $ make test\n  ⎿ stopped in the background\n"
    )


def test_a_child_that_goes_on_in_the_background_keeps_its_row() -> None:
    task = ToolCallBlock("t", "task", {"prompt": "Find it"})
    started = ToolResult("Started", detail={"run": "1.1.1", "background": True})
    tree = RunTree()
    scrollback = Scrollback(write=lambda text: None, columns=lambda: 60, color=False)
    writer = ScrollbackWriter(scrollback, tree)
    events: list[AnyEvent] = [
        run_started("1"),
        tool_call_started("1", task),
        run_started("1.1.1", "1", call_id="t", prompt="Find it"),
        ToolCallFinished(at=2, run="1", call_id="t", name="task", result=started),
    ]
    for event in events:
        tree.apply(event)
        writer.apply(event)
    assert not writer.printed_runs


def test_rules_in_the_words_of_the_user_are_shown_when_they_are_found() -> None:
    prompt = "Fix it.\n- never push\nRule: known already\nRule removed: gone"
    hint = "/pin lists the rules, /unpin removes one.\n"
    assert write_events([run_started("2", prompt=prompt)]) == (
        f"Rule for every compaction: never push\n{hint}"
    )
    many = "\n".join(f"never push {number}" for number in range(9))
    assert write_events([run_started("2", prompt=many)]).endswith(
        f"Rule for every compaction: never push 4\n4 more rules. {hint}"
    )
    message = MessageSent(at=1, run="1", message=InboxMessage("m1", "must pass"))
    assert "Rule for every compaction: must pass" in write_events([message])
    others: list[AnyEvent] = [
        run_started("3", prompt="never", is_compaction=True),
        run_started("1.1.1", prompt="never push"),
        MessageSent(at=1, run="1", message=InboxMessage("m2", "never push", "1.1.1")),
    ]
    assert "Rule" not in write_events(others)


def test_tool_calls_of_every_kind() -> None:
    lines = {"old_string": "x = 1\ny", "new_string": "x = 2\ny"}
    text = write_events(
        [
            *call_tool("read", {"file_path": "a.py"}, "1\tx\n2\ty"),
            *call_tool("edit", {"file_path": "a.py", **lines}, "ok"),
            *call_tool("write", {"file_path": "b.py", "content": "\n".join("abcdefghijkl")}, "ok"),
            *call_tool("bash", {"command": "make"}, "one\x1b[2J\ntwo"),
            *call_tool("bash", {"command": "false"}, "[exit code 1]", error=True),
            *call_tool("todo", {"todos": []}, "[x] a\n[ ] b"),
        ]
    )
    assert text == snapshot("""\
● read a.py · 2 lines
● edit a.py
  ⎿ - x = 1
    + x = 2
      y
● write b.py
  ⎿ + a
    + b
    + c
    + d
    … 4 more lines (ctrl+o)
    + i
    + j
    + k
    + l
● bash make
  ⎿ one
    two
● bash false
  ⎿ [exit code 1]
● todo
  ⎿ [x] a
    [ ] b
""")


def test_tasks_are_listed_with_their_outcome_and_many_tasks_are_counted() -> None:
    def make_task_events(count: int) -> list[AnyEvent]:
        calls = [tool_call(f"t{n}", "task", prompt=f"part {n}") for n in range(count)]
        events: list[AnyEvent] = [turn_finished("1", *calls)]
        events += [tool_call_started("1", call) for call in calls]
        for n, call in enumerate(calls):
            run = f"1.1.{n + 1}"
            reason = Reason.ERROR if n == 1 else Reason.GOAL
            error = "no luck" if n == 1 else ""
            events += [
                run_started(run, "1", prompt="p", description=f"part {n}", call_id=call.id),
                run_finished(run, reason, error=error, at=4),
                tool_call_finished("1", call.id, name="task", at=4),
            ]
        return [*events, turn_started("1", 2)]

    assert write_events(make_task_events(2)) == snapshot("""\
> task (part 0): p
  ⎿ Done (0 tool uses · 0 tokens · 4.0s)
> task (part 1): p
  ⎿ Failed: no luck (0 tool uses · 0 tokens · 4.0s)
""")
    crowd = write_events(make_task_events(40))
    assert crowd.count("\n") == 4 and "> task (part 1): p" in crowd
    assert "● 40 tasks: 39 done, 1 failed" in crowd
    assert write_events(make_task_events(2), show_tasks=False) == ""


@settings(deadline=None)
@given(st.text(alphabet="ab \n`-1.|#", max_size=120), st.integers(1, 9))
def test_splitting_into_blocks_preserves_the_text(text: str, size: int) -> None:
    blocks, out = MarkdownBlocks(), ""
    for at in range(0, len(text), size):
        out += blocks.feed(text[at : at + size])
    assert out + blocks.take_rest() == text


def test_a_block_ends_where_later_text_cannot_change_it() -> None:
    blocks = MarkdownBlocks()
    assert blocks.feed("A paragraph\nof two lines") == ""
    assert blocks.feed("\n\nThe next\n") == "A paragraph\nof two lines\n\n"
    assert blocks.feed("\n```py\ncode\n\n\nmore\n") == "The next\n\n"
    listed = blocks.feed("```\n\n- one\n\n- two\n\nend\n")
    assert listed == "```py\ncode\n\n\nmore\n```\n\n- one\n\n- two\n\n"
    assert blocks.take_rest() == "end\n"


def test_tables_in_a_narrow_terminal_lose_no_character() -> None:
    words = "一个 “中文 context: the child reads the files, and only its report comes back"
    source = f"| File | Summary |\n|---|---|\n| `02_map_over_many_files.py` | {words} |\n"
    for columns in range(40, 90):
        shown = re.sub(r"\x1b\[[\d;]*m", "", render_markdown(source, columns=columns, color=True))
        assert "…" not in shown
        missing = [word for word in words.split() if word not in shown]
        assert not missing, f"{columns} columns: {shown}"


def test_chinese_markdown_wraps_between_characters() -> None:
    text = "当前目录中匹配 `*.py` 的8 个文件，**列出其中** 8 个，可能不含空文件和其他文件"
    for columns in range(20, 60):
        shown = re.sub(r"\x1b\[[\d;]*m", "", render_markdown(text, columns=columns, color=True))
        rows = shown.rstrip("\n").split("\n")
        assert "".join(rows).replace(" ", "") == re.sub(r"`|\*\*| ", "", text)
        assert all(measure_width(row) >= columns - 10 for row in rows[:-1]), shown


def test_a_table_has_one_blank_line_around_it() -> None:
    shown = render_markdown("| a | b |\n|---|---|\n| 1 | 2 |\n", columns=40, color=True)
    assert not shown.startswith("\n") and shown.endswith("\n\n") and "\n\n\n" not in shown
    assert [bool(line.strip()) for line in shown.split("\n")] == [True, True, True, False, False]


def test_markdown_is_rendered_in_color_without_control_sequences() -> None:
    shown = render_markdown(
        "# Head\n\n**bold** \x1b]0;title\x07\x1b[2J`code`\n\n```python\ndef f(): pass\n```\n",
        columns=40,
        color=True,
    )
    assert "Head" in shown and "**" not in shown and "\x1b[1mbold" in shown
    assert "title" not in shown and "\x1b[2J" not in shown and "\n\n\n" not in shown


def test_mentions_become_paths_and_instructions(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").touch()
    prompt = expand_mentions(
        "see @src/a.py, @missing.txt and @agent-explore; me@home.org",
        folder=str(tmp_path),
        agents=["explore"],
    )
    head, instruction = prompt.split("\n\n")
    assert head == "see src/a.py, @missing.txt and @agent-explore; me@home.org"
    assert instruction == "Give this to the agent explore with the task tool."


def test_a_named_child_goes_before_a_file_and_an_agent_of_the_same_name(tmp_path: Path) -> None:
    (tmp_path / "alice").touch()
    prompt = expand_mentions(
        "see @alice and @./alice and @agent-alice",
        folder=str(tmp_path),
        agents=["alice"],
        teammates=["alice"],
    )
    assert prompt.split("\n\n") == [
        "see @alice and ./alice and @agent-alice",
        "Send this to alice with the send_message tool.",
        "Give this to the agent alice with the task tool.",
    ]


def test_a_mention_that_means_nothing_has_a_hint_if_it_is_like_a_name_or_comes_first(
    tmp_path: Path,
) -> None:
    (tmp_path / "alise").touch()

    def list_hints(line: str) -> list[str]:
        return list(
            describe_unknown_mentions(
                line, folder=str(tmp_path), agents=["explore"], teammates=["alice"]
            )
        )

    nothing = "is no agent, named child or file here. It is sent as text."
    assert list_hints("@allice look") == [f"@allice {nothing} Did you mean alice?"]
    assert list_hints("ask @agent-explor") == [f"@agent-explor {nothing} Did you mean explore?"]
    assert list_hints("@pytest.fixture stays") == [
        f"@pytest.fixture {nothing} Known: alice, explore."
    ]
    for line in ("use @pytest.fixture", "@Alice hi", "@explore x", "@alise", "me@alicia.org"):
        assert list_hints(line) == []


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("@alice look up", ("alice", "look up")),
        ("@Alice: look\nup", ("alice", "look\nup")),
        ("@alice", ("", "")),
        ("@小红，看看", ("小红", "看看")),
        ("@小红 看看。", ("小红", "看看。")),
        ("@小红看看", ("", "")),
        ("alice look", ("", "")),
        ("@alicia look", ("", "")),
        ("look @alice now", ("", "")),
    ],
)
def test_a_line_that_begins_with_a_named_child_is_a_message(
    line: str, message: tuple[str, str]
) -> None:
    assert split_message(line, ["alice", "小红"]) == message


@pytest.mark.parametrize(
    ("text", "begun"), [("see @sr", "sr"), ("@", ""), ("a@b", None), ("see @x y", None), ("", None)]
)
def test_the_mention_before_the_cursor_is_found(text: str, begun: str | None) -> None:
    assert find_mention(text) == begun


def test_completions_are_agents_then_files_best_match_first() -> None:
    offers = MentionCompletions(
        lambda: ["docs/main.md", "main.py", "src/domain.py"], lambda: ["main", "explore"]
    )
    assert [word for word, _ in offers.find_matches("main")] == [
        "agent-main",
        "main.py",
        "docs/main.md",
        "src/domain.py",
    ]
    offers = MentionCompletions(
        lambda: ["alice.md"], lambda: ["alice"], teammates=lambda: ["alice"]
    )
    assert list(offers.find_matches("al")) == [
        ("alice", "teammate"),
        ("agent-alice", "agent"),
        ("alice.md", "file"),
    ]


def test_completions_of_a_closed_session_are_left_out() -> None:
    session = Session(model="offline")
    mentions = MentionCompletions(
        lambda: [session.cwd],
        lambda: [agent.name for agent in session.agents],
        lambda: [(session.cwd, "")],
    )
    completer = PromptCompleter(lambda: mentions)

    def complete(text: str) -> list[str]:
        offers = completer.get_completions(Document(text), CompleteEvent())
        return [offer.text for offer in offers]

    assert complete("/res") == ["/resume"]
    assert complete("@main") == []


def test_long_pastes_become_placeholders_and_are_expanded() -> None:
    pasted = PasteStore()
    assert pasted.add("short\r\none") == "short\none"
    assert pasted.add("a\nb\nc\nd\ne") == "[Pasted text #1 +4 lines]"
    assert pasted.add("x" * 900) == "[Pasted text #2 900 characters]"
    huge = "x" * 300_000
    shown = pasted.add(f"{huge}\na\nb\nc\nd")
    assert shown == "[Pasted text #3 +4 lines, about 75,002 tokens]"
    assert pasted.expand(shown) == f"{huge}\na\nb\nc\nd"
    assert (
        pasted.expand("see [Pasted text #1 +4 lines] and [Pasted text #9 +1 lines]")
        == "see a\nb\nc\nd\ne and [Pasted text #9 +1 lines]"
    )


def test_the_status_line_says_when_costs_are_not_known() -> None:
    def make_cost_line(*costs: float | None) -> str:
        status = StatusLine()
        for usd in costs:
            finished = run_finished("1")
            status.apply(replace(finished, report=replace(finished.report, usd=usd)))
        return "".join(status.format_line(80, UNICODE))

    assert "$1.50" in make_cost_line(0.5, 1.0)
    assert "at least $1.50" in make_cost_line(0.5, None, 1.0)
    assert "cost not known" in make_cost_line(0.0, None)
    assert "$" not in make_cost_line(0.0)


def test_the_status_line_drops_the_least_important_figures_first() -> None:
    status = StatusLine(lambda model: 200_000)
    status.model, status.sandbox, status.mode = "anthropic:claude-sonnet-4-5", "full", "plan"
    status.apply(turn_finished("1", usage=Usage(100_000, 1_000)))
    wide = "".join(status.format_line(120, UNICODE, hint="esc: stop"))
    figures = "101.0k tokens · context 50% · esc: stop"
    assert wide == f"anthropic:claude-sonnet-4-5 · sandbox full · mode plan · {figures}"
    narrow = "".join(status.format_line(60, UNICODE, hint="esc: stop"))
    assert narrow == f"claude-sonnet-4-5 · {figures}"
    keys = "enter, y, n: answer, esc: stop"
    assert status.format_line(40, UNICODE, hint=keys) == (keys, ""), "the keys stay to the last"


def test_the_status_line_shows_only_the_tokens_of_a_context_of_unknown_size() -> None:
    for model in ("ollama:qwen3:8b", "anthropic:a-model-of-tomorrow", "offline:rules"):
        assert get_context_window(model) is None, model
    status = StatusLine()
    status.model, status.context_tokens = "ollama:qwen3:8b", 41_400
    assert "".join(status.format_line(80, UNICODE)).endswith("context 41.4k")


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


def finish_call(name: str, text: str, number: int = 0, **arguments: object) -> list[AnyEvent]:
    return [*tool_call_events("1", ToolCallBlock(f"c{number}", name, arguments), text)]


def glob_times(count: int) -> Iterable[AnyEvent]:
    for n in range(count):
        yield from finish_call("glob", "no match", n, pattern=f"*.{n}")


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
    screen.feed(finish_call("read", "x", file_path="a.py"))
    assert "I look." not in paint(screen.writer.format_latest_result(), color=False)


def test_thinking_that_did_not_stream_is_written_before_the_answer() -> None:
    message = AssistantMessage((ThinkingBlock("I look."), TextBlock("The answer.\n")))
    event = turn_finished("1", text="")
    shown = Screen().feed([type(event)(at=2, run="1", turn=1, message=message)])
    assert shown == "Thought (1 line, ctrl+o): I look.\n\nThe answer.\n\n"


def test_many_calls_with_one_line_become_a_group() -> None:
    screen = Screen()
    calls = [
        event for n in range(30) for event in finish_call("glob", "no match", n, pattern=f"*.{n}")
    ]
    assert screen.feed(calls) == ""
    assert "● 30 calls: glob 30\n  ⎿ *.0, *.1," in screen.format_pending()
    shown = screen.feed(finish_call("read", "1\tx", 40, file_path="甲.py"))
    shown += screen.feed(stream("Nothing.\n\nMore\n"))
    assert shown.startswith("● 31 calls: glob 30, read 1\n  ⎿ *.0, *.1,")
    assert shown.endswith("…\n\nNothing.\n\n") and screen.format_pending() == "More\n"
    assert screen.feed([*glob_times(3), run_finished("1")]).count("● glob *.") == 3


def test_the_last_lines_of_a_command_are_always_shown() -> None:
    output = "\n".join(map(str, range(100, 141))) + "\n7 failed, 291 passed"
    shown = Screen().feed(finish_call("bash", output, command="pytest"))
    assert "⎿ 100\n" in shown and "… 34 more lines (ctrl+o)\n" in shown
    assert shown.endswith("140\n    7 failed, 291 passed\n")
    nine = Screen().feed(finish_call("bash", "\n".join("abcdefghi"), command="x"))
    assert "more line" not in nine and nine.count("\n") == 10


def test_only_changed_todos_are_shown() -> None:
    screen = Screen()
    first = "[ ] a\n[ ] b\n[ ] 丙\n(0/3 completed)"
    assert screen.feed(finish_call("todo", first, todos=[])).count("[ ]") == 3
    second = "[x] a\n[>] b\n[ ] 丙\n(1/3 completed)"
    shown = screen.feed(finish_call("todo", second, todos=[]))
    assert "[x] a" in shown and "[>] b" in shown and "丙" not in shown
    assert "no change" in screen.feed(finish_call("todo", second, todos=[]))


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
