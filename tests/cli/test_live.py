"""The live tree on a terminal: its lines, redrawing, and the final tree."""

from __future__ import annotations

import io
import re
import time

import pytest

from mudroom._cli.output.live_tree import LiveTree
from mudroom._cli.output.text import ERASE_DOWN, format_seconds, format_tokens
from mudroom._cli.output.tree_lines import TreeStyle, format_tree
from mudroom._core.events import (
    AnyEvent,
    Delta,
    ModelCallRetried,
    RunWaiting,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnStarted,
)
from mudroom._core.messages import TextBlock, ToolCallBlock, Usage
from mudroom._core.runs import Reason
from mudroom._core.tools import ToolResult
from mudroom._projections.run_tree import RunTree
from mudroom.testing.event_builders import (
    run_finished,
    run_started,
    tool_call_events,
    tool_call_started,
    turn_events,
)


class Terminal(io.StringIO):
    """The part of a terminal that the live tree uses: line feeds, cursor up, erase down."""

    def __init__(self, columns: int = 80) -> None:
        super().__init__()
        self.columns, self.frames = columns, 0
        self._lines: list[str] = [""]

    def write(self, s: str, /) -> int:
        self.frames += 1
        for part in re.split(
            rf"(\x1b\[\d+A\r{re.escape(ERASE_DOWN)}|\n)", re.sub(r"\x1b\[[\d;]*m", "", s)
        ):
            if part == "\n":
                self._lines.append("")
            elif part.startswith("\x1b"):
                up = int(part[2 : part.index("A")])
                assert up < len(self._lines), "the live tree climbed above its first line"
                self._lines[-1 - up :] = [""]
            else:
                self._lines[-1] += part
        return len(s)

    def resize(self, columns: int) -> None:
        """Re-wrap the lines, as terminals do."""
        self.columns = columns
        rows = [
            line[at : at + columns]
            for line in self._lines
            for at in range(0, max(1, len(line)), columns)
        ]
        self._lines = rows

    @property
    def screen(self) -> list[str]:
        return self._lines[:-1]


class Clock:
    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def start_children(children: int, *, agent: str = "explore") -> list[StoredEvent]:
    """Return events of a root run whose children all read a file."""
    tasks = [ToolCallBlock(f"t{n}", "task", {"description": f"batch {n}"}) for n in range(children)]
    events = [run_started("1", agent="general"), *turn_events("1", *tasks, usage=Usage(3000, 100))]
    events += [tool_call_started("1", task, at=1) for task in tasks]
    for n in range(children):
        run = f"1.1.{n + 1}"
        call = ToolCallBlock("c", "read", {"file_path": f"src/m{n}.py"})
        events += [
            run_started(
                run, "1", at=1 + n / 1000, agent=agent, description=f"Batch {n}", call_id=f"t{n}"
            ),
            *turn_events(run, call, usage=Usage(2000, 100)),
        ]
        events.append(tool_call_started(run, call, at=2))
    return events


def draw_tree(
    events: list[StoredEvent], *, now: float = 10.0, columns: int = 80, limit: int | None = 12
) -> list[str]:
    tree = RunTree()
    for event in events:
        tree.apply(event)
    look = TreeStyle(columns=columns, max_runs=limit, now=now)
    return ["".join(text for text, _ in line) for line in format_tree(tree, tree.roots[-1], look)]


def make_live_tree(terminal: Terminal, now: Clock, height: int = 40) -> LiveTree:
    return LiveTree(terminal, RunTree(), now=now, size=lambda: (terminal.columns, height))


def feed(screen: LiveTree, events: list[StoredEvent]) -> None:
    for event in events:
        screen.on_event(event)


def make_bilingual_events() -> list[StoredEvent]:
    """Return events of a finished child, a working child with Chinese text, and a failed one."""
    events = [
        *start_children(2),
        *tool_call_events("1.1.1", ToolCallBlock("c", "read", {"file_path": "src/m0.py"})),
        run_finished("1.1.1", at=5),
    ]
    title = "总结 agents 目录下的所有文件"
    grep = ToolCallBlock("c", "grep", {"pattern": "定义或使用了哪些函数"})
    return [
        *events,
        run_started("1.1.9", "1", at=2, agent="general", description=title, call_id="t9"),
        ToolCallStarted(at=3, run="1.1.9", call=grep),
        run_finished("1.1.2", Reason.ERROR, at=6, error="no such model"),
    ]


