"""Keys and letters around the tree of children, and commands that show what they print."""

from __future__ import annotations

from pathlib import Path

from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from .conftest import Mudroom, Tmux
from .course import MODEL, make_call
from .test_terminal_children import ThreeTasks, start_prompt


async def test_up_is_the_history_while_children_work(tmux: Tmux) -> None:
    three = ThreeTasks()
    async with ModelServer(three) as server:
        await start_prompt(tmux, server)
        await tmux.expect("3 running", "ctrl+t: steer a child")
        await tmux.press("Up")
        await tmux.expect("mudroom >> look\nclaude", gone="▸")
        await tmux.press("C-c")
        three.go.set()


async def test_what_is_typed_for_a_child_that_has_ended_is_no_prompt(tmux: Tmux) -> None:
    three = ThreeTasks()
    async with ModelServer(three) as server:
        await start_prompt(tmux, server)
        await tmux.expect("3 running", "⎿ read f0.txt")
        await tmux.press("C-t")
        await tmux.expect("steer >>", "└─▸general", "m: message")
        three.go.set()
        await tmux.expect("all told", "steer >>", "no child works, esc: back")
        count = len(server.requests)
        await tmux.say("mcheck mod2")
        await tmux.expect("mudroom >>\n", gone="steer >>")
        await tmux.say("/cost")
        shown = await tmux.expect("tokens in 4 runs")
        assert "mod2" not in shown and len(server.requests) == count


async def test_a_message_to_a_child_that_ends_meanwhile_is_not_sent(tmux: Tmux) -> None:
    three = ThreeTasks()
    async with ModelServer(three) as server:
        await start_prompt(tmux, server)
        await tmux.expect("3 running", "⎿ read f0.txt")
        await tmux.type("a draft")
        await tmux.press("C-t", "m")
        await tmux.type("check mod2")
        await tmux.expect("to general (look at gamma", ">> check mod2")
        three.go.set()
        await tmux.expect("all told", ">> check mod2")
        count = len(server.requests)
        await tmux.press("Enter")
        await tmux.expect("has already ended.", "mudroom >> a draft")
        assert len(server.requests) == count


def run_slowly(request: ServerRequest) -> ServerAnswer:
    command = "for n in 1 2 3 4 5 6 7; do echo line $n; done; until test -e go; do sleep 0.05; done"
    return "seen" if request.turn else [make_call("bash", command=command)]


async def test_the_last_lines_of_a_command_are_shown_and_kept(tmux: Tmux, mudroom: Mudroom) -> None:
    async with ModelServer(run_slowly) as server:
        await tmux.start(*MODEL, url=server.url, columns=100)
        await tmux.expect("claude-s")
        await tmux.say("run it")
        shown = await tmux.expect("   line 3\n   line 4\n   line 5\n   line 6\n   line 7\n")
        assert "line 2" not in shown
        await tmux.press("C-c")
        await tmux.expect("Partial output until then:", "line 1", "line 7")
        await tmux.say("and now")
        await tmux.expect("seen")
        last = server.requests[-1].body.decode()
        assert "Partial output until then:" in last and "line 6\\nline 7" in last
        await tmux.press("C-d")
        assert await tmux.end() == 0
    assert (await mudroom("replay", "last")).code == 0
    assert not Path(mudroom.project, "go").exists()


async def test_a_compaction_is_one_line_and_its_notes_are_folded(tmux: Tmux) -> None:
    def answer(request: ServerRequest) -> ServerAnswer:
        is_summary = "the answer" in str(request.messages[-1]) and len(request.messages) > 2
        return "a note of mine" if is_summary else "hello"

    async with ModelServer(answer) as server:
        await tmux.start(*MODEL, url=server.url, columns=80)
        await tmux.expect("claude-s")
        await tmux.say("hi")
        await tmux.expect("hello")
        await tmux.say("/compact keep the answer")
        shown = await tmux.expect("Conversation compacted from", "/rewind undoes it.")
        assert shown.count("compacted") == 1 and "a note of mine" not in shown
        await tmux.press("C-o")
        await tmux.expect("a note of mine")
        await tmux.press("C-d")
        assert await tmux.end() == 0
        await tmux.close()
        await tmux.start(*MODEL, "-c", url=server.url, columns=80)
        shown = await tmux.expect("> hi", "hello", "Conversation compacted from")
        assert "conversation summary" not in shown
