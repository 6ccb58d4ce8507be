"""Permission questions at a real terminal: order, difference, answers by key, rules, Esc."""

from __future__ import annotations

import asyncio

import pytest

from mudroom._core.messages import TextBlock, ToolCallBlock
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from .conftest import Mudroom, Tmux

MODEL = ("--model", "anthropic:claude-sonnet-4-5")
EXPLANATION = "I change the first line. 我改第一行。"


async def edit_file(request: ServerRequest) -> ServerAnswer:
    if request.turn:
        return "It is changed."
    arguments = {"file_path": "f0.txt", "old_string": "MUD-0", "new_string": "MUD-零"}
    return [TextBlock(EXPLANATION), ToolCallBlock("e", "edit", arguments)]


async def run_touch(request: ServerRequest) -> ServerAnswer:
    done = "tool_result" in str(request.messages[-1])
    name = f"made{request.number}"
    return "Done." if done else [ToolCallBlock(name, "bash", {"command": f"ls && touch {name}"})]


async def ask(tmux: Tmux, server: ModelServer, *, columns: int = 80, **env: str) -> None:
    await tmux.start(*MODEL, url=server.url, columns=columns, rows=24, env=env)
    await tmux.expect("claude-s")
    await tmux.say("go")


@pytest.mark.parametrize("columns", [40, 80, 200])
async def test_an_edit_is_explained_then_shown_as_a_difference_then_asked(
    tmux: Tmux, mudroom: Mudroom, columns: int
) -> None:
    async with ModelServer(edit_file) as server:
        await ask(tmux, server, columns=columns)
        shown = await tmux.expect("wants to edit f0.txt", "4. no")
        assert (
            shown.index("我改第一行。")
            < shown.index("wants to edit f0.txt")
            < shown.index("- 1  MUD-0")
            < shown.index("+ 1  MUD-零")
            < shown.index("▸ 1. yes")
        )
        colored = await tmux.read_screen(colors=True)
        removed = next(row for row in colored.splitlines() if "- 1  MUD-0" in row)
        added = next(row for row in colored.splitlines() if "+ 1  MUD-零" in row)
        assert "[31m" in removed and "[32m" in added
        await tmux.press("Enter")
        shown = await tmux.expect("? edit f0.txt", "⎿ Allowed once.", "It is changed.")
        assert shown.count("我改第一行。") == 1
    assert (mudroom.project / "f0.txt").read_text().startswith("MUD-零\n")


async def test_a_long_text_in_a_question_scrolls_and_the_answers_stay(tmux: Tmux) -> None:
    async def write_file(request: ServerRequest) -> ServerAnswer:
        content = "".join(f"row {n}\n" for n in range(90))
        arguments = {"file_path": "long.txt", "content": content}
        return "Done." if request.turn else [ToolCallBlock("w", "write", arguments)]

    async with ModelServer(write_file) as server:
        await ask(tmux, server)
        await tmux.expect("+  1  row 0", "of 91: page up, page down", "▸ 1. yes", "4. no")
        for _ in range(9):
            await tmux.press("PageDown")
        await tmux.expect("+ 90  row 89", "Reason: a file is changed", "▸ 1. yes", "4. no")
        await tmux.say("不要这样写")
        await tmux.expect("Denied: 不要这样写\n\nDone.")
        assert "the user said no: 不要这样写" in str(server.requests[-1].messages)


async def test_a_program_is_allowed_for_the_session_then_for_the_folder(
    tmux: Tmux, mudroom: Mudroom
) -> None:
    async with ModelServer(run_touch) as server:
        await ask(tmux, server)
        await tmux.expect(
            "needs approval: touch made1",
            "2. yes, always in this session: touch:*",
            "3. yes, always in this folder: touch:*",
        )
        await tmux.press("2")
        await tmux.expect("Allowed in this session: touch:*", "Done.")
        await tmux.say("again")
        await tmux.expect_scrolled("Done.", 2)
        await tmux.say("/permissions")
        await tmux.expect("allow bash(touch:*) (approved for this session)")
        await tmux.say("/clear")
        await tmux.say("once more")
        await tmux.expect("▸ 1. yes")
        await tmux.press("3")
        await tmux.expect("Allowed in this folder: touch:*")
        await tmux.expect_scrolled("Done.", 3)
        await tmux.press("C-d")
        await tmux.end()
        await tmux.close()
        await ask(tmux, server)
        await tmux.expect("Done.")
        await tmux.say("/permissions")
        await tmux.expect("allow bash(touch:*) (approved for this folder, in approved.json)")
    assert len(list(mudroom.project.glob("made*"))) == 4


