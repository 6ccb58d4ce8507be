"""The interactive prompt in tmux while child runs work: selection, messages, queue, resize."""

import asyncio
import re
from pathlib import Path

import pytest

from mudroom._core.messages import ToolCallBlock
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest

from .conftest import Mudroom, Tmux
from .course import MODEL, make_call

READY = "sandbox"


class ThreeTasks:
    """Script of a root run with three tasks; each child waits for `go` before it answers."""

    about = "看"

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.received: list[str] = []
        self.names = ("alpha", "beta", "gamma")

    async def __call__(self, asked: ServerRequest) -> ServerAnswer:
        last = str(asked.messages[-1])
        if "task" in asked.tools:
            self.received.append(last)
            return (
                "all told"
                if "tool_result" in last
                else [self._call_task(name) for name in self.names]
            )
        name = next(name for name in self.names if f"CHILD {name}" in str(asked.messages[0]))
        if asked.turn == 0:
            return [ToolCallBlock(f"r{asked.number}", "read", {"file_path": "f0.txt"})]
        self.received.append(f"{name}: {last}")
        if "Summarise" not in last and "summary" not in last:
            await self.go.wait()
        return f"{name} saw it"

    def _call_task(self, name: str) -> ToolCallBlock:
        return ToolCallBlock(
            f"t-{name}",
            "task",
            {"prompt": f"CHILD {name} 看一看", "description": f"look at {name} {self.about}"},
        )


@pytest.fixture
def three() -> ThreeTasks:
    return ThreeTasks()


async def start_prompt(
    tmux: Tmux, server: ModelServer, *, columns: int = 80, rows: int = 30
) -> None:
    """Start the program and send the prompt "look"."""
    await tmux.open(server, columns=columns, rows=rows)
    await tmux.say("look")


async def test_one_child_gets_a_message_one_is_stopped_and_one_wraps_up(
    tmux: Tmux, three: ThreeTasks
) -> None:
    async with ModelServer(three) as server:
        await start_prompt(tmux, server)
        await tmux.expect(
            "3 running",
            "├─ general  look at alpha 看",
            "└─ general  look at gamma 看",
            "⎿ read f0.txt",
            "ctrl+t: steer a child",
        )
        await tmux.press("C-t")
        await tmux.expect("└─▸general", "m: message, w: wrap up, x: stop")
        await tmux.press("m")
        await tmux.expect("to general (look at gamma")
        await tmux.say("look at the end too")
        await tmux.expect("Message to general (look at gamma 看): look at the end too")
        await tmux.press("C-t")
        await tmux.expect("└─▸general")
        await tmux.press("Up")
        await tmux.expect("├─▸general  look at beta")
        await tmux.press("x")
        await tmux.expect("Stopped general (look at beta 看)", "2 running, 1 stopped")
        await tmux.press("Up")
        await tmux.expect("├─▸general  look at alpha")
        await tmux.press("w")
        await tmux.expect("Asked general (look at alpha 看) to wrap up", "Stopped, with a summary")
        three.go.set()
        shown = await tmux.expect("all told", "3 children read")
        assert re.search(r"look at beta 看\): CHILD beta 看一看\n +⎿ Stopped", shown)
        assert len(re.findall(r"⎿ Done \(1 tool use", shown)) == 1
    readers = [text for text in three.received if "look at the end too" in text]
    assert readers and all(text.startswith("gamma:") for text in readers)
    reports = three.received[-1]
    assert "gamma saw it" in reports and "CANCELLED" in reports
    assert "alpha saw it" in reports, "the partial report is returned"


async def test_an_open_transcript_follows_the_run_and_its_end_restores_the_screen(
    tmux: Tmux, three: ThreeTasks
) -> None:
    async with ModelServer(three) as server:
        await start_prompt(tmux, server, rows=24)
        before = await tmux.expect("mudroom >> look", "3 running", "⎿ read f0.txt")
        await tmux.press("C-t")
        await tmux.expect("└─▸general")
        await tmux.press("Enter")
        shown = await tmux.expect("general (look at gamma", "281 more lines")
        assert "line of mud" in shown and "mudroom >> look" not in shown
        await tmux.resize(70, 18)
        await tmux.expect("general (look at gamma", "281 more lines")
        await tmux.resize(80, 24)
        await tmux.press("PageUp", "PageUp")
        await tmux.expect("→ read file_path=f0.txt")
        await tmux.press("Escape")
        await tmux.expect("mudroom >> look", "└─▸general", gone="line of mud")
        await tmux.press("Escape")
        after = await tmux.expect("└─ general", gone="▸")
        assert list_lines_above_tree(after) == list_lines_above_tree(before), (
            "the screen is restored"
        )
        await tmux.press("C-t")
        await tmux.press("Enter")
        await tmux.expect("281 more lines")
        three.go.set()
        await tmux.expect("gamma saw it")
        await tmux.press("Escape")
        shown = await tmux.expect("all told", "3 children read", gone="line of mud")
        assert "\n\n\n" not in shown.rstrip("\n") and shown.count("all told") == 1


