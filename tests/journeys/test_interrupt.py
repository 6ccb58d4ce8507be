"""Ctrl-C while background children work: the prompt is there at once, and nothing is lost."""

from __future__ import annotations

import asyncio

from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from .conftest import Mudroom, Tmux
from .course import MODEL, find_prompt, make_call


class Script:
    """A parent that starts two children, and children that wait for `gate`."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()

    async def __call__(self, request: ServerRequest) -> ServerAnswer:
        if "CHILD" in find_prompt(request):
            await self.gate.wait()
            return "the cellar is dry"
        if request.turn == 0:
            return [
                make_call("task", prompt=f"CHILD {name}", description=name, background=True)
                for name in ("cellar", "attic")
            ]
        texts = str(request.messages)
        return f"I have {texts.count('task-id>') // 2} reports."


async def test_an_interrupt_leaves_the_children_at_work_and_the_prompt_ready(tmux: Tmux) -> None:
    script = Script()
    async with ModelServer(script) as server:
        await tmux.start(*MODEL, url=server.url, columns=110)
        await tmux.expect("claude-s")
        await tmux.say("look around")
        await tmux.expect("I have 0 reports.", "cellar", "attic", "esc: stop")
        await tmux.press("C-c")
        await tmux.expect("Interrupted; 2 children in the background continue", "2 in the backg")
        await tmux.say("and the roof")
        await tmux.expect("I have 0 reports.", "esc: stop", gone="2 in the background, ")
        script.gate.set()
        await tmux.expect("I have 2 reports.", gone="esc: stop")
        await tmux.press("C-d")
        assert await tmux.end() == 0


async def test_a_second_interrupt_stops_all(tmux: Tmux) -> None:
    async with ModelServer(Script()) as server:
        await tmux.start(*MODEL, url=server.url, columns=110)
        await tmux.expect("claude-s")
        await tmux.say("look around")
        await tmux.expect("I have 0 reports.", "esc: stop")
        await tmux.press("Escape")
        await tmux.expect("Interrupted; 2 children")
        await tmux.press("C-c", "C-c")
        await tmux.expect("Stopped 2 children.", gone="in the background, ctrl+c")
        await tmux.press("C-d")
        assert await tmux.end() == 0


async def test_at_the_plain_prompt_a_second_interrupt_stops_all_and_a_third_exits(
    mudroom: Mudroom,
) -> None:
    async with (
        ModelServer(Script()) as server,
        mudroom.start_at_terminal("--screen-reader", *MODEL, url=server.url) as terminal,
    ):
        at = await terminal.expect("mudroom >> ")
        terminal.type("look around\n")
        at = await terminal.expect("I have 0 reports.", since=at)
        terminal.type("\x03")
        at = await terminal.expect("Interrupted; 2 children", since=at)
        at = await terminal.expect("mudroom >> ", since=at)
        terminal.type("\x03")
        at = await terminal.expect("Stopped 2 children.", since=at)
        terminal.type("\x03")
        assert await terminal.end() == 0


async def test_a_session_that_is_left_says_what_is_open_and_continues_it(tmux: Tmux) -> None:
    script = Script()
    async with ModelServer(script) as server:
        await tmux.start(*MODEL, url=server.url, columns=110)
        await tmux.expect("claude-s")
        await tmux.say("look around")
        await tmux.expect("I have 0 reports.", "esc: stop")
        await tmux.press("C-c")
        await tmux.expect("Interrupted; 2 children")
        await tmux.press("C-d")
        assert await tmux.end() == 0
        await tmux.expect("Open: 1.1.1 cellar; 1.1.2 attic.", "mudroom --resume")
        await tmux.close()
        await tmux.start("-c", *MODEL, url=server.url, columns=110)
        await tmux.expect("your next prompt continues it", "2 in the background, ctrl+c")
        script.gate.set()
        await tmux.expect("claude-s", gone="in the background, ctrl+c")
        await tmux.say("what did they say")
        await tmux.expect("I have 2 reports.")
        await tmux.press("C-d")
        assert await tmux.end() == 0