async def test_an_approved_rule_is_removed(tmux: Tmux, mudroom: Mudroom) -> None:
    async with ModelServer(run_touch) as server:
        await ask(tmux, server)
        await tmux.expect("3. yes, always in this folder: touch:*")
        await tmux.press("3")
        await tmux.expect("Allowed in this folder: touch:*", "Done.")
        await tmux.say("/permissions remove 7")
        await tmux.expect("no approved rule has the number '7'")
        await tmux.say("/permissions")
        await tmux.expect("1. allow bash(touch:*) (approved for this folder", "remove N removes")
        await tmux.say("/permissions remove 1")
        await tmux.expect("Removed: allow bash(touch:*)")
        await tmux.say("again")
        await tmux.expect("▸ 1. yes")
    assert "touch" not in (mudroom.home / "approved.json").read_text()


@pytest.mark.parametrize(("key", "echo"), [("y", "Allowed once."), ("n", "Denied.")])
async def test_y_and_n_answer_without_enter(tmux: Tmux, key: str, echo: str) -> None:
    async with ModelServer(run_touch) as server:
        await ask(tmux, server)
        await tmux.expect("▸ 1. yes")
        await tmux.type(key)
        await tmux.expect(echo, "Done.", gone="▸ 1. yes")


async def test_typed_text_may_begin_with_y_or_n_or_a_larger_number(tmux: Tmux) -> None:
    async with ModelServer(run_touch) as server:
        await ask(tmux, server)
        await tmux.expect("▸ 1. yes")
        await tmux.say("not now: use mktemp")
        await tmux.expect("Denied: not now: use mktemp", "Done.")
        await tmux.say("go on")
        await tmux.expect("▸ 1. yes")
        await tmux.say("you may not")
        await tmux.expect("Denied: you may not")
        await tmux.say("once more")
        await tmux.expect("▸ 1. yes")
        await tmux.say("9 files are too many")
        await tmux.expect("Denied: 9 files are too many")


@pytest.mark.parametrize("columns", [40, 80, 200])
async def test_children_stay_on_the_screen_while_one_of_them_asks(tmux: Tmux, columns: int) -> None:
    go = asyncio.Event()

    async def answer(request: ServerRequest) -> ServerAnswer:
        if "task" in request.tools:
            names = ("asks", "works")
            tasks = [
                ToolCallBlock(name, "task", {"prompt": f"CHILD {name}", "description": name})
                for name in names
            ]
            return "All done." if request.turn else tasks
        if "CHILD works" in str(request.messages[0]):
            await go.wait()
        elif not request.turn:
            return [ToolCallBlock("t", "bash", {"command": "touch made"})]
        return "Done."

    async with ModelServer(answer) as server:
        await ask(tmux, server, columns=columns)
        shown = await tmux.expect("▸ 1. yes", "general  works")
        tree = shown.index("├─ general  asks"), shown.index("└─ general  works")
        assert max(tree) < shown.index("wants to run a command") < shown.index("touch made")
        await tmux.type("y")
        await tmux.expect("Allowed once.", "general  works", gone="▸ 1. yes")
        go.set()
        await tmux.expect("All done.", "children read")


@pytest.mark.parametrize("key", ["Escape", "C-c"])
async def test_esc_at_a_question_stops_the_run(tmux: Tmux, mudroom: Mudroom, key: str) -> None:
    async with ModelServer(run_touch) as server:
        await ask(tmux, server)
        await tmux.expect("▸ 1. yes", "esc: stop")
        await tmux.press(key)
        await tmux.expect("Stopped.", "Stopped after ", gone="▸ 1. yes")
        assert server.request_count == 1 and not list(mudroom.project.glob("made*"))
        await tmux.say("go on")
        await tmux.expect("▸ 1. yes")
        await tmux.say("n")
        await tmux.expect("Denied.", "Done.")


async def test_a_command_at_a_question_is_no_answer(tmux: Tmux) -> None:
    async with ModelServer(run_touch) as server:
        await ask(tmux, server)
        await tmux.expect("▸ 1. yes")
        await tmux.say("/skills")
        await tmux.expect("Answer this question first, then type /skills again.", "▸ 1. yes")
        await tmux.say("/tmp is the better place")
        await tmux.expect("Denied: /tmp is the better place", "Done.")


async def test_a_question_without_a_drawn_screen_has_the_same_parts(
    tmux: Tmux, mudroom: Mudroom
) -> None:
    async with ModelServer(edit_file) as server:
        await tmux.start(*MODEL, url=server.url, rows=40, env={"TERM": "dumb"})
        await tmux.expect("mudroom >>")
        await tmux.say("go")
        await tmux.expect("wants to edit f0.txt", "+ 1  MUD-零", "4. no")
        await tmux.say("y")
        await tmux.expect("Allowed once.", "It is changed.")
    assert (mudroom.project / "f0.txt").read_text().startswith("MUD-零\n")