def list_lines_above_tree(screen: str) -> list[str]:
    """Return the lines above the tree."""
    return screen.partition("●")[0].splitlines()


async def test_a_question_is_shown_over_an_open_transcript(tmux: Tmux, mudroom: Mudroom) -> None:
    may_ask = asyncio.Event()

    async def answer(asked: ServerRequest) -> ServerAnswer:
        if "task" in asked.tools:
            tasks = [
                ToolCallBlock(
                    f"t{n}", "task", {"prompt": f"CHILD {n}", "description": f"write {n}"}
                )
                for n in range(2)
            ]
            return "both done" if "tool_result" in str(asked.messages[-1]) else tasks
        if asked.turn == 0:
            return [ToolCallBlock("r", "read", {"file_path": "f0.txt"})]
        await may_ask.wait()
        return (
            "it is done"
            if asked.turn > 1
            else [ToolCallBlock("w", "write", {"file_path": "new.txt", "content": "x\n"})]
        )

    async with ModelServer(answer) as server:
        await start_prompt(tmux, server)
        await tmux.expect("2 running", "⎿ read f0.txt")
        await tmux.press("C-t")
        await tmux.expect("└─▸general")
        await tmux.press("Enter")
        await tmux.expect("281 more lines")
        may_ask.set()
        await tmux.expect("wants to write new.txt", "+ 1  x", "▸ 1. yes", gone="281 more lines")
        await tmux.press("2")
        await tmux.expect("281 more lines", "it is done")
        await tmux.press("Escape")
        await tmux.expect("both done")
    assert (mudroom.project / "new.txt").read_text() == "x\n"


async def test_lines_are_queued_returned_by_esc_and_sent_at_once_by_ctrl_s(
    tmux: Tmux, three: ThreeTasks
) -> None:
    async with ModelServer(three) as server:
        await start_prompt(tmux, server)
        await tmux.expect("3 running", "ctrl+t: steer a child")
        await tmux.press("Up")
        await tmux.expect("mudroom >> look\nclaude", gone="▸")
        await tmux.press("C-u")
        await tmux.say("later")
        await tmux.expect("queued: later")
        await tmux.press("Escape")
        await tmux.expect("Stopped after ", ">> later", gone="queued:")
        await tmux.press("C-c")
        await tmux.say("go on")
        await tmux.expect("3 running")
        await tmux.say("and then this")
        await tmux.expect("queued: and then this")
        await tmux.say("/cost")
        await tmux.expect("tokens in 8 runs")
        await tmux.type("mind the gap")
        await tmux.press("C-s")
        await tmux.expect("→ mind the gap")
        three.go.set()
        await tmux.expect("mudroom >> and then this", gone="queued:")
        await tmux.expect_scrolled("all told", 2)
    told = [text for text in three.received if "mind the gap" in text]
    assert "alpha saw it" in told[0], "the working model reads it with its next request"


class DetachedTasks(ThreeTasks):
    """A parent that goes on when its calls return, and ends when all three have reported."""

    async def __call__(self, asked: ServerRequest) -> ServerAnswer:
        if "task" not in asked.tools or asked.turn == 0:
            return await super().__call__(asked)
        messages = str(asked.messages)
        count = messages.count(" saw it")
        started = messages.count("Started 1.1.")
        return "all told" if count == len(self.names) else f"{started} started, {count} told"


async def test_ctrl_b_sends_the_selected_child_then_all_to_the_background(tmux: Tmux) -> None:
    three = DetachedTasks()
    async with ModelServer(three) as server:
        await start_prompt(tmux, server, columns=120)
        await tmux.expect("3 running", "⎿ read f0.txt", "ctrl+b: background")
        await tmux.press("C-t")
        await tmux.expect("└─▸general")
        await tmux.press("C-b")
        await tmux.expect("To the background: general (look at gamma 看). The model", "3 running")
        await tmux.press("Escape")
        await tmux.expect("mudroom >>", gone="steer >>")
        await tmux.press("C-b")
        await tmux.expect(
            "To the background: general (look at alpha 看), general (look at beta 看)",
            "3 started, 0 told",
            "3 running",
            gone="ctrl+b: background",
        )
        await tmux.press("C-b")
        await tmux.expect("No call waits for a child or a command.")
        three.go.set()
        await tmux.expect("all told", "3 children read")


