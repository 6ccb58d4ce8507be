"""Streaming at a real terminal: text stays where it appears; thinking, groups, moving figures."""

from __future__ import annotations

import asyncio
import re

import pytest

from mudroom._core.messages import TextBlock, ThinkingBlock, ToolCallBlock
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest

from .conftest import Tmux

MODEL = ("--model", "anthropic:claude-sonnet-4-5", "--permission-mode", "acceptEdits")
ITEMS = "\n".join(f"- item {n} **bold** 项目" for n in range(14))
ROWS = "\n".join(f"| row {n} | 值 {n} |" for n in range(8))
ANSWER = f"The list 列表:\n\n{ITEMS}\n\n| name | value |\n|---|---|\n{ROWS}\n\nThe end."


class Script:
    """One turn of thinking and calls, then a long answer whose second half waits for `go`."""

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def __call__(self, request: ServerRequest) -> ServerAnswer:
        if not request.turn:
            return [
                ThinkingBlock("I look at the files. 我先看文件。\nThen I decide.", signature="s"),
                TextBlock("I look first."),
                *(ToolCallBlock(f"g{n}", "glob", {"pattern": f"*.{n}"}) for n in range(32)),
                ToolCallBlock("b", "bash", {"command": "seq 100 140; echo '7 failed, 3 passed'"}),
            ]
        if request.turn == 1:
            await self.go.wait()
            return [ToolCallBlock("r", "read", {"file_path": "f0.txt"})]
        return Fault(ANSWER, chunk_size=60, pause=0.02)


async def test_an_answer_appears_where_it_stays(tmux: Tmux) -> None:
    script = Script()
    async with ModelServer(script) as server:
        await tmux.open(server, columns=40, rows=40)
        await tmux.say("look")
        shown = await tmux.expect("7 failed, 3 passed", "turn 2", "esc: stop")
        assert "Thought (2 lines, ctrl+o): I look" in shown
        assert shown.index("Thought") < shown.index("I look first.")
        assert "32 calls: glob 32" in shown and shown.count("glob") == 1
        assert "more lines (ctrl+o)" in shown
        spinners = {re.findall("([⠀-⣿]) esc: stop", await tmux.read_screen())[0]}
        async with asyncio.timeout(60):
            while len(spinners) < 3:
                spinners |= set(re.findall("([⠀-⣿]) esc: stop", await tmux.read_screen()))
        script.go.set()
        shown = await tmux.expect("item 5 bold 项目")
        assert "The list 列表:" in shown and "**" not in shown.partition("item 5")[0]
        shown = await tmux.expect("item 13 bold 项目", "row 3")
        assert all(f"item {n} bold 项目" in shown for n in range(14)) and "|" not in shown
        await tmux.expect("The end.", gone="esc: stop")
        scrolled = await tmux.scroll()
        assert all(scrolled.count(f"item {n} bold") == 1 for n in range(14))
        assert all(len(re.findall(f"row {n} +值 {n}", scrolled)) == 1 for n in range(8))


async def test_a_table_higher_than_the_screen_is_printed_once(tmux: Tmux) -> None:
    table = "| Name | Value |\n|---|---|\n" + "".join(f"| row {n} | {n} |\n" for n in range(60))

    async def answer(request: ServerRequest) -> ServerAnswer:
        return Fault([TextBlock(f"The table.\n\n{table}\nThe end.")], chunk_size=40, pause=0.005)

    async with ModelServer(answer) as server:
        await tmux.start(*MODEL, "-p", "list", url=server.url, columns=80, rows=20)
        await tmux.expect("The end.")
        assert await tmux.end() == 0
    scrolled = await tmux.scroll()
    assert [len(re.findall(rf"row {n} ", scrolled)) for n in range(60)] == [1] * 60


@pytest.mark.parametrize("background", ["light", "dark"])
async def test_no_color_hides_text_on_a_light_or_a_dark_terminal(
    tmux: Tmux, background: str
) -> None:
    async def answer(request: ServerRequest) -> ServerAnswer:
        return "See `code` and **bold**:\n\n```python\nx = 1\n```\n\n- 项目"

    async with ModelServer(answer) as server:
        color = {"light": "0;15", "dark": "15;0"}[background]
        await tmux.open(server, rows=30, env={"COLORFGBG": color})
        await tmux.say("look")
        await tmux.expect("See code and bold:", "x = 1", "项目")
        colored = await tmux.read_screen(colors=True)
        codes = {
            code for group in re.findall(r"\x1b\[([\d;]*)m", colored) for code in group.split(";")
        }
        fixed = {"30", "37", "97", "40", "47", "100", "107"}  # black or white, text or background
        assert not codes & fixed and "38;2" not in colored and "48;" not in colored
