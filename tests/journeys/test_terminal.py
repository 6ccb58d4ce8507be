"""The interactive prompt in tmux: commands, keys, history, mentions."""

import asyncio
import json
import os
import re
import signal
from pathlib import Path

import pytest

from mudroom._cli.output.text import ERASE_DOWN
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest

from ..waiting import wait_until
from .conftest import Mudroom, Tmux
from .course import MODEL, make_call

READY = "sandbox"
"""Text on the screen when the session is open."""


def delegate_once(asked: ServerRequest) -> ServerAnswer:
    if "task" in asked.tools:
        task = make_call("task", prompt="CHILD look", description="look around")
        return "answer" if asked.turn % 2 else [task]
    return "seen" if asked.turn else [make_call("read", file_path="f0.txt")]


def get_last_words(asked: ServerRequest) -> str:
    """Return the last message that the model received."""
    return str(asked.messages[-1])


async def test_a_conversation_with_its_commands(tmux: Tmux) -> None:
    async with ModelServer(delegate_once) as server:
        await tmux.start("look around", *MODEL, url=server.url, rows=80)
        await tmux.expect(
            "> task (look around): CHILD look", "Done (1 tool use", "answer", "1 child read"
        )
        await tmux.say("/help")
        await tmux.expect("/clear", "/rewind", "/export")
        await tmux.say("/runs")
        await tmux.expect("1.1.1  general  look around  (Done, 1 tool use")
        await tmux.say("/cost")
        await tmux.expect("tokens in 2 runs")
        await tmux.say("/cots")
        await tmux.expect("unknown command /cots. Did you mean /cost")
        await tmux.say("and again")
        await tmux.expect("and again", "2 children read")
        assert "look around" in server.requests[-1].body.decode(), "the conversation is continued"
        await tmux.say("/clear")
        await tmux.expect("Started a new session")
        await tmux.say("afresh")
        await tmux.expect_scrolled("1 child read", 4)
        assert "and again" not in server.requests[-1].body.decode(), (
            "a new session contains nothing of the old one"
        )
        await tmux.say("q")
        assert await tmux.end() == 0


async def test_every_slash_command_prints_something(tmux: Tmux, mudroom: Mudroom) -> None:
    async with ModelServer(lambda asked: "an answer to copy") as server:
        await tmux.open(server, rows=50, columns=200)
        await tmux.say("a first prompt")
        await tmux.expect("an answer to copy")
        for command, answer in (
            ("/context", "tools"),
            ("/context nine", "no turn has the name"),
            ("/context 9.9", "unknown run '9'"),
            ("/pin", "No rules. /pin RULE adds one"),
            ("/unpin 1", "no rule has the number '1'. There are no rules."),
            ("/pin Use tabs.", "Each compaction keeps it word for word"),
            ("/pin", "1  Use tabs."),
            ("/unpin 2", "Name a number of the list that /pin shows."),
            ("/unpin 1", "this rule ends: Use tabs."),
            ("/agents", "explore"),
            ("/skills", "No skills found. A skill is"),
            ("/mode", "acceptEdits"),
            ("/permissions", "no rules"),
            ("/compact the answer", "Conversation compacted"),
            ("/doctor", "journals:"),
            ("/copy", "to the clipboard of the terminal"),
            ("/init", "reviewer.md written"),
            ("/view", "http://127.0.0.1:"),
            ("/model nobody:x", "nobody"),
            ("/mode loud", "no such mode: loud"),
        ):
            await tmux.say(f"!echo before {command}")
            await tmux.expect(f"  before {command}")
            await tmux.say(command)
            shown = await tmux.expect(command, answer)
            assert "fault of mudroom" not in shown
        await tmux.type("?")
        await tmux.expect("ctrl+x ctrl+k")
        await tmux.leave()
    assert (mudroom.project / ".agents" / "agents" / "reviewer.md").exists()


