"""At a terminal while children run: seen live, spoken to one by one, queued behind, interrupted; the real program in a real tmux."""

import asyncio
import re
from typing import Any

import pytest

from mudroom._core.messages import ToolCallBlock
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest

MODEL = ("--model", "anthropic:claude-sonnet-4-5")
READY = "sandbox"


class Three:
    """A script: a root that hands out three tasks `about` something, each child waiting for `go` before it answers."""

    about = "看"

    def __init__(self) -> None:
        self.go, self.heard = asyncio.Event(), list[str]()
        self.names = ("alpha", "beta", "gamma")

    async def __call__(self, asked: ServerRequest) -> ServerAnswer:
        last = str(asked.messages[-1])
        if "task" in asked.tools:
            self.heard.append(last)
            return (
                "all told" if "tool_result" in last else [self._task(name) for name in self.names]
            )
        name = next(name for name in self.names if f"CHILD {name}" in str(asked.messages[0]))
        if asked.turn == 0:
            return [ToolCallBlock(f"r{asked.number}", "read", {"file_path": "f0.txt"})]
        self.heard.append(f"{name}: {last}")
        if "Summarise" not in last and "summary" not in last:
            await self.go.wait()
        return f"{name} saw it"

    def _task(self, name: str) -> ToolCallBlock:
        return ToolCallBlock(
            f"t-{name}",
            "task",
            {"prompt": f"CHILD {name} 看一看", "description": f"look at {name} {self.about}"},
        )


@pytest.fixture
def three() -> Three:
    return Three()


async def started(tmux: Any, server: ModelServer, prompt: str = "look", **size: int) -> None:
    await tmux.start(*MODEL, url=server.url, **size)
    await tmux.expect("claude-s")
    await tmux.say(prompt)


async def test_one_of_three_is_stopped_and_the_other_two_report(tmux: Any, three: Three) -> None:
    async with ModelServer(three) as server:
        await started(tmux, server)
        await tmux.expect(
            "3 running",
            "├─ general  look at alpha 看",
            "└─ general  look at gamma 看",
            "⎿ read f0.txt",
        )
        await tmux.press("Up")
        await tmux.expect("└─▸general", "m: message, w: wrap up, x: stop")
        await tmux.press("Up")
        await tmux.expect("├─▸general  look at beta")
        await tmux.press("x")
        await tmux.expect("Stopped general#1.1.2", "2 running, 1 stopped")
        three.go.set()
        shown = await tmux.expect("all told", "3 children read")
        assert re.search(r"look at beta 看\): CHILD beta 看一看\n +⎿ CANCELLED", shown)
        assert len(re.findall(r"⎿ Done \(1 tool use", shown)) == 2
    assert (
        "alpha saw it" in three.heard[-1]
        and "gamma saw it" in three.heard[-1]
        and "CANCELLED" in three.heard[-1]
    )


async def test_a_word_to_one_child_reaches_it_and_no_other(tmux: Any, three: Three) -> None:
    async with ModelServer(three) as server:
        await started(tmux, server)
        await tmux.expect("3 running", "⎿ read f0.txt")
        await tmux.press("Up")
        await tmux.expect("└─▸general")
        await tmux.press("m")
        await tmux.expect("to general >>")
        await tmux.say("look at the end too")
        await tmux.expect("Message to general#1.1.3: look at the end too")
        three.go.set()
        await tmux.expect("all told")
    told = [heard for heard in three.heard if "look at the end too" in heard]
    assert told and all(heard.startswith("gamma:") for heard in told)


async def test_one_child_is_asked_to_wrap_up_and_says_what_it_has(tmux: Any, three: Three) -> None:
    async with ModelServer(three) as server:
        await started(tmux, server)
        await tmux.expect("3 running", "⎿ read f0.txt")
        await tmux.press("Up")
        await tmux.expect("└─▸general")
        await tmux.press("w")
        await tmux.expect("Asked general#1.1.3 to wrap up", "CANCELLED, recovered")
        three.go.set()
        await tmux.expect("all told")
    assert "gamma saw it" in three.heard[-1], "its partial report came back"