SCREENS = {
    20: """\
● turn 1 · 3 tasks:…
├─ explore  Batch 0
│  ⎿ Done (4.0s)
├─ explore  Batch 1
│  ⎿ Failed: no suc…
└─ general  总结 ag…
   ⎿ grep 定义或使…""",
    80: """\
● turn 1 · 3 tasks: 1 running, 1 done, 1 failed · 7.3k with children · 10s
├─ explore  Batch 0
│  ⎿ Done (1 tool use · 2.1k tokens · 4.0s)
├─ explore  Batch 1
│  ⎿ Failed: no such model (0 tool uses · 2.1k tokens · 5.0s)
└─ general  总结 agents 目录下的所有文件
   ⎿ grep 定义或使用了哪些函数 · 0 tools · 0 tokens · 8.0s""",
}

COLORED = """\
<2>● <0>turn 1 · 3 tasks: 1 running, 1 done, 1 failed<2> · 7.3k with children · 10s<0>
<2>├─ <0><1;36>explore<0>  Batch 0
<2>│  ⎿ <0><32>Done<0><2> (1 tool use · 2.1k tokens · 4.0s)<0>
<2>├─ <0><1;36>explore<0>  Batch 1
<2>│  ⎿ <0><31>Failed: no such model<0><2> (0 tool uses · 2.1k tokens · 5.0s)<0>
<2>└─ <0><1;32>general<0>  总结 agents 目录下的所有文件
<2>   ⎿ <0>grep 定义或使用了哪些函数<2> · 0 tools · 0 tokens · 8.0s<0>
"""


@pytest.mark.parametrize("columns", SCREENS)
def test_the_screen_in_english_and_chinese(columns: int):
    assert draw_tree(make_bilingual_events(), columns=columns) == SCREENS[columns].split("\n")


def test_the_screen_in_color():
    stream = io.StringIO()
    screen = LiveTree(stream, RunTree(), now=Clock(10.0), size=lambda: (81, 24))
    feed(screen, make_bilingual_events())
    screen.draw()
    assert re.sub(r"\x1b\[([\d;]+)m", r"<\1>", stream.getvalue()) == COLORED


def test_tasks_that_have_not_started_are_counted():
    events = [*start_children(2), tool_call_started("1", ToolCallBlock("t9", "task", {}), at=1)]
    assert draw_tree(events, columns=100)[0].startswith(
        "● turn 1 · 3 tasks: 2 running, 1 not started · "
    )


def test_a_grandchild_is_drawn_below_its_parent():
    events = [
        *start_children(1),
        run_started("1.1.1.1.1", "1.1.1", at=3, agent="审查", description="更深一层"),
    ]
    assert draw_tree(events)[-2:] == [
        "   └─ 审查  更深一层",
        "      ⎿ thinking… · 0 tools · 0 tokens · 7.0s",
    ]


def test_the_last_run_of_a_child_has_the_row_of_the_child() -> None:
    events = [
        run_started("1"),
        run_started("1.1.1", "1", description="rewrite cart"),
        run_finished("1.1.1"),
        run_started("1.1.1~2", "1", description="rewrite cart", continues="1.1.1"),
    ]
    tree = RunTree.from_events(events)
    lines = format_tree(tree, tree.roots[0], TreeStyle(now=10.0, is_snapshot=True))
    text = ["".join(part for part, _ in line) for line in lines]
    assert len(text) == 3
    assert "1 task: 1 running" in text[0]
    assert len(format_tree(tree, tree.roots[0], TreeStyle(show_ids=True))) == 5


def test_retries_and_quiet_runs_are_shown():
    events = [
        *start_children(1),
        ModelCallRetried(at=3, run="1.1.1", attempt=2, delay=4.0, status=529),
    ]
    assert draw_tree(events)[-1] == "   ⎿ retry 2 in 4.0s (HTTP 529) · 0 tools · 2.1k tokens · 9.0s"
    assert (
        draw_tree(start_children(1), now=66)[-1]
        == "   ⎿ read src/m0.py · 0 tools · 2.1k tokens · 1m 05s · quiet 1m 04s"
    )


def test_many_children_are_counted_and_failed_and_slow_ones_are_shown():
    events = start_children(500)
    for n in range(100, 400):
        events.append(run_finished(f"1.1.{n}", at=5))
    for n in range(450, 460):
        events.append(run_finished(f"1.1.{n}", Reason.ERROR, at=6, error="401"))
    lines = draw_tree(events)
    assert len(lines) == 1 + 2 * 12 + 1
    assert [line for line in lines if "Failed: 401" in line] == [lines[n] for n in range(2, 14, 2)]
    assert [line.split("Batch ")[1] for line in lines[13:25:2]] == ["0", "1", "2", "3", "4", "5"]
    assert lines[-1] == "└─ 488 more: 184 running, 300 done, 4 failed"


