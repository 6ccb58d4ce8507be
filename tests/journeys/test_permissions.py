"""Permissions with and without a terminal: questions to the user, answers, denials."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Awaitable, Callable

import pytest

from mudroom._adapters.sandboxes.detect import find_bwrap, run_probes
from mudroom._core.messages import ToolCallBlock
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from .conftest import Mudroom, Tmux

MODEL = ("--model", "anthropic:claude-sonnet-4-5")
HIDDEN = "touch made" + " " * 300 + "; rm\u202e -rf x\u200b"
DETECTED = run_probes(find_bwrap(os.environ, "/nonexistent"))


def run_in_child(*commands: str) -> Callable[[ServerRequest], Awaitable[ServerAnswer]]:
    """Return a script: the root delegates one task; the child runs one command per turn."""

    async def answer(request: ServerRequest) -> ServerAnswer:
        if "task" in request.tools:
            done = "tool_result" in str(request.messages[-1])
            return (
                "all done"
                if done
                else [ToolCallBlock("t", "task", {"prompt": "CHILD", "description": "make it"})]
            )
        if request.turn < len(commands):
            return [ToolCallBlock(f"c{request.turn}", "bash", {"command": commands[request.turn]})]
        return f"the child heard {str(request.messages[-1])[-200:]}"

    return answer


async def start_and_prompt(tmux: Tmux, server: ModelServer, *flags: str) -> None:
    await tmux.start(*MODEL, *flags, url=server.url, columns=100, rows=40)
    await tmux.expect("claude-s")
    await tmux.say("look")


async def test_the_question_shows_the_whole_command_the_agent_and_the_reason(
    tmux: Tmux, mudroom: Mudroom
) -> None:
    async with ModelServer(run_in_child(HIDDEN)) as server:
        await start_and_prompt(tmux, server)
        shown = await tmux.expect("general (make it) wants to run a command", "▸ 1. yes", "3. no")
        assert (
            "touch made [300 blanks] ; rm\\u{202e} -rf x\\u{200b}" in shown
            and "\u202e" not in shown
        )
        assert "the command cannot be judged" in shown or "no rule allows it" in shown
        assert "└─ general" in shown, "the tree stays while a question is open"
        await tmux.press("3")
        await tmux.expect("all done")
    assert not (mudroom.project / "made").exists()


async def test_a_command_allowed_for_the_session_is_not_asked_again(
    tmux: Tmux, mudroom: Mudroom
) -> None:
    async with ModelServer(
        run_in_child("echo x >> made", "echo x >> made", "echo y >> other")
    ) as server:
        await start_and_prompt(tmux, server)
        await tmux.expect("echo x >> made", "2. yes, always in this session: this exact command")
        await tmux.press("2")
        await tmux.expect("echo y >> other", "▸ 1. yes")
        assert (mudroom.project / "made").read_text() == "x\nx\n", (
            "the same command again was not asked"
        )
        await tmux.press("1")
        await tmux.expect("all done")
    assert (mudroom.project / "other").read_text() == "y\n"


async def test_the_model_reads_the_reason_of_a_no(tmux: Tmux, mudroom: Mudroom) -> None:
    async with ModelServer(run_in_child("touch made")) as server:
        await start_and_prompt(tmux, server)
        await tmux.expect("touch made", "▸ 1. yes")
        await tmux.say("use another name")
        await tmux.expect("all done")
        messages = str([request.messages for request in server.requests])
    assert (
        "the user said no: use another name" in messages and not (mudroom.project / "made").exists()
    )


@pytest.mark.parametrize(
    ("answer", "echo", "is_allowed"),
    [
        ("y", "Allowed once.", True),
        ("Yes", "Allowed once.", True),
        ("n", "Denied.", False),
        ("no", "Denied.", False),
    ],
)
async def test_typed_yes_and_no_mean_what_they_say(
    tmux: Tmux, mudroom: Mudroom, answer: str, echo: str, is_allowed: bool
) -> None:
    async with ModelServer(run_in_child("touch made")) as server:
        await start_and_prompt(tmux, server)
        await tmux.expect("touch made", "▸ 1. yes")
        await tmux.say(answer)
        await tmux.expect(echo)
        await tmux.expect("all done")
    assert (mudroom.project / "made").exists() is is_allowed


async def test_shift_tab_changes_the_permission_mode(tmux: Tmux, mudroom: Mudroom) -> None:
    async with ModelServer(run_in_child("touch made")) as server:
        await tmux.start(*MODEL, url=server.url, columns=100)
        await tmux.expect("claude-s")
        await tmux.press("BTab")
        await tmux.expect("acceptEdits")
        await tmux.say("look")
        if DETECTED.tier:
            await tmux.expect("all done")
            assert (mudroom.project / "made").exists(), "in a sandbox it is not asked in this mode"
        else:
            await tmux.expect("▸ 1. yes")


async def test_the_first_line_of_a_conversation_names_its_sandbox(tmux: Tmux) -> None:
    async with ModelServer(run_in_child()) as server:
        await tmux.start(*MODEL, url=server.url, columns=100)
        await tmux.expect(
            f"sandbox {DETECTED.tier}" if DETECTED.tier else "sandbox ask", "claude-s"
        )
    await tmux.close()
    async with ModelServer(run_in_child()) as server:
        await tmux.start(*MODEL, "--sandbox", "off", url=server.url, columns=100)
        await tmux.expect("sandbox off: commands run with all your rights", "claude-s")


async def test_a_one_shot_run_names_its_sandbox_if_verbose_or_less_than_full(
    mudroom: Mudroom,
) -> None:
    async with ModelServer(run_in_child()) as server:
        plain = await mudroom("-p", "look", *MODEL, url=server.url)
        verbose = await mudroom("-p", "look", "--verbose", *MODEL, url=server.url)
        off = await mudroom("-p", "look", "--sandbox", "off", *MODEL, url=server.url)
        silent = await mudroom("-q", "-p", "look", "--verbose", *MODEL, url=server.url)
    assert ("sandbox" in plain.err) is (DETECTED.tier != "full" or bool(DETECTED.weakness))
    assert verbose.err.count("sandbox") == off.err.count("sandbox off") == 1
    assert "sandbox" not in silent.err and "sandbox" not in plain.out


async def test_without_a_user_to_ask_a_call_is_denied_at_once(mudroom: Mudroom) -> None:
    (mudroom.project / ".claude").mkdir()
    settings = {"permissions": {"ask": ["Bash(touch:*)"], "deny": ["Read(f0.txt)"]}}
    (mudroom.project / ".claude" / "settings.json").write_text(json.dumps(settings))
    began = time.monotonic()
    async with ModelServer(run_in_child("touch made", "cat f0.txt")) as server:
        done = await mudroom("-p", "look", "-o", "json", *MODEL, url=server.url)
        messages = str([request.messages for request in server.requests])
    result = json.loads(done.out)
    assert (
        done.code == 0 and time.monotonic() - began < 60 and not (mudroom.project / "made").exists()
    )
    assert [
        (denial["tool_name"], denial["tool_input"]["command"])
        for denial in result["permission_denials"]
    ] == [
        ("bash", "touch made"),
        ("bash", "cat f0.txt"),
    ]
    assert all(
        denial["agent_type"] == "general" and denial["rule"]
        for denial in result["permission_denials"]
    )
    assert (
        "no user is present to confirm it" in messages
        and "Find another way, or do without" in messages
    )


async def test_a_mentioned_file_with_a_deny_rule_is_not_read(mudroom: Mudroom) -> None:
    async def answer(request: ServerRequest) -> ServerAnswer:
        return "done" if request.turn else [ToolCallBlock("r", "read", {"file_path": "f0.txt"})]

    async with ModelServer(answer) as server:
        done = await mudroom(
            "-p", "look at @f0.txt", "--disallowed-tools", "Read(f0.txt)", *MODEL, url=server.url
        )
        messages = str([request.messages for request in server.requests])
    assert (
        "f0.txt" in messages
        and "a rule says deny" in messages
        and "MUD-0" not in messages + done.out
    )
