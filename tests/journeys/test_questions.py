"""Permission questions: at a real terminal, at a plain one, and without a user to ask."""

from __future__ import annotations

import asyncio
import json
import os

from mudroom._adapters.sandboxes.detect import find_bwrap, run_probes
from mudroom._core.messages import TextBlock, ToolCallBlock
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from .conftest import Mudroom, Tmux
from .course import MODEL, find_prompt, make_call

DETECTED = run_probes(find_bwrap(os.environ, "/nonexistent"))


async def edit_file(request: ServerRequest) -> ServerAnswer:
    if request.turn:
        return "It is changed."
    arguments = {"file_path": "f0.txt", "old_string": "MUD-0", "new_string": "MUD-零"}
    return [TextBlock("I change the first line. 我改第一行。"), make_call("edit", **arguments)]


async def run_touch(request: ServerRequest) -> ServerAnswer:
    if "tool_result" in str(request.messages[-1]):
        return "Done."
    return [make_call("bash", command=f"ls && touch made{request.number}")]


async def ask(tmux: Tmux, server: ModelServer, *, columns: int = 80, **env: str) -> None:
    await tmux.open(server, columns=columns, rows=24, env=env)
    await tmux.say("go")


async def test_an_edit_is_explained_then_shown_as_a_difference_then_asked(
    tmux: Tmux, mudroom: Mudroom
) -> None:
    async with ModelServer(edit_file) as server:
        await ask(tmux, server, columns=40)
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
        return "Done." if request.turn else [make_call("write", file_path="a.txt", content=content)]

    async with ModelServer(write_file) as server:
        await ask(tmux, server)
        await tmux.expect("+  1  row 0", "of 91: page up, page down", "▸ 1. yes", "4. no")
        for _ in range(9):
            await tmux.press("PageDown")
        await tmux.expect("+ 90  row 89", "Reason: a file is changed", "▸ 1. yes", "4. no")
        await tmux.say("不要这样写")
        await tmux.expect("Denied: 不要这样写\n\nDone.")
        assert "the user said no: 不要这样写" in str(server.requests[-1].messages)


