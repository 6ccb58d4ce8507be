"""At a terminal: a prompt to type at, a live tree, Ctrl-C that keeps the session, twenty columns."""

import asyncio
import re
from typing import Any

from mudroom._core.messages import Call
from mudroom.testing.server import Asked, Fault, ModelServer, Said

MODEL = ("--model", "anthropic:claude-sonnet-4-5")
CTRL_C, CTRL_D, ENTER, UP = "\x03", "\x04", "\r", "\x1b[A"


def delegating(asked: Asked) -> Said:
    if "task" in asked.tools:
        task = Call(f"t{asked.n}", "task", {"prompt": "CHILD look", "description": "look around"})
        return "answer" if asked.turn % 2 else [task]
    return "seen" if asked.turn else [Call("r", "read", {"file_path": "f0.txt"})]


async def test_a_conversation_with_its_commands(mudroom: Any) -> None:
    async with ModelServer(delegating) as server, mudroom.at_terminal(*MODEL, url=server.url) as screen:
        at = await screen.expect("mudroom >>")
        screen.type("/help" + ENTER)
        at = await screen.expect("/clear", since=at)
        at = await screen.expect("mudroom >>", since=at)
        screen.type("look around" + ENTER)
        at = await screen.expect("answer", since=at)
        at = await screen.expect("mudroom >>", since=at)
        screen.type("/runs" + ENTER)
        at = await screen.expect("1.1.1  general  look around  (done, 1 tool use", since=at)
        screen.type("/cost" + ENTER)
        at = await screen.expect("1 child read", since=at)
        screen.type("/cots" + ENTER)
        at = await screen.expect("Did you mean /cost?", since=at)
        screen.type("and again" + ENTER)
        at = await screen.expect("answer", since=at)
        assert "look around" in server.requests[-1].body.decode(), "the conversation goes on"
        at = await screen.expect("mudroom >>", since=at)
        screen.type("/clear" + ENTER)
        at = await screen.expect("mudroom >>", since=at)
        screen.type("afresh" + ENTER)
        at = await screen.expect("answer", since=at)
        assert "and again" not in server.requests[-1].body.decode(), "a new session knows nothing of the old one"
        at = await screen.expect("mudroom >>", since=at)
        screen.type("q" + ENTER)
        assert await screen.end() == 0


async def test_ctrl_c_stops_the_run_and_keeps_the_session(mudroom: Any) -> None:
    stuck = asyncio.Event()

    async def answer(asked: Asked) -> Said:
        if "hang" in str(asked.messages[-1]):
            stuck.set()
            return Fault(delay=60)
        return "still here"

    async with ModelServer(answer) as server, mudroom.at_terminal(*MODEL, url=server.url) as screen:
        await screen.expect("mudroom >>")
        screen.type("hang" + ENTER)
        await stuck.wait()
        at = len(screen.seen)
        screen.type(CTRL_C)
        at = await screen.expect("CANCELLED", since=at)
        at = await screen.expect("mudroom >>", since=at)
        screen.type("are you there" + ENTER)
        at = await screen.expect("still here", since=at)
        at = await screen.expect("mudroom >>", since=at)
        screen.type(CTRL_C)
        at = await screen.expect("Ctrl-D", since=at)
        at = await screen.expect("mudroom >>", since=at)
        screen.type(CTRL_D)
        assert await screen.end() == 0


async def test_history_is_kept_for_each_folder(mudroom: Any) -> None:
    async with ModelServer(lambda asked: "fine") as server:
        async with mudroom.at_terminal(*MODEL, url=server.url) as screen:
            at = await screen.expect("mudroom >>")
            screen.type("a memorable prompt" + ENTER)
            at = await screen.expect("fine", since=at)
            await screen.expect("mudroom >>", since=at)
            screen.type("exit" + ENTER)
            await screen.end()
        async with mudroom.at_terminal(*MODEL, url=server.url) as screen:
            at = await screen.expect("mudroom >>")
            screen.type(UP)
            await screen.expect("exit", since=at)
            screen.type(UP)
            await screen.expect("a memorable prompt", since=at)
            screen.type(CTRL_C + CTRL_D)
            await screen.end()
    (history,) = (mudroom.home / "history").iterdir()
    assert history.stat().st_mode & 0o777 == 0o600


async def test_a_prompt_on_the_command_line_is_the_first(mudroom: Any) -> None:
    async with (
        ModelServer(lambda asked: "first one") as server,
        mudroom.at_terminal("begin", *MODEL, url=server.url) as screen,
    ):
        at = await screen.expect("first one")
        await screen.expect("mudroom >>", since=at)
        screen.type(CTRL_D)
        assert await screen.end() == 0


async def test_twenty_columns_are_enough_for_the_live_tree(mudroom: Any) -> None:
    async with ModelServer(delegating, delay=0.3) as server:
        async with mudroom.at_terminal("-p", "a rather long prompt", *MODEL, url=server.url, columns=20) as screen:
            assert await screen.end() == 0
    drawn = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", screen.seen)
    assert "└─ general" in drawn and "answer" in drawn and "1 child read" in drawn
    tree = drawn.partition("answer")[0].splitlines()
    assert tree and max(len(line.rstrip("\r")) for line in tree) <= 20