async def test_a_transcript_is_followed_live(tmux: Any, three: Three) -> None:
    async with ModelServer(three) as server:
        await started(tmux, server)
        await tmux.expect("3 running", "⎿ read f0.txt")
        await tmux.press("Up")
        await tmux.expect("└─▸general")
        await tmux.press("Enter")
        await tmux.expect(
            "general#1.1.3  look at gamma", "line of mud", "281 more lines", gone="look at alpha"
        )
        await tmux.press("PageUp", "PageUp")
        await tmux.expect("→ read file_path=f0.txt")
        three.go.set()
        await tmux.press("PageDown", "PageDown")
        await tmux.expect("gamma saw it", "281 more lines")
        await tmux.press("Escape")
        await tmux.expect("mudroom >>", gone="line of mud")
        await tmux.expect_scrolled("all told", 1)


async def test_a_transcript_takes_the_screen_and_gives_it_back_as_it_was(
    tmux: Any, three: Three
) -> None:
    async with ModelServer(three) as server:
        await started(tmux, server, rows=24)
        before = await tmux.expect("3 running", "⎿ read f0.txt")
        await tmux.press("Up")
        await tmux.expect("└─▸general")
        await tmux.press("Enter")
        shown = await tmux.expect("general#1.1.3  look at gamma", "281 more lines")
        assert "line of mud" in shown and "mudroom >> look" not in shown
        await tmux.resize(70, 18)
        await tmux.expect("general#1.1.3  look at gamma", "281 more lines")
        await tmux.resize(80, 24)
        await tmux.press("PageUp")
        await tmux.expect("line of mud")
        await tmux.press("Escape")
        await tmux.expect("mudroom >> look", "└─▸general", gone="line of mud")
        await tmux.press("Escape")
        after = await tmux.expect("└─ general", gone="▸")
        assert above(after) == above(before), "nothing is left behind, nothing is lost"
        await tmux.press("Up")
        await tmux.press("Enter")
        await tmux.expect("281 more lines")
        three.go.set()
        await tmux.expect("gamma saw it")
        await tmux.press("Escape")
        shown = await tmux.expect("all told", "3 children read", gone="line of mud")
        assert "\n\n\n" not in shown.rstrip("\n") and shown.count("all told") == 1


def above(screen: str) -> list[str]:
    """What stands above the tree."""
    return screen.partition("●")[0].splitlines()


async def test_a_question_is_seen_though_a_transcript_is_open(tmux: Any, mudroom: Any) -> None:
    asked_for = asyncio.Event()

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
        await asked_for.wait()
        return (
            "it is done"
            if asked.turn > 1
            else [ToolCallBlock("w", "write", {"file_path": "new.txt", "content": "x\n"})]
        )

    async with ModelServer(answer) as server:
        await started(tmux, server)
        await tmux.expect("2 running", "⎿ read f0.txt")
        await tmux.press("Up")
        await tmux.expect("└─▸general")
        await tmux.press("Enter")
        await tmux.expect("281 more lines")
        asked_for.set()
        await tmux.expect("asks for write", "file_path: new.txt", "▸ 1. yes", gone="281 more lines")
        await tmux.press("2")
        await tmux.expect("281 more lines", "it is done")
        await tmux.press("Escape")
        await tmux.expect("both done")
    assert (mudroom.project / "new.txt").read_text() == "x\n"


async def test_what_is_typed_meanwhile_waits_and_is_shown(tmux: Any, three: Three) -> None:
    async with ModelServer(three) as server:
        await started(tmux, server)
        await tmux.expect("3 running")
        await tmux.say("and then this")
        await tmux.expect("queued: and then this")
        await tmux.say("/cost")
        await tmux.expect("tokens in 4 runs")
        three.go.set()
        await tmux.expect("mudroom >> and then this", gone="queued:")
        await tmux.expect("6 children read")


async def test_a_word_to_the_model_that_works_does_not_wait(tmux: Any, three: Three) -> None:
    async with ModelServer(three) as server:
        await started(tmux, server)
        await tmux.expect("3 running")
        await tmux.press("C-b")
        await tmux.expect("The run continues while you type")
        await tmux.type("mind the gap")
        await tmux.press("C-s")
        await tmux.expect("→ mind the gap")
        three.go.set()
        await tmux.expect("all told")
    assert "mind the gap" in three.heard[-1] and "alpha saw it" in three.heard[-1]


async def test_esc_stops_all_keeps_what_there_is_and_gives_the_queue_back(
    tmux: Any, three: Three
) -> None:
    async with ModelServer(three) as server:
        await started(tmux, server)
        await tmux.expect("3 running")
        await tmux.say("later")
        await tmux.expect("queued: later")
        await tmux.press("Escape")
        await tmux.expect("the run ended with CANCELLED", ">> later", gone="queued:")
        await tmux.press("C-c")
        three.go.set()
        await tmux.say("go on")
        await tmux.expect("all told")
        assert "CHILD alpha" in server.requests[-1].body.decode(), (
            "the conversation knows what was begun"
        )