async def test_a_program_is_allowed_for_the_session_then_for_the_folder_then_no_more(
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
        assert len(list(mudroom.project.glob("made*"))) == 4
        await tmux.say("/permissions remove 7")
        await tmux.expect("no approved rule has the number '7'")
        await tmux.say("/permissions")
        await tmux.expect("1. allow bash(touch:*) (approved for this folder", "remove N removes")
        await tmux.say("/permissions remove 1")
        await tmux.expect("Removed: allow bash(touch:*)")
        await tmux.say("again")
        await tmux.expect("▸ 1. yes")
    assert "touch" not in (mudroom.home / "approved.json").read_text()


async def test_a_key_answers_at_once_and_typed_text_is_a_reason(
    tmux: Tmux, mudroom: Mudroom
) -> None:
    async with ModelServer(run_touch) as server:
        await ask(tmux, server)
        await tmux.expect("▸ 1. yes")
        yes, no = "Allowed once.", "Denied."
        for count, (keys, echo) in enumerate([("y", yes), ("n", no), ("Yes\r", yes), ("no\r", no)]):
            await tmux.type(keys)
            await tmux.expect_scrolled(echo, 1 + count // 2)
            await tmux.expect_scrolled("Done.", 1 + count)
            assert (mudroom.project / f"made{2 * count + 1}").exists() is (echo == yes), keys
            await tmux.say("go on")
            await tmux.expect("▸ 1. yes")
        await tmux.say("/skills")
        await tmux.expect("Answer this question first, then type /skills again.", "▸ 1. yes")
        for reason in (
            "not now: use mktemp",
            "you may not",
            "9 files are too many",
            "/tmp is the better place",
        ):
            await tmux.say(reason)
            await tmux.expect(f"Denied: {reason}", gone="▸ 1. yes")
            await tmux.say("go on")
            await tmux.expect("▸ 1. yes")
        assert "Denied: go on" not in await tmux.scroll(), "a part of an answer was a prompt"


async def test_esc_or_ctrl_c_at_a_question_stops_the_run(tmux: Tmux, mudroom: Mudroom) -> None:
    async with ModelServer(run_touch) as server:
        await ask(tmux, server)
        for number, key in enumerate(("Escape", "C-c"), 1):
            await tmux.expect("▸ 1. yes", "esc: stop")
            await tmux.press(key)
            await tmux.expect("Stopped.", "Stopped after ", gone="▸ 1. yes")
            assert server.request_count == number and not list(mudroom.project.glob("made*"))
            await tmux.say("go on")
        await tmux.expect("▸ 1. yes")
        await tmux.say("n")
        await tmux.expect("Denied.", "Done.")


async def test_a_child_asks_with_its_whole_command_while_its_sibling_works(
    tmux: Tmux, mudroom: Mudroom
) -> None:
    go = asyncio.Event()
    hidden = "touch made" + " " * 300 + "; rm\u202e -rf x\u200b"

    async def answer(request: ServerRequest) -> ServerAnswer:
        if "task" in request.tools:
            tasks = [
                make_call("task", prompt=f"CHILD {name}", description=name)
                for name in ("asks", "works")
            ]
            return "All done." if request.turn else tasks
        if "CHILD works" in find_prompt(request):
            await go.wait()
        elif not request.turn:
            return [make_call("bash", command=hidden)]
        return "Done."

    async with ModelServer(answer) as server:
        await tmux.start(*MODEL, "--sandbox", "off", url=server.url, columns=100, rows=40)
        await tmux.expect("sandbox off: commands run with all your rights", "claude-s")
        await tmux.say("go")
        shown = await tmux.expect("▸ 1. yes", "3. no", "general  works")
        tree = shown.index("├─ general  asks"), shown.index("└─ general  works")
        assert max(tree) < shown.index("general (asks) wants to run a command")
        assert "touch made [300 blanks] ; rm\\u{202e} -rf x\\u{200b}" in shown
        assert "\u202e" not in shown
        await tmux.press("3")
        await tmux.expect("general  works", gone="▸ 1. yes")
        go.set()
        await tmux.expect("All done.", "children read")
    assert not (mudroom.project / "made").exists()


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


async def test_a_one_shot_run_names_its_sandbox_if_verbose_or_less_than_full(
    mudroom: Mudroom,
) -> None:
    async with ModelServer(lambda _: "done") as server:
        plain = await mudroom("-p", "look", *MODEL, url=server.url)
        verbose = await mudroom("-p", "look", "--verbose", *MODEL, url=server.url)
        off = await mudroom("-p", "look", "--sandbox", "off", *MODEL, url=server.url)
        silent = await mudroom("-q", "-p", "look", "--verbose", *MODEL, url=server.url)
    assert ("sandbox" in plain.err) is (DETECTED.tier != "full" or bool(DETECTED.weakness))
    assert verbose.err.count("sandbox") == off.err.count("sandbox off") == 1
    assert "sandbox" not in silent.err and "sandbox" not in plain.out


async def test_without_a_user_to_ask_a_call_of_a_child_is_denied_at_once(mudroom: Mudroom) -> None:
    (mudroom.project / ".claude").mkdir()
    settings = {"permissions": {"ask": ["Bash(touch:*)"], "deny": ["Read(f0.txt)"]}}
    (mudroom.project / ".claude" / "settings.json").write_text(json.dumps(settings))
    commands = ["touch made", "cat f0.txt"]

    def answer(request: ServerRequest) -> ServerAnswer:
        if "task" in request.tools:
            return "all done" if request.turn else [make_call("task", prompt="CHILD")]
        if request.turn < len(commands):
            return [ToolCallBlock(f"c{request.turn}", "bash", {"command": commands[request.turn]})]
        return "no luck"

    async with ModelServer(answer) as server:
        done = await mudroom("-p", "look", "-o", "json", *MODEL, url=server.url)
        messages = str([request.messages for request in server.requests])
    assert done.code == 0 and not (mudroom.project / "made").exists()
    denials = json.loads(done.out)["permission_denials"]
    assert [(each["tool_name"], each["tool_input"]["command"]) for each in denials] == [
        ("bash", command) for command in commands
    ]
    assert all(each["agent_type"] == "general" and each["rule"] for each in denials)
    assert "no user is present to confirm it" in messages
    assert "Find another way, or do without" in messages
