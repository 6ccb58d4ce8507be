"""Permissions at a real terminal and without one: what is asked, what an answer does, what is told where nobody can be asked."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Awaitable, Callable

from mudroom._core.messages import ToolCallBlock
from mudroom.sandboxes.detect import find_bwrap, run_probes
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from .conftest import Mudroom, Tmux

MODEL = ("--model", "anthropic:claude-sonnet-4-5")
HIDDEN = "touch made" + " " * 300 + "; rm\u202e -rf x\u200b"
BEST = run_probes(find_bwrap(os.environ, "/nonexistent")).tier


def calls(*commands: str) -> Callable[[ServerRequest], Awaitable[ServerAnswer]]:
    """Return a script: the root starts one child, which runs one of the commands in each turn.

    The child then answers with the result of its last command.
    """

    async def answer(asked: ServerRequest) -> ServerAnswer:
        if "task" in asked.tools:
            done = "tool_result" in str(asked.messages[-1])
            return (
                "all told"
                if done
                else [ToolCallBlock("t", "task", {"prompt": "CHILD", "description": "make it"})]
            )
        if asked.turn < len(commands):
            return [ToolCallBlock(f"c{asked.turn}", "bash", {"command": commands[asked.turn]})]
        return f"the child heard {str(asked.messages[-1])[-200:]}"

    return answer


async def begun(tmux: Tmux, server: ModelServer, *flags: str) -> None:
    await tmux.start(*MODEL, *flags, url=server.url, columns=100, rows=40)
    await tmux.expect("claude-s")
    await tmux.say("look")


async def test_a_childs_command_is_shown_whole_with_who_asks_and_why(
    tmux: Tmux, mudroom: Mudroom
) -> None:
    async with ModelServer(calls(HIDDEN)) as server:
        await begun(tmux, server)
        shown = await tmux.expect(
            "general (run 1.1.1) asks for bash", "Allow general to do this?", "3. no"
        )
        assert (
            "touch made [300 blanks] ; rm\\u{202e} -rf x\\u{200b}" in shown
            and "\u202e" not in shown
        )
        assert "the command cannot be judged" in shown or "no rule allows it" in shown
        assert "├─" not in shown and "└─" not in shown, "the tree keeps clear of the question"
        await tmux.press("3")
        await tmux.expect("all told")
    assert not (mudroom.project / "made").exists()


async def test_yes_for_this_session_is_not_asked_again(tmux: Tmux, mudroom: Mudroom) -> None:
    async with ModelServer(calls("echo x >> made", "echo x >> made", "echo y >> other")) as server:
        await begun(tmux, server)
        await tmux.expect("echo x >> made", "▸ 1. yes", "2. yes, and for this session")
        await tmux.press("2")
        await tmux.expect("echo y >> other", "Allow general to do this?")
        assert (mudroom.project / "made").read_text() == "x\nx\n", (
            "the same command again was not asked"
        )
        await tmux.press("1")
        await tmux.expect("all told")
    assert (mudroom.project / "other").read_text() == "y\n"


async def test_no_with_a_reason_is_read_by_the_model(tmux: Tmux, mudroom: Mudroom) -> None:
    async with ModelServer(calls("touch made")) as server:
        await begun(tmux, server)
        await tmux.expect("touch made", "Allow general to do this?")
        await tmux.say("use another name")
        await tmux.expect("all told")
        said = str([asked.messages for asked in server.requests])
    assert "the user said no: use another name" in said and not (mudroom.project / "made").exists()


async def test_shift_tab_changes_what_is_asked(tmux: Tmux, mudroom: Mudroom) -> None:
    async with ModelServer(calls("touch made")) as server:
        await tmux.start(*MODEL, url=server.url, columns=100)
        await tmux.expect("claude-s")
        await tmux.press("BTab")
        await tmux.expect("acceptEdits")
        await tmux.say("look")
        if BEST:
            await tmux.expect("all told")
            assert (mudroom.project / "made").exists(), "in a sandbox it is not asked in this mode"
        else:
            await tmux.expect("Allow general to do this?")


async def test_the_first_line_of_a_conversation_is_its_sandbox(tmux: Tmux) -> None:
    async with ModelServer(calls()) as server:
        await tmux.start(*MODEL, url=server.url, columns=100)
        await tmux.expect(f"sandbox {BEST}" if BEST else "sandbox ask", "claude-s")
    await tmux.close()
    async with ModelServer(calls()) as server:
        await tmux.start(*MODEL, "--sandbox", "off", url=server.url, columns=100)
        await tmux.expect("sandbox off: commands run with all your rights", "claude-s")


async def test_one_shot_says_its_sandbox_where_it_is_less_than_full_or_asked(
    mudroom: Mudroom,
) -> None:
    async with ModelServer(calls()) as server:
        plain = await mudroom("-p", "look", *MODEL, url=server.url)
        told = await mudroom("-p", "look", "--verbose", *MODEL, url=server.url)
        off = await mudroom("-p", "look", "--sandbox", "off", *MODEL, url=server.url)
        silent = await mudroom("-q", "-p", "look", "--verbose", *MODEL, url=server.url)
    assert ("sandbox" in plain.err) is (BEST != "full")
    assert told.err.count("sandbox") == off.err.count("sandbox off") == 1
    assert "sandbox" not in silent.err and "sandbox" not in plain.out


async def test_where_nobody_can_be_asked_it_is_a_denial_at_once(mudroom: Mudroom) -> None:
    (mudroom.project / ".claude").mkdir()
    settings = {"permissions": {"ask": ["Bash(touch:*)"], "deny": ["Read(f0.txt)"]}}
    (mudroom.project / ".claude" / "settings.json").write_text(json.dumps(settings))
    began = time.monotonic()
    async with ModelServer(calls("touch made", "cat f0.txt")) as server:
        done = await mudroom("-p", "look", "-o", "json", *MODEL, url=server.url)
        said = str([asked.messages for asked in server.requests])
    result = json.loads(done.out)
    assert (
        done.code == 0 and time.monotonic() - began < 20 and not (mudroom.project / "made").exists()
    )
    assert [
        (told["tool_name"], told["tool_input"]["command"]) for told in result["permission_denials"]
    ] == [
        ("bash", "touch made"),
        ("bash", "cat f0.txt"),
    ]
    assert all(
        told["agent_type"] == "general" and told["rule"] for told in result["permission_denials"]
    )
    assert "no user is present to confirm it" in said and "Find another way, or do without" in said


async def test_a_mentioned_file_that_is_denied_is_not_read(mudroom: Mudroom) -> None:
    async def answer(asked: ServerRequest) -> ServerAnswer:
        return "done" if asked.turn else [ToolCallBlock("r", "read", {"file_path": "f0.txt"})]

    async with ModelServer(answer) as server:
        done = await mudroom(
            "-p", "look at @f0.txt", "--disallowed-tools", "Read(f0.txt)", *MODEL, url=server.url
        )
        said = str([asked.messages for asked in server.requests])
    assert "f0.txt" in said and "a rule says deny" in said and "MUD-0" not in said + done.out
