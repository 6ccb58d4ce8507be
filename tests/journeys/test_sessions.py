"""Recorded sessions: lists, their end on the screen, journals, damage."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from pathlib import Path

import pytest

from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from .conftest import Mudroom, Tmux
from .course import MODEL


async def answer_at_length(request: ServerRequest) -> ServerAnswer:
    rows = "\n".join(f"- item {n} 项目" for n in range(60))
    return f"The answer {request.number}:\n\n{rows}"


async def talk(tmux: Tmux, server: ModelServer, *prompts: str) -> str:
    """Ask the prompts in a new session and leave it; return the screen after the exit."""
    await tmux.open(server, columns=40, rows=24)
    for n, prompt in enumerate(prompts, 1):
        await tmux.say(prompt)
        await tmux.expect_scrolled("item 59 项目", n)
        # The last line of the answer is shown before the turn has ended.
        await tmux.expect("context", gone="esc: stop")
        await tmux.wait_until_idle()
    await tmux.leave()
    shown = await tmux.read_screen()
    await tmux.close()
    return shown


async def test_the_exit_prints_how_to_resume_and_c_shows_the_end(tmux: Tmux) -> None:
    async with ModelServer(answer_at_length) as server:
        shown = await talk(tmux, server, "看一看", "and the second")
        assert re.search(
            r"This session used [\d.]+k tokens, \$0\.\d\d, [\d.]+s\.", " ".join(shown.split())
        )
        command = re.search(r"^mudroom --resume ([0-9a-f]{8})$", shown, re.MULTILINE)
        assert command
        await tmux.start(*MODEL, "-c", url=server.url, columns=40, rows=24)
        await tmux.expect("item 59 项目", "mudroom >>")
        scrolled = await tmux.scroll()
        assert scrolled.index("> 看一看") < scrolled.index("> and the second")
        assert "earlier lines: mudroom show" in " ".join(scrolled.split())
        assert "item 19 项目" not in scrolled and "item 30 项目" in scrolled
        await tmux.leave()
        assert f"mudroom --resume {command[1]}" in await tmux.read_screen()


async def test_a_session_without_a_prompt_is_not_saved_and_a_failed_start_neither(
    tmux: Tmux, mudroom: Mudroom
) -> None:
    async with ModelServer(answer_at_length) as server:
        await tmux.open(server, rows=24)
        await tmux.leave()
        assert "--resume" not in await tmux.read_screen()
        failed = await mudroom("-p", "x", "-m", "bedrock:claude")
        refused = await mudroom("-p", "x", "-m", "nosuchprovider:x", "-n", "a name")
        assert failed.code and refused.code
    assert "No sessions" in (await mudroom("runs")).out


async def test_the_session_list_is_searched_by_typing(tmux: Tmux, mudroom: Mudroom) -> None:
    async with ModelServer(answer_at_length) as server:
        for prompt in ("find the parser", "找测试", "count the lines"):
            await mudroom("-p", prompt, "-o", "json", *MODEL, url=server.url)
        await tmux.start(*MODEL, "-r", url=server.url, columns=40, rows=24)
        shown = await tmux.expect("Continue which session?", "1.", "2.", "3.", "mudroom >>")
        listed = " ".join(shown.split())
        assert re.search(r"find the parser \(1 prompt, [\d.]+k tokens, \$0\.0\d\)", listed)
        assert re.search(r"▸ 1\. \d{4}-\d\d-\d\d \d\d:\d\d", shown)
        await tmux.type("nothing like this")
        await tmux.expect("nothing matches the typed text")
        await tmux.press("C-u")
        await tmux.type("测试")
        await tmux.expect("找测试", gone="parser")
        await tmux.press("Enter")
        await tmux.expect("item 59 项目", "mudroom >>")
        await tmux.say("go on")
        await tmux.expect_scrolled("The answer 4", 1)
        assert "找测试" in server.requests[-1].body.decode()


async def test_ctrl_c_keeps_a_draft_in_the_history_and_leaves_only_from_an_empty_line(
    tmux: Tmux,
) -> None:
    async with ModelServer(answer_at_length) as server:
        await tmux.open(server, rows=24)
        await tmux.type("a long draft")
        await tmux.press("C-c")
        await tmux.expect("The line is cleared; Up brings it back.", gone=">> a long draft")
        await tmux.type("another draft")
        await tmux.expect(">> another draft")
        await tmux.press("C-c")
        await tmux.expect("mudroom >>", gone=">> another draft")
        await tmux.press("Up")
        await tmux.expect(">> another draft")
        await tmux.press("Up")
        await tmux.expect(">> a long draft")
        await tmux.press("C-c")
        await tmux.expect("mudroom >>", gone=">> a long draft")
        await tmux.press("C-c", "C-c")
        assert await tmux.end() == 0


async def test_the_trust_question_comes_after_the_resumed_conversation_with_one_hint(
    tmux: Tmux, mudroom: Mudroom
) -> None:
    async with ModelServer(lambda asked: f"reply-{asked.number}") as server:
        await mudroom("-p", "find the parser", "-o", "json", *MODEL, url=server.url)
        (mudroom.project / ".claude").mkdir()
        await tmux.start(*MODEL, "-r", url=server.url, rows=24)
        await tmux.expect("Continue which session?", "find the parser")
        await tmux.press("Enter")
        shown = await tmux.expect("> find the parser", "reply-1", "Do you trust this")
        assert shown.index("reply-1") < shown.index("Do you trust")
        await tmux.expect("3. no", "Type 1-3, or use the arrow keys and Enter")
        await tmux.press("7")
        await tmux.expect("Type a number from 1 to 3", gone="Type 1-3")
        for key in ("q", "maybe"):
            await tmux.type(key)
            await tmux.expect(f">> {key}")
            await tmux.press("Enter")
            await tmux.expect("Type a number from 1 to 3", gone=f">> {key}")
        shown = await tmux.read_screen()
        assert shown.count("Type a number from 1 to 3") == 1
        assert shown.index("3. no") < shown.index("Type a number") < shown.index("mudroom >>")
        await tmux.press("2")
        await tmux.expect("claude-s", "mudroom >>", gone="Do you trust")
        scrolled = await tmux.scroll()
        assert scrolled.count("> find the parser") == 1
        assert "Type a number" not in scrolled


async def _run_prompts(mudroom: Mudroom, *prompts: str) -> Path:
    async with ModelServer(lambda request: f"answer {request.turn}") as server:
        for prompt in prompts:
            assert (await mudroom("-p", prompt, *MODEL, url=server.url)).code == 0
    session = json.loads((await mudroom("runs", "--json")).out)[0]["id"]
    return Path(mudroom.home, "sessions", f"{session}.db")


async def test_s6_damage_is_an_error_and_a_repaired_session_continues(mudroom: Mudroom) -> None:
    journal = await _run_prompts(mudroom, "first")
    assert (await mudroom("journal", "check", journal.stem)).out.endswith("all intact\n")
    connection = sqlite3.connect(journal)
    connection.execute("UPDATE events SET body = X'00' WHERE seq = 3")
    connection.commit()
    connection.close()
    shown = await mudroom("show", "last")
    assert shown.code == 1 and "record 3 is damaged" in shown.err and "journal repair" in shown.err
    doctor = await mudroom("doctor")
    assert doctor.code == 1 and "record 3 is damaged" in doctor.out
    checked = await mudroom("journal", "check", journal.stem[:8])
    assert checked.code == 1 and "lost: 3" in checked.out
    repaired = await mudroom("journal", "repair", journal.stem[:8])
    assert repaired.code == 0 and "lost: 3" in repaired.out and f"{journal}.damaged" in repaired.out
    assert "nothing to repair" in (await mudroom("journal", "repair", journal.stem)).out
    async with ModelServer(lambda request: "and on") as server:
        done = await mudroom("-c", "-p", "next", *MODEL, url=server.url)
        assert done.out == "and on\n"
        assert f"mudroom: continuing {journal.stem[:8]} (first)\n" in done.err
        quiet = await mudroom("-q", "-c", "-p", "next", *MODEL, url=server.url)
        assert "continuing" not in quiet.err
    last = await mudroom("show", "last")
    assert "first" in last.out
    assert (await mudroom("show")).out == last.out


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everywhere")
async def test_a_session_on_a_read_only_disk_can_be_read_but_not_continued(
    mudroom: Mudroom,
) -> None:
    journal = await _run_prompts(mudroom, "first")
    journal.chmod(0o400)
    journal.parent.chmod(0o500)
    try:
        assert (await mudroom("show", "last")).code == 0
        assert (await mudroom("resume")).out == "answer 0\n"
        refused = await mudroom("-c", "-p", "x", *MODEL)
        assert refused.code == 1 and "MUDROOM_HOME" in refused.err
    finally:
        journal.parent.chmod(0o700)


async def test_resume_without_id_asks_for_a_session(mudroom: Mudroom) -> None:
    await _run_prompts(mudroom, "the older one", "the newer one")
    async with (
        ModelServer(lambda request: f"continued after {request.turn}") as server,
        mudroom.start_at_terminal("-p", "next", *MODEL, "--resume", url=server.url) as terminal,
    ):
        await terminal.expect("1  ")
        await terminal.expect("the newer one")
        await terminal.expect("the older one")
        await terminal.expect("Which session?")
        terminal.type("2\n")
        await terminal.expect("continued after 1")
        assert await terminal.end() == 0
    listed = {
        item["prompt"]: item["prompts"]
        for item in json.loads((await mudroom("runs", "--json")).out)
    }
    assert listed == {"the older one": 2, "the newer one": 1}
