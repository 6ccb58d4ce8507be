"""Vi keys, themes, title, status line and clipboard images at a real terminal."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from ..cli.test_terminal_features import PNG
from .conftest import Mudroom, Tmux
from .course import MODEL, make_call


def write_settings(mudroom: Mudroom, text: str) -> None:
    mudroom.home.mkdir(parents=True, exist_ok=True)
    (mudroom.home / "config.toml").write_text(text)


async def edit_file(request: ServerRequest) -> ServerAnswer:
    if request.turn:
        return "Done with `code`. 完成。"
    arguments = {"file_path": "f0.txt", "old_string": "MUD-0", "new_string": "MUD-零"}
    return [make_call("edit", **arguments)]


async def test_vi_keys_edit_the_line_and_esc_and_y_still_work(tmux: Tmux, mudroom: Mudroom) -> None:
    go = asyncio.Event()

    async def answer(request: ServerRequest) -> ServerAnswer:
        last = str(request.messages[-1])
        if "wait" in last:
            await go.wait()
        return [make_call("write", file_path="a.txt", content="x")] if "ask" in last else "answered"

    async with ModelServer(answer) as server:
        await tmux.open(server)
        await tmux.say("/vim")
        await tmux.expect("The keys of vi are on", "Saved as vi_keys")
        await tmux.type("one two three")
        await tmux.press("Escape")
        await tmux.expect("vi: normal mode")
        await tmux.type("0dw$a!")
        await tmux.expect("mudroom >> two three!", gone="vi: normal mode")
        await tmux.press("Escape")
        await tmux.expect("vi: normal mode")
        await tmux.press("Enter")
        await tmux.expect("answered", gone="vi: normal mode")
        assert "two three!" in str(server.requests[-1].messages[-1])
        await tmux.say("wait")
        await tmux.expect("esc: stop")
        await tmux.press("Escape")
        await tmux.expect("Stopped after ")
        go.set()
        await tmux.say("ask")
        await tmux.expect("▸ 1. yes")
        await tmux.type("y")
        await tmux.expect("Allowed once.", gone="esc: stop")
        await tmux.say("/vim")
        await tmux.expect("The keys of vi are off.")
    assert "vi_keys" not in (mudroom.home / "config.toml").read_text()


async def test_a_theme_changes_the_colors_of_the_screen(tmux: Tmux, mudroom: Mudroom) -> None:
    async with ModelServer(edit_file) as server:
        await tmux.open(server)
        await tmux.say("/theme")
        await tmux.expect("▸ 1. auto", "3. light")
        await tmux.press("3")
        await tmux.expect("Saved as theme in")
        await tmux.say("go")
        await tmux.expect("+ 1  MUD-零", "▸ 1. yes")
        question = await tmux.expect("+ 1  MUD-零", colors=True)
        added = next(row for row in question.splitlines() if "+ 1  MUD-零" in row)
        assert "38;5;22m" in added and "[32m" not in question
        await tmux.type("y")
        answered = await tmux.expect("完成。", colors=True)
        assert "38;5;23m" in answered and "[36m" not in answered.partition("? edit")[2]
        await tmux.say("/theme pink")
        await tmux.expect("no such theme: pink")
    assert (mudroom.home / "config.toml").read_text() == 'theme = "light"\n'


@pytest.mark.parametrize(("color", "expected"), [("ffff", "38;5;23"), ("0000", "36")])
async def test_the_terminal_is_asked_for_its_background(
    mudroom: Mudroom, color: str, expected: str
) -> None:
    async with ModelServer(lambda asked: "an `answer`") as server:
        env = {"TERM": "xterm-256color"}
        async with mudroom.start_at_terminal(*MODEL, url=server.url, env=env) as terminal:
            await terminal.expect("\x1b]11;?")
            terminal.type(f"\x1b]11;rgb:{color}/{color}/{color}\x1b\\")
            await terminal.expect("sandbox")
            terminal.type("go\r")
            await terminal.expect(f"{expected}manswer")
            assert "rgb:" not in terminal.seen
            terminal.type("\x04")
            assert await terminal.end() == 0


async def test_the_title_shows_the_folder_and_the_state(tmux: Tmux) -> None:
    async def read_title() -> str:
        return (await tmux.run_tmux("display-message", "-p", "#{pane_title}")).strip()

    async def expect_title(title: str) -> None:
        for _ in range(2000):
            if await read_title() == title:
                return
            await asyncio.sleep(0.03)
        raise AssertionError(f"{title} is not the title, but {await read_title()}")

    async with ModelServer(edit_file) as server:
        await tmux.start(*MODEL, url=server.url)
        before = await read_title()
        await expect_title("mudroom: project")
        await tmux.say("go")
        await expect_title("mudroom: project (question)")
        await tmux.type("y")
        await expect_title("mudroom: project")
        await tmux.press("C-d")
        await tmux.end()
        await expect_title(before)


@pytest.mark.parametrize("columns", [40, 200])
async def test_a_status_line_of_the_user_and_the_hint_beside_it(
    tmux: Tmux, mudroom: Mudroom, columns: int
) -> None:
    program = mudroom.project / "status.sh"
    program.write_text(
        "case $(cat) in\n"
        "*'\"used_tokens\":0,'*) echo 我的 claude new;;\n"
        '*\'"display_name":"claude-sonnet-4-5"\'*) echo 我的 claude used;;\n'
        "esac\n"
    )
    write_settings(mudroom, 'status_line = "sh status.sh"\n')
    async with ModelServer(edit_file) as server:
        await tmux.start(*MODEL, url=server.url, columns=columns)
        await tmux.expect("我的 claude new")
        await tmux.say("go")
        used = "我的" if columns < 80 else "我的 claude used"
        await tmux.expect(used, "esc: stop", "▸ 1. yes")


async def test_an_image_of_the_clipboard_is_sent(tmux: Tmux, mudroom: Mudroom) -> None:
    programs = mudroom.home.with_name("programs")
    programs.mkdir()
    (programs / "image.png").write_bytes(PNG)
    xclip = programs / "xclip"
    xclip.write_text(f"#!/bin/sh\ncat '{programs}/image.png'\n")
    xclip.chmod(0o755)
    env = {"DISPLAY": ":0", "PATH": f"{programs}:{os.environ['PATH']}"}
    async with ModelServer(lambda asked: "a dot") as server:
        await tmux.open(server, env=env, columns=200)
        await tmux.press("C-v")
        await tmux.expect(".png")
        await tmux.say("what is it?")
        await tmux.expect("image attached, 1x1 pixels", "a dot")
        assert b'"image/png"' in server.requests[-1].body
        xclip.unlink()
        await tmux.press("C-v")
        await tmux.expect("cannot be read. Install xclip.")
        (saved,) = Path(mudroom.home, "pasted").iterdir()
        assert saved.read_bytes() == PNG


async def test_only_long_work_notifies_of_a_question_and_of_its_end(mudroom: Mudroom) -> None:
    for seconds, is_long in (("0.000001", True), ("3600", False)):
        write_settings(mudroom, f'notify_after = {seconds}\nnotifications = "osc9"\n')
        async with (
            ModelServer(edit_file) as server,
            mudroom.start_at_terminal(*MODEL, url=server.url) as terminal,
        ):
            await terminal.expect("sandbox")
            terminal.type("go\r")
            await terminal.expect("1. yes")
            began = len(terminal.seen)
            terminal.type("n")
            # The title may come before the last lines of the answer.
            await terminal.expect("]2;mudroom: project\x07", since=began)
            await terminal.expect("完成。", since=began)
            if is_long:
                await terminal.expect("\x1b]9;mudroom asks: ")
                await terminal.expect("\x1b]9;mudroom is done in ")
            assert ("\x1b]9;" in terminal.seen) is is_long