async def test_a_command_is_sent_to_the_background_listed_and_stopped(tmux: Tmux) -> None:
    def answer(asked: ServerRequest) -> ServerAnswer:
        if asked.turn == 0:
            return [ToolCallBlock("b", "bash", {"command": "sleep 600"})]
        if asked.turn == 1:
            return [ToolCallBlock("w", "wait", {})]
        return "all told" if "<status>stopped</status>" in str(asked.messages[-1]) else "no end"

    async with ModelServer(answer) as server:
        await start_prompt(tmux, server, columns=120)
        await tmux.expect("ctrl+b: background")
        await tmux.press("C-b")
        await tmux.expect("To the background: a command.", "$ sleep 600 · background")
        await tmux.say("/runs")
        await tmux.expect("1.1.1  $ sleep 600  (running)", "enter opens it")
        await tmux.press("C-t")
        await tmux.expect("▸ $ sleep 600", "enter: output, x: stop")
        await tmux.press("Enter")
        await tmux.expect("The output of command#1.1.1 is in")
        await tmux.press("m")
        await tmux.expect("command#1.1.1 takes no message; x stops it.")
        await tmux.press("x")
        await tmux.expect("Stopped command#1.1.1", "all told")


async def test_ctrl_x_ctrl_k_stops_everything(tmux: Tmux, three: ThreeTasks) -> None:
    async with ModelServer(three) as server:
        await start_prompt(tmux, server)
        await tmux.expect("3 running")
        await tmux.press("C-x", "C-k")
        await tmux.expect("Stopped after ")


async def test_ctrl_c_at_ten_moments_keeps_the_session(tmux: Tmux) -> None:
    async def answer(asked: ServerRequest) -> ServerAnswer:
        last = str(asked.messages[-1])
        if "are you there" in last:
            return "still here"
        if "task" not in asked.tools:
            return (
                [ToolCallBlock(f"b{asked.number}", "bash", {"command": "sleep 5"})]
                if asked.turn == 0
                else Fault(delay=60)
            )
        return (
            [ToolCallBlock(f"t{asked.number}-{n}", "task", {"prompt": "look"}) for n in range(3)]
            if "tool_result" not in last
            else Fault(delay=60)
        )

    async with ModelServer(answer) as server:
        await tmux.start("--permission-mode", "acceptEdits", *MODEL, url=server.url, rows=20)
        await tmux.expect(READY)
        for n in range(10):
            await tmux.say(f"moment {n}")
            await tmux.expect(f">> moment {n}\n")
            await asyncio.sleep(0.04 * n)
            await tmux.press("C-c")
            # "after ...", or "before anything was sent". A child's line begins with "⎿".
            await tmux.expect_scrolled("\nStopped ", n + 1)
        await tmux.say("are you there")
        await tmux.expect("still here")
        # The first of two Ctrl+C would still interrupt the turn if it has not ended.
        await tmux.say("/exit")
        assert await tmux.end() == 0


@pytest.mark.parametrize("columns", [20, 200])
async def test_the_screen_at_any_width(tmux: Tmux, three: ThreeTasks, columns: int) -> None:
    async with ModelServer(three) as server:
        await start_prompt(tmux, server, columns=columns, rows=24)
        shown = await tmux.expect("general", "⎿ read")
        assert "├─" in shown and "└─" in shown and ">>" in shown
        assert (columns < 80) == ("look at alpha 看" not in shown)
        three.go.set()
        await tmux.expect("all told")


SLOWLY = [(80, 30), (60, 30), (41, 28), (120, 30)]
DRAGGED = [
    *((columns, 30) for columns in range(98, 30, -4)),
    *((columns, 28) for columns in range(30, 121, 6)),
    (57, 30),
    (90, 30),
]