async def test_ctrl_x_ctrl_k_stops_all(tmux: Any, three: Three) -> None:
    async with ModelServer(three) as server:
        await started(tmux, server)
        await tmux.expect("3 running")
        await tmux.press("C-x", "C-k")
        await tmux.expect("the run ended with CANCELLED")


async def test_ctrl_c_at_twenty_moments_keeps_the_session(tmux: Any) -> None:
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
        for n in range(20):
            await tmux.say(f"moment {n}")
            await tmux.expect(f">> moment {n}\n")
            await asyncio.sleep(0.02 * n)
            await tmux.press("C-c")
            await tmux.expect_scrolled("CANCELLED after", n + 1)
        await tmux.say("are you there")
        await tmux.expect("still here")
        await tmux.press("C-c", "C-c")
        assert await tmux.end() == 0


@pytest.mark.parametrize("columns", [20, 80, 200])
async def test_the_screen_at_any_width(tmux: Any, three: Three, columns: int) -> None:
    async with ModelServer(three) as server:
        await started(tmux, server, columns=columns, rows=24)
        shown = await tmux.expect("general", "⎿ read")
        assert "├─" in shown and "└─" in shown and ">>" in shown
        assert (columns < 80) == ("look at alpha 看" not in shown)
        three.go.set()
        await tmux.expect("all told")


async def test_a_resize_leaves_one_prompt_and_one_tree(tmux: Any, three: Three) -> None:
    async with ModelServer(three) as server:
        await started(tmux, server, columns=100, rows=30)
        await tmux.expect("3 running", "⎿ read f0.txt")
        for columns, rows in ((60, 20), (120, 30), (40, 24), (100, 30)):
            await tmux.resize(columns, rows)
            await asyncio.sleep(0.4)
        shown = await tmux.expect("3 running", "⎿ read f0.txt", "esc: stop")
        assert shown.count("3 running") == 1 and shown.count("look at gamma") == 1
        assert len(re.findall(r"^mudroom >>$", shown, re.MULTILINE)) == 1
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
async def test_nothing_stays_of_what_was_drawn_at_another_width(
    tmux: Any, three: Three, steps: list[tuple[int, int]], pace: float
) -> None:
    three.about = "看这个文件夹里的所有文件和它们的定义 " * 2
    async with ModelServer(three) as server:
        await tmux.start(*MODEL, url=server.url, columns=100, rows=30)
        await tmux.expect("claude-s")
        await tmux.say("/help")
        await tmux.expect("? shows the keys")
        await tmux.say("look")
        await tmux.expect("3 running", "⎿ read f0.txt", "context")
        for columns, rows in steps:
            await tmux.resize(columns, rows)
            await asyncio.sleep(pace)
        await tmux.expect("3 running", "⎿ read f0.txt", "context")
        await asyncio.sleep(0.1)
        shown = await tmux.scroll()
        assert [
            shown.count(words)
            for words in ("● turn", "look at alpha", "look at gamma", "context 1%")
        ] == [1, 1, 1, 1], shown
        assert shown.count("mudroom >> look") == shown.count("mudroom 0.") == 1, (
            "what is printed stays"
        )
        assert len(re.findall(r"^mudroom >> ?$", shown, re.MULTILINE)) == 1
        three.go.set()
        await tmux.expect("all told")


async def test_a_question_names_the_child_and_keeps_clear_of_the_tree(
    tmux: Any, mudroom: Any
) -> None:
    async def answer(asked: ServerRequest) -> ServerAnswer:
        last = str(asked.messages[-1])
        if "task" in asked.tools:
            tasks = [
                ToolCallBlock(
                    f"t{n}", "task", {"prompt": f"CHILD {n}", "description": f"write {n}"}
                )
                for n in range(2)
            ]
            return "both asked" if "tool_result" in last else tasks
        return (
            "it is done"
            if asked.turn
            else [ToolCallBlock("w", "write", {"file_path": "new.txt", "content": "x\n"})]
        )

    async with ModelServer(answer) as server:
        await started(tmux, server)
        shown = await tmux.expect(
            "asks for write", "file_path: new.txt", "Allow general to do this?", "▸ 1. yes", "3. no"
        )
        assert "├─" not in shown, "no tree under the question"
        await tmux.press("2")
        await tmux.expect("both asked")
    assert (mudroom.project / "new.txt").read_text() == "x\n"