def test_the_ancestors_of_a_shown_run_are_shown_too():
    events = start_children(20)
    events += [
        run_started("1.1.20.1.1", "1.1.20", at=3, description="deep"),
        run_finished("1.1.20.1.1", Reason.LOST, at=4),
    ]
    lines = draw_tree(events, limit=3)
    assert [line.strip("│├└─ ") for line in lines[1:4:2]] == [
        "explore  Batch 0",
        "explore  Batch 1",
    ]
    assert any("Batch 19" in line for line in lines)
    assert any("explore  deep" in line for line in lines)


def test_a_drawing_replaces_the_previous_one():
    terminal, clock = Terminal(), Clock(10.0)
    screen = make_live_tree(terminal, clock)
    feed(screen, start_children(3))
    screen.draw()
    assert len(terminal.screen) == 7
    feed(screen, [run_finished("1.1.1", at=11)])
    clock.now = 12.0
    screen.draw()
    assert len(terminal.screen) == 7
    assert "Done" in terminal.screen[2]


def test_nothing_is_written_when_nothing_has_changed():
    terminal = Terminal()
    screen = make_live_tree(terminal, Clock(10.0))
    feed(screen, start_children(2))
    for _ in range(5):
        screen.draw()
    assert terminal.frames == 1


@pytest.mark.parametrize("columns", [20, 33, 60, 120])
def test_a_resize_leaves_no_old_rows(columns: int):
    terminal, clock = Terminal(80), Clock(10.0)
    screen = make_live_tree(terminal, clock)
    feed(screen, start_children(4))
    screen.draw()
    terminal.resize(columns)
    clock.now = 11.0
    screen.draw()
    assert len(terminal.screen) == 9
    assert max(len(line) for line in terminal.screen) < columns


def test_the_tree_is_never_higher_than_the_terminal():
    terminal = Terminal()
    screen = make_live_tree(terminal, Clock(10.0), height=8)
    feed(screen, start_children(30))
    screen.draw()
    assert len(terminal.screen) <= 7


def test_the_final_tree_stays_on_the_screen():
    terminal, clock = Terminal(), Clock(10.0)
    with make_live_tree(terminal, clock) as screen:
        feed(screen, start_children(2))
        feed(screen, [run_finished(run, at=11) for run in ("1.1.1", "1.1.2", "1")])
    assert [line for line in terminal.screen if "●" in line] == [
        "● turn 1 · Done (0 tool uses · 3.1k tokens · 7.3k with children · 11s)"
    ]
    assert len(terminal.screen) == 5


def test_a_run_without_children_leaves_no_tree():
    terminal = Terminal()
    with make_live_tree(terminal, Clock(1.0)) as screen:
        feed(screen, [run_started("1"), *turn_events("1", TextBlock("Hello."))])
        screen.draw()
        feed(screen, [run_finished("1", at=2)])
    assert terminal.screen == []


def test_answers_are_printed_below_their_tree_and_no_run_is_drawn_twice():
    terminal, clock = Terminal(), Clock(10.0)
    with make_live_tree(terminal, clock) as screen:
        screen.format_pending = lambda columns, height: [[("and so", "")]]
        feed(screen, start_children(2))
        screen.draw()
        done = [
            ToolCallFinished(at=11, run="1", call_id=f"t{n}", name="task", result=ToolResult("r"))
            for n in range(2)
        ]
        feed(
            screen,
            [
                *(run_finished(run, at=11) for run in ("1.1.1", "1.1.2")),
                *done,
                TurnStarted(at=11, run="1", turn=2),
            ],
        )
        screen.print_answer(lambda: terminal.write("First words.\n\n"))
        screen.draw()
        assert terminal.screen[-3:] == ["First words.", "", "and so"], "what streams is seen"
        screen.print_answer(lambda: terminal.write("And so on.\n\n"))
        task = ToolCallBlock("t9", "task", {"description": "more"})
        feed(
            screen,
            [
                *turn_events("1", TextBlock("And so on."), task, turn=2, at=12),
                tool_call_started("1", task, at=12),
            ],
        )
        feed(screen, [run_started("1.2.1", "1", at=12, description="one more", call_id="t9")])
        screen.draw()
        shown = "\n".join(terminal.screen)
        assert shown.count("Batch 0") == shown.count("Batch 1") == shown.count("one more") == 1
        feed(
            screen,
            [
                run_finished("1.2.1", at=13),
                ToolCallFinished(at=13, run="1", call_id="t9", name="task", result=ToolResult("r")),
            ],
        )
        feed(screen, [TurnStarted(at=13, run="1", turn=3)])
        screen.print_answer(lambda: terminal.write("The end.\n\n"))
        last = turn_events("1", TextBlock("The end."), turn=3, at=14, usage=Usage(90_000, 9))
        feed(screen, [*last, run_finished("1", at=14)])
    shown = "\n".join(terminal.screen)
    first = [
        "● turn 2 · 2 tasks: 2 done",
        "├─ explore  Batch 0",
        "│  ⎿ Done",
        "└─ explore  Batch 1",
        "   ⎿ Done",
        "",
    ]
    second = ["● turn 3 · 1 task: 1 done", "└─ explore  one more", "   ⎿ Done", ""]
    # Only the headline below the answer has figures of the root: those of its end.
    end = f"● turn 3 · Done ({count_figures(screen.tree)})"
    expected = [*first, "First words.", "", "And so on.", "", *second, "The end.", "", end]
    assert re.sub(r"(?m)^(.  ⎿ Done) .*", r"\1", shown).split("\n") == expected
    assert "with children" in end and "k tokens" in end