@pytest.mark.parametrize(
    ("steps", "pace"), [(SLOWLY, 0.7), (DRAGGED, 0.05)], ids=["slowly", "dragged"]
)
async def test_no_rows_of_another_width_remain(
    tmux: Tmux, three: ThreeTasks, steps: list[tuple[int, int]], pace: float
) -> None:
    three.about = "看这个文件夹里的所有文件和它们的定义 " * 2
    async with ModelServer(three) as server:
        await tmux.open(server, columns=100, rows=30)
        await tmux.say("/help")
        await tmux.expect("? shows the keys")
        await tmux.say("look")
        await tmux.expect("3 running", "context")
        await tmux.expect_scrolled("⎿ read f0.txt", 3)
        for columns, rows in steps:
            await tmux.resize(columns, rows)
            await asyncio.sleep(pace)
        await tmux.expect("3 running", "⎿ read f0.txt", "context")
        shown = ""
        while "context 1%" not in shown:  # hidden until the width settles
            await tmux.wait_until_idle()
            shown = await tmux.scroll()
        assert [
            shown.count(words)
            for words in ("● turn", "look at alpha", "look at gamma", "context 1%")
        ] == [1, 1, 1, 1], shown
        assert shown.count("mudroom >> look") == shown.count("mudroom 0.") == 1, (
            "printed lines stay"
        )
        assert len(re.findall(r"^mudroom >> ?$", shown, re.MULTILINE)) == 1
        three.go.set()
        await tmux.expect("all told")


async def test_what_is_typed_for_a_child_that_has_ended_is_no_prompt(
    tmux: Tmux, three: ThreeTasks
) -> None:
    async with ModelServer(three) as server:
        await start_prompt(tmux, server)
        await tmux.expect("3 running", "⎿ read f0.txt")
        await tmux.press("C-t")
        await tmux.expect("steer >>", "└─▸general", "m: message")
        three.go.set()
        await tmux.expect("all told", "steer >>", "no child works, esc: back")
        count = len(server.requests)
        await tmux.say("mcheck mod2")
        await tmux.expect("mudroom >>\n", gone="steer >>")
        await tmux.say("/cost")
        shown = await tmux.expect("tokens in 4 runs")
        assert "mod2" not in shown and len(server.requests) == count


async def test_a_message_to_a_child_that_ends_meanwhile_is_not_sent(
    tmux: Tmux, three: ThreeTasks
) -> None:
    async with ModelServer(three) as server:
        await start_prompt(tmux, server)
        await tmux.expect("3 running", "⎿ read f0.txt")
        await tmux.type("a draft")
        await tmux.press("C-t", "m")
        await tmux.type("check mod2")
        await tmux.expect("to general (look at gamma", ">> check mod2")
        three.go.set()
        await tmux.expect("all told", ">> check mod2")
        count = len(server.requests)
        await tmux.press("Enter")
        await tmux.expect("has already ended.", "mudroom >> a draft")
        assert len(server.requests) == count


def run_slowly(request: ServerRequest) -> ServerAnswer:
    command = "for n in 1 2 3 4 5 6 7; do echo line $n; done; until test -e go; do sleep 0.05; done"
    return "seen" if request.turn else [make_call("bash", command=command)]


async def test_the_last_lines_of_a_command_are_shown_and_kept(tmux: Tmux, mudroom: Mudroom) -> None:
    async with ModelServer(run_slowly) as server:
        await tmux.open(server, columns=100)
        await tmux.say("run it")
        shown = await tmux.expect("   line 3\n   line 4\n   line 5\n   line 6\n   line 7\n")
        assert "line 2" not in shown
        await tmux.press("C-c")
        await tmux.expect("Partial output until then:", "line 1", "line 7")
        await tmux.say("and now")
        await tmux.expect("seen")
        last = server.requests[-1].body.decode()
        assert "Partial output until then:" in last and "line 6\\nline 7" in last
        await tmux.leave()
    assert (await mudroom("replay", "last")).code == 0
    assert not Path(mudroom.project, "go").exists()


async def test_a_compaction_is_one_line_and_its_notes_are_folded(tmux: Tmux) -> None:
    def answer(request: ServerRequest) -> ServerAnswer:
        is_summary = "the answer" in str(request.messages[-1]) and len(request.messages) > 2
        return "a note of mine" if is_summary else "hello"

    async with ModelServer(answer) as server:
        await tmux.open(server, columns=80)
        await tmux.say("hi")
        await tmux.expect("hello")
        await tmux.say("/compact keep the answer")
        shown = await tmux.expect("Conversation compacted from", "/rewind undoes it.")
        assert shown.count("compacted") == 1 and "a note of mine" not in shown
        await tmux.press("C-o")
        await tmux.expect("a note of mine")
        await tmux.leave()
        await tmux.close()
        await tmux.start(*MODEL, "-c", url=server.url, columns=80)
        shown = await tmux.expect("> hi", "hello", "Conversation compacted from")
        assert "conversation summary" not in shown
