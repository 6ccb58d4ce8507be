"""Lines, and Ctrl-C, while background children work: the prompt is there, and nothing is lost."""

from __future__ import annotations

import asyncio

from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from .conftest import Mudroom, Tmux
from .course import MODEL, find_prompt, make_call


class Script:
    """A parent that starts two children, and children that wait for `gate`.

    It holds its answer to a prompt with "think" until `may_answer` is set.
    """

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.is_thinking = asyncio.Event()

    async def __call__(self, request: ServerRequest) -> ServerAnswer:
        if "CHILD" in find_prompt(request):
            await self.gate.wait()
            return "the cellar is dry"
        if request.turn == 0:
            return [
                make_call("task", prompt=f"CHILD {name}", description=name, background=True)
                for name in ("cellar", "attic")
            ]
        if "think" in str(request.messages[-1]):
            self.is_thinking.set()
            await self.may_answer.wait()
        texts = str(request.messages)
        roof = "; the roof too" if "and the roof" in texts else ""
        return f"I have {texts.count('task-id>') // 2} reports{roof}."


async def look_around(tmux: Tmux, server: ModelServer) -> None:
    """Start a session whose two children work in the background."""
    await tmux.start(*MODEL, url=server.url, columns=110)
    await tmux.expect("claude-s")
    await tmux.say("look around")
    await tmux.expect("I have 0 reports.", "2 in the background")


async def test_a_line_goes_to_the_model_at_once_while_only_children_work(tmux: Tmux) -> None:
    script = Script()
    async with ModelServer(script) as server:
        await look_around(tmux, server)
        await tmux.expect("2 in the background, ctrl+t: steer a child")
        await tmux.say("/cost")
        await tmux.expect("tokens in 3 runs")
        await tmux.say("and the roof")
        shown = await tmux.expect("I have 0 reports; the roof too.", "2 in the background")
        assert shown.count("and the roof") == 1 and "queued" not in shown
        await tmux.say("/compact")
        await tmux.expect("queued: /compact")
        await tmux.press("Escape")
        await tmux.expect(">> /compact", "2 in the background", gone="queued")
        await tmux.press("C-c")
        script.gate.set()
        await tmux.expect("I have 2 reports; the roof too.", gone="in the background")
        await tmux.press("C-d")
        assert await tmux.end() == 0


async def test_an_interrupt_leaves_the_children_at_work_and_two_more_stop_them(tmux: Tmux) -> None:
    script = Script()
    async with ModelServer(script) as server:
        await look_around(tmux, server)
        await tmux.say("think")
        await script.is_thinking.wait()
        await tmux.expect("esc: stop", gone="in the background")
        await tmux.press("C-c")
        await tmux.expect("Interrupted; 2 children in the background continue", "2 in the backg")
        script.may_answer.set()
        await tmux.say("and the roof")
        await tmux.expect("I have 0 reports; the roof too.", "2 in the background")
        await tmux.press("Escape")
        await tmux.press("C-c", "C-c")
        await tmux.expect("Stopped 2 children.", gone="in the background, ")
        await tmux.press("C-d")
        assert await tmux.end() == 0


async def test_at_the_plain_prompt_a_line_reaches_the_model_and_ctrl_c_stops_the_children(
    mudroom: Mudroom,
) -> None:
    async with (
        ModelServer(Script()) as server,
        mudroom.start_at_terminal("--screen-reader", *MODEL, url=server.url) as terminal,
    ):
        at = await terminal.expect("mudroom >> ")
        terminal.type("look around\n")
        at = await terminal.expect("I have 0 reports.", since=at)
        at = await terminal.expect("mudroom >> ", since=at)
        terminal.type("and the roof\n")
        at = await terminal.expect("I have 0 reports; the roof too.", since=at)
        at = await terminal.expect("mudroom >> ", since=at)
        terminal.type("\x03")
        at = await terminal.expect("Stopped 2 children.", since=at)
        terminal.type("\x04")
        assert await terminal.end() == 0


async def test_a_session_that_is_left_says_what_is_open_and_continues_it(tmux: Tmux) -> None:
    script = Script()
    async with ModelServer(script) as server:
        await look_around(tmux, server)
        await tmux.press("C-d")
        assert await tmux.end() == 0
        await tmux.expect("Open: 1.1.1 cellar; 1.1.2 attic.", "mudroom --resume")
        await tmux.close()
        await tmux.start("-c", *MODEL, url=server.url, columns=110)
        await tmux.expect("your next prompt continues it", "2 in the background, ctrl+t")
        script.gate.set()
        await tmux.expect("claude-s", gone="in the background, ctrl+t")
        await tmux.say("what did they say")
        await tmux.expect("I have 2 reports.")
        await tmux.press("C-d")
        assert await tmux.end() == 0


async def test_exit_leaves_a_model_that_works(tmux: Tmux) -> None:
    script = Script()
    async with ModelServer(script) as server:
        await look_around(tmux, server)
        await tmux.say("think")
        await script.is_thinking.wait()
        await tmux.say("/exit")
        assert await tmux.end() == 0
        await tmux.expect("mudroom --resume")