def count_figures(tree: RunTree) -> str:
    root = tree.roots[-1]
    used, total = root.usage.total_tokens, root.total_usage.total_tokens
    figures = [f"{format_tokens(used)} tokens", f"{format_tokens(total)} with children"]
    seconds = format_seconds(root.finished_at - root.started_at)
    return " · ".join([f"{root.tool_call_count} tool uses", *figures, seconds])


def test_text_of_the_root_run_is_not_drawn():
    terminal = Terminal()
    screen = make_live_tree(terminal, Clock(10.0))
    feed(screen, start_children(1))
    screen.on_event(Delta(at=3, run="1", kind="text", text="the secret answer"))
    screen.draw()
    assert "secret" not in terminal.getvalue() + "".join(terminal.screen)


def test_an_ascii_terminal_gets_an_ascii_tree():
    raw = io.BytesIO()
    screen = LiveTree(
        io.TextIOWrapper(raw, encoding="ascii"),
        RunTree(),
        color=False,
        now=Clock(10.0),
        size=lambda: (80, 24),
    )
    feed(screen, start_children(2))
    screen.draw()
    assert raw.getvalue().decode("ascii").splitlines()[1:3] == [
        "|- explore  Batch 0",
        "|  > read src/m0.py - 0 tools - 2.1k tokens - 9.0s",
    ]


def test_control_sequences_in_text_are_removed():
    evil = "\x1b[2J\x1b]0;x\x07\u202eevil\n\r\x9b1A"
    terminal = io.StringIO()
    screen = LiveTree(terminal, RunTree(), color=False, now=Clock(10.0), size=lambda: (80, 24))
    events: list[AnyEvent] = [
        *start_children(1),
        run_started("1.1.9", "1", agent=evil, prompt=evil, description=evil),
    ]
    events.append(ToolCallStarted(at=3, run="1.1.9", call=ToolCallBlock("c", evil, {"path": evil})))
    for event in events:
        screen.on_event(event)
    screen.draw()
    assert all(c.isprintable() or c == "\n" for c in terminal.getvalue())
    assert "evil" in terminal.getvalue()


class ClosedStream(io.StringIO):
    def write(self, s: str, /) -> int:
        raise BrokenPipeError


def test_a_closed_terminal_does_not_stop_the_run():
    with LiveTree(ClosedStream(), RunTree(), now=Clock(1.0), size=lambda: (80, 24)) as screen:
        feed(screen, start_children(1))
        screen.draw()


def test_500_children_cost_less_than_five_percent_of_a_core():
    """Measure eight drawings per second, each with changed lines."""
    clock = Clock(10.0)
    screen = LiveTree(io.StringIO(), RunTree(), now=clock, size=lambda: (120, 50))
    feed(screen, start_children(500))
    screen.draw()
    began_at = time.thread_time()
    for _ in range(16):
        clock.now += 1
        screen.draw()
    assert (time.thread_time() - began_at) / 2 < 0.05


def test_a_notice_is_printed_above_the_tree():
    terminal = Terminal()
    clock = Clock(10.0)
    with make_live_tree(terminal, clock) as screen:
        feed(screen, start_children(1))
        screen.draw()
        tree = list(terminal.screen)
        screen.print_above(lambda: terminal.write("A notice.\n"))
        screen.draw()
        assert terminal.screen == ["A notice.", *tree]


def test_background_children_have_rows_while_their_parent_waits() -> None:
    events: list[StoredEvent] = [
        run_started("1"),
        run_started("1.1.1", "1", description="look below"),
        *turn_events("1", TextBlock("I wait.")),
        RunWaiting(at=2, run="1", runs=("1.1.1",)),
    ]
    head, child = draw_tree(events)[:2]
    assert "1 task: 1 running" in head
    assert "look below" in child