async def test_keys_before_the_prompt_is_drawn_are_keys(tmux: Tmux, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with ModelServer(lambda asked: "heard") as server:
        await tmux.start(*MODEL, url=server.url, gate=gate)
        await tmux.press("Up", "Down")
        await tmux.type("an early bir")
        await tmux.press("Left", "Left", "Left")
        await tmux.type("big ")
        await tmux.press("End")
        await tmux.type("d")
        await tmux.expect("bir^[[D", "big")
        gate.touch()
        shown = await tmux.expect("mudroom >> an early big bird", READY)
        assert "^[" not in shown, "what the terminal echoed before is erased"
        await tmux.press("Enter")
        await tmux.expect("heard")
        await tmux.leave()


async def test_early_lines_are_sent_one_after_the_other(tmux: Tmux, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    async with ModelServer(lambda asked: f"heard {asked.turn}") as server:
        await tmux.start(*MODEL, url=server.url, gate=gate)
        await tmux.say("first line")
        await tmux.say("第二行")
        await tmux.type("third")
        gate.touch()
        await tmux.expect("mudroom >> first line", "mudroom >> 第二行", "mudroom >> third", READY)
        await tmux.expect("heard 1")
        # Not Ctrl-C: while the turn still ends, it would stop the turn and keep the line.
        await tmux.press("C-u", "C-d")
        assert await tmux.end() == 0


async def test_history_is_kept_for_each_folder_and_searched(tmux: Tmux, mudroom: Mudroom) -> None:
    async with ModelServer(lambda asked: "fine") as server:
        await tmux.open(server)
        await tmux.say("a memorable prompt")
        await tmux.expect("fine")
        await tmux.say("exit")
        await tmux.end()
        await tmux.close()
        await tmux.open(server)
        await tmux.press("Up")
        await tmux.expect(">> exit")
        await tmux.press("Up")
        await tmux.expect(">> a memorable prompt")
        await tmux.press("C-c")
        await tmux.expect("mudroom >>", gone="memorable")
        await tmux.press("C-r")
        await tmux.type("memor")
        await tmux.expect(">> a memorable prompt", "memor")
        await tmux.press("C-g", "C-c", "C-c")
        await tmux.end()
    (history,) = (mudroom.home / "history").iterdir()
    assert history.stat().st_mode & 0o777 == 0o600


async def test_new_lines_long_pastes_and_an_editor(tmux: Tmux, tmp_path: Path) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\necho and ended there >>"$1"\n')
    editor.chmod(0o700)
    async with ModelServer(lambda asked: "heard") as server:
        await tmux.start(*MODEL, url=server.url, env={"EDITOR": str(editor)})
        await tmux.expect(READY)
        await tmux.type("one\\")
        await tmux.press("Enter")
        await tmux.type("two")
        await tmux.press("C-j")
        await tmux.type("three")
        await tmux.press("M-Enter")
        await tmux.paste("\n".join(f"row {n}" for n in range(40)))
        await tmux.expect("one", "two", "three", "[Pasted text #1 +39 lines]")
        await tmux.press("Enter")
        await tmux.expect("heard", gone="row 20")
        words = get_last_words(server.requests[0])
        assert r"one\ntwo\nthree\nrow 0\n" in words and "row 39" in words
        await tmux.type("begun here ")
        await tmux.press("C-g")
        await tmux.expect("mudroom >> begun here and ended there")
        await tmux.press("Enter")
        await tmux.expect_scrolled("heard", 2)
        assert "begun here and ended there" in get_last_words(server.requests[1])


async def test_shell_output_is_added_to_the_next_prompt(tmux: Tmux) -> None:
    async with ModelServer(lambda asked: "noted") as server:
        await tmux.open(server)
        await tmux.say("!echo from the shell $((6*7))")
        await tmux.expect("from the shell 42")
        await tmux.say("what was that")
        await tmux.expect("noted")
        words = get_last_words(server.requests[0])
        assert "from the shell 42" in words and "what was that" in words
        await tmux.say("!touch started; sleep 60")
        await wait_until((tmux.mudroom.project / "started").exists)
        await tmux.press("Escape")
        await tmux.expect("(interrupted)")


async def test_files_and_agents_are_completed_and_mentioned(tmux: Tmux) -> None:
    async with ModelServer(lambda asked: "done") as server:
        await tmux.open(server)
        await tmux.type("/con")
        await tmux.expect("/context", "what the model is sent")
        await tmux.press("C-c")
        await tmux.type("see @f3")
        await tmux.expect("f3.txt")
        await tmux.press("Tab")
        await tmux.expect("see @f3.txt")
        await tmux.type(" with @agent-expl")
        await tmux.expect("agent-explore", "agent")
        await tmux.press("Tab")
        await tmux.expect("with @agent-explore")
        await tmux.press("Enter")
        await tmux.expect("done")
        words = get_last_words(server.requests[0])
        assert "see @f3.txt with" in words and "agent explore with the task tool" in words


async def test_rewind_to_before_a_prompt(tmux: Tmux) -> None:
    async with ModelServer(lambda asked: f"answer {asked.number}") as server:
        await tmux.open(server)
        for n, prompt in enumerate(("first thing", "second thing"), 1):
            await tmux.say(prompt)
            await tmux.expect(f"answer {n}")
        await tmux.press("Escape")
        await asyncio.sleep(0.4)
        await tmux.press("Escape")
        await tmux.expect(
            "Remove which prompt and all after it?",
            "1. prompt 2: second thing",
            "2. prompt 1: first",
        )
        await tmux.press("Enter")
        await tmux.expect("Removed prompt 2 and all after it")
        await tmux.press("Enter")
        await tmux.expect("answer 3")
        body = server.requests[-1].body.decode()
        assert "first thing" in body and "answer 2" not in body and body.count("second thing") == 1


async def test_session_model_and_mode_are_changed(tmux: Tmux) -> None:
    async with ModelServer(lambda asked: f"answer {asked.number} of {asked.model}") as server:
        await tmux.open(server)
        await tmux.say("the first session")
        await tmux.expect("answer 1")
        await tmux.press("BTab")
        await tmux.expect("mode acceptEdits: ")
        assert ">> /mode" not in await tmux.scroll(), "the queued command is not echoed"
        await tmux.press("M-p")
        await tmux.expect(
            "Current model: anthropic:claude-sonnet-4-5", "anthropic:claude-opus", "offline"
        )
        await tmux.press("Escape")
        await tmux.expect("mudroom >>", gone="Current model:")
        await tmux.press("M-p")
        await tmux.expect("Current model:")
        await tmux.say("anthropic:claude-haiku-4-5")
        await tmux.say("go on")
        await tmux.expect("answer 2 of claude-haiku-4-5")
        assert "answer 1" in server.requests[-1].body.decode(), (
            "another model continues the conversation"
        )
        await tmux.press("BTab")
        await tmux.expect("mode plan")
        await tmux.say("/copy")
        await tmux.expect("Sent the last answer (28 characters)")
        await tmux.say("/rename walls and mud")
        await tmux.expect("Session renamed to walls and mud")
        await tmux.say("/clear")
        await tmux.say("/resume")
        await tmux.expect("Continue which session?", "1.", "walls and mud")
        await tmux.press("1")
        await tmux.expect("> the first session")
        await tmux.say("and further")
        await tmux.expect("answer 3")
        assert "answer 2" in server.requests[-1].body.decode()


async def test_last_is_the_last_other_session_at_the_prompt(tmux: Tmux, mudroom: Mudroom) -> None:
    async with ModelServer(lambda asked: f"answer {asked.number}") as server:
        await mudroom("-p", "the recorded prompt", *MODEL, url=server.url)
        await tmux.open(server)
        await tmux.say("/model replay:nothing")
        await tmux.expect("unknown session 'nothing'")
        await tmux.say("/model replay:last")
        await tmux.say("the recorded prompt")
        await tmux.expect("answer 1")
        await tmux.say("/resume last")
        await tmux.expect("> the recorded prompt")
        assert server.request_count == 1
        await tmux.leave()


async def test_the_full_result_and_the_export(tmux: Tmux, mudroom: Mudroom) -> None:
    def answer(asked: ServerRequest) -> ServerAnswer:
        return "seen" if asked.turn else [make_call("bash", command="seq 100 140")]

    async with ModelServer(answer) as server:
        await tmux.start("--permission-mode", "acceptEdits", *MODEL, url=server.url, rows=60)
        await tmux.expect(READY)
        await tmux.say("count")
        await tmux.expect("100", "33 more lines (ctrl+o)", "140", "seen")
        await tmux.press("C-o")
        await tmux.expect("139", "140")
        await tmux.say("/export talk.txt")
        await tmux.expect("Written:")
        assert "139\n    140" in (mudroom.project / "talk.txt").read_text()
        for name, holds in (("talk.md", "Call of `bash`"), ("talk.html", "<!doctype html>")):
            await tmux.say(f"/export {name}")
            page = mudroom.project / name
            await wait_until(lambda: page.exists() and holds in page.read_text())  # noqa: B023
        await tmux.say("/export talk.txt")
        await tmux.expect("cannot be written: File exists")
        await tmux.say("/export none/talk.txt")
        await tmux.expect("cannot be written: No such file or directory")
        await tmux.expect("Name a new file in a", "that exists: /export FILE")


async def test_sigterm_ends_the_prompt_with_its_exit_code(tmux: Tmux) -> None:
    async with ModelServer(lambda asked: Fault(delay=60)) as server:
        await tmux.open(server)
        await tmux.say("hang")
        await tmux.expect("thinking")
        os.kill(await tmux.read_pid(), signal.SIGTERM)
        assert await tmux.end() == 143


@pytest.mark.parametrize("env", [{"MUDROOM_SCREEN_READER": "1"}, {"CI": "true"}])
async def test_the_plain_ui_is_used_where_the_cursor_cannot_move(
    tmux: Tmux, env: dict[str, str]
) -> None:
    async with ModelServer(delegate_once) as server:
        await tmux.start(*MODEL, url=server.url, env=env)
        await tmux.expect("mudroom >>")
        await tmux.say("look around")
        await tmux.expect(
            "> task (look around): CHILD look", "general (look around): Done (1 tool use", "answer"
        )
        await tmux.say("/rewind")
        await tmux.expect("1. prompt 1: look around", "number, or Enter to cancel:")
        await tmux.say("a line typed before the question was seen")
        await tmux.expect("Enter a number from 1 to 1")
        await tmux.press("Enter")
        await tmux.say("/cost")
        await tmux.expect("2 runs")
        assert not re.search(r"\x1b\[[0-9;]*[A-HJKST]", await tmux.read_screen(colors=True))
        await tmux.leave()


def remove_erased_rows(output: str) -> str:
    """Return the output of a live tree without the rows that it drew and erased."""
    text, *rest = re.split(r"\x1b\[(\d+)A\r" + re.escape(ERASE_DOWN), output)
    for count, more in zip(rest[::2], rest[1::2], strict=True):
        rows = text.split("\n")
        text = "\n".join([*rows[: -1 - int(count)], more])
    return text


MARKDOWN = "# A *finding*\n\nIt is **bold**.\n\n```python\nx = 1\n```\n\nThe end."


async def test_an_answer_is_rendered_on_a_terminal_and_unchanged_in_a_pipe(
    mudroom: Mudroom,
) -> None:
    pause = 0.08

    async def slowly(asked: ServerRequest) -> ServerAnswer:
        if "task" in asked.tools and not asked.turn:
            return [make_call("task", prompt="CHILD look", description="look around")]
        return Fault(MARKDOWN, chunk_size=120, pause=pause) if "task" in asked.tools else "seen"

    async with ModelServer(slowly) as server:
        while True:
            async with mudroom.start_at_terminal("-p", "go", *MODEL, url=server.url) as screen:
                at = await screen.expect("It is")
                is_early = "The end" not in screen.seen[at:]
                assert await screen.end() == 0
            if is_early or pause > 0.3:
                break
            pause *= 3  # this process may have read late on a busy machine
        assert is_early, "the beginning is printed before the end"
        shown = re.sub(r"\x1b\[[0-9;]*m", "", remove_erased_rows(screen.seen))
        assert "**" not in shown and "```" not in shown and "The end." in shown
        assert (
            shown.rindex("└─ general  look around")
            < shown.index("It is bold.")
            < shown.index("1 child read")
        )
        for _ in range(2):
            done = await mudroom("-p", "go", *MODEL, url=server.url)
            assert done.out == MARKDOWN + "\n"


FLOOR = """
import asyncio
import json
from prompt_toolkit.application import Application
from prompt_toolkit.layout import Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
asyncio.run(Application(layout=Layout(Window(FormattedTextControl(">>")))).run_async())
"""
"""The smallest program that draws a prompt with the same library."""


async def test_the_prompt_is_drawn_with_little_cpu_time(mudroom: Mudroom) -> None:
    """Compare the CPU time until the prompt is drawn with the smallest program of the same library.

    CPU time hardly depends on other load. On an idle machine the prompt is drawn after 0.3 s.
    """
    spent: dict[str, list[float]] = {"-m": [], "-c": []}
    for _ in range(4):
        for kind, words in (("-m", ("mudroom", *MODEL)), ("-c", (FLOOR,))):
            async with mudroom.start_at_terminal(*words, by=kind) as screen:
                await screen.expect(">>")
                threads = Path(f"/proc/{screen.process.pid}/task").glob("*/schedstat")
                spent[kind].append(sum(int(file.read_text().split()[0]) for file in threads) / 1e9)
                screen.process.kill()
    assert min(spent["-m"]) < 1.8 * min(spent["-c"])


async def test_slow_packages_are_imported_after_the_prompt_is_drawn(mudroom: Mudroom) -> None:
    async with mudroom.start_at_terminal(*MODEL, env={"PYTHONPROFILEIMPORTTIME": "1"}) as screen:
        drawn = await screen.expect("mudroom >> ")
        await screen.expect("sqlite3")
    slow = ("aiohttp", "mudroom._session.session", "sqlite3", "rich", "pathspec", "yaml")
    assert [
        name for name in slow if re.search(rf"\| +{re.escape(name)}\r", screen.seen[:drawn])
    ] == []


async def test_a_warning_of_the_log_is_a_line_above_the_prompt(tmux: Tmux) -> None:
    agent = {"description": "d", "prompt": "Be brief.", "temperature": 0.2}
    flags = ("--agents", json.dumps({"cool": agent}), "--agent", "cool")
    async with ModelServer(lambda _: "Hello.") as server:
        await tmux.start(*flags, "-m", "anthropic:claude-opus-4-8", url=server.url, columns=120)
        await tmux.expect(READY)
        await tmux.say("Hi.")
        warning = (
            "anthropic:claude-opus-4-8: temperature is not sent, because the model refuses it."
        )
        shown = await tmux.expect("Hello.", warning, gone="esc: stop")
        assert warning in [line.strip() for line in shown.splitlines()]
        await tmux.say("q")
        assert await tmux.end() == 0
