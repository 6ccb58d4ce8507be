"""Background children at the prompt."""

from __future__ import annotations

import asyncio

import pytest
from tests.waiting import wait_until

from mudroom._core.messages import ToolCallBlock
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

from .conftest import Mudroom, Tmux
from .course import MODEL, find_prompt, make_call


class Script:
    """A parent that starts two children, and children that wait for `gate`.

    It holds its answer to a prompt with "think" until `may_answer` is set.
    """

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.is_thinking = asyncio.Event()

    async def __call__(self, request: ServerRequest) -> ServerAnswer:
        if "CHILD" in find_prompt(request):
            await self.gate.wait()
            return "the cellar is dry"
        if request.turn == 0:
            return [
                make_call("task", prompt=f"CHILD {name}", description=name, background=True)
                for name in ("cellar", "attic")
            ]
        if "think" in str(request.messages[-1]):
            self.is_thinking.set()
            await self.may_answer.wait()
        texts = str(request.messages)
        roof = "; the roof too" if "and the roof" in texts else ""
        return f"I have {texts.count('task-id>') // 2} reports{roof}."


async def look_around(tmux: Tmux, server: ModelServer) -> None:
    """Start a session whose two children work in the background."""
    await tmux.open(server, columns=110)
    await tmux.say("look around")
    await tmux.expect("I have 0 reports.", "2 in the background")


async def test_a_line_goes_to_the_model_at_once_while_only_children_work(tmux: Tmux) -> None:
    script = Script()
    async with ModelServer(script) as server:
        await look_around(tmux, server)
        await tmux.expect("2 in the background, ctrl+t: steer a child")
        await tmux.say("/cost")
        await tmux.expect("tokens in 3 runs")
        await tmux.say("and the roof")
        shown = await tmux.expect("I have 0 reports; the roof too.", "2 in the background")
        assert shown.count("and the roof") == 1 and "queued" not in shown
        await tmux.say("/compact")
        await tmux.expect("queued: /compact")
        await tmux.press("Escape")
        await tmux.expect(">> /compact", "2 in the background", gone="queued")
        await tmux.press("C-c")
        script.gate.set()
        await tmux.expect("I have 2 reports; the roof too.", gone="in the background")
        await tmux.leave()


async def test_an_interrupt_leaves_the_children_at_work_and_two_more_stop_them(tmux: Tmux) -> None:
    script = Script()
    async with ModelServer(script) as server:
        await look_around(tmux, server)
        await tmux.say("think")
        await script.is_thinking.wait()
        await tmux.expect("esc: stop", gone="in the background")
        await tmux.press("C-c")
        await tmux.expect("Interrupted; 2 children in the background continue", "2 in the backg")
        script.may_answer.set()
        await tmux.say("and the roof")
        await tmux.expect("I have 0 reports; the roof too.", "2 in the background")
        await tmux.press("Escape")
        await tmux.press("C-c", "C-c")
        await tmux.expect("Stopped 2 children.", gone="in the background, ")
        await tmux.leave()


async def test_at_the_plain_prompt_a_line_reaches_the_model_and_ctrl_c_stops_the_children(
    mudroom: Mudroom,
) -> None:
    async with (
        ModelServer(Script()) as server,
        mudroom.start_at_terminal("--screen-reader", *MODEL, url=server.url) as terminal,
    ):
        at = await terminal.expect("mudroom >> ")
        terminal.type("look around\n")
        at = await terminal.expect("I have 0 reports.", since=at)
        at = await terminal.expect("mudroom >> ", since=at)
        terminal.type("and the roof\n")
        at = await terminal.expect("I have 0 reports; the roof too.", since=at)
        at = await terminal.expect("mudroom >> ", since=at)
        terminal.type("\x03")
        at = await terminal.expect("Stopped 2 children.", since=at)
        terminal.type("\x04")
        assert await terminal.end() == 0


async def test_a_session_that_is_left_says_what_is_open_and_continues_it(tmux: Tmux) -> None:
    script = Script()
    async with ModelServer(script) as server:
        await look_around(tmux, server)
        await tmux.leave()
        await tmux.expect("Open: 1.1.1 cellar; 1.1.2 attic.", "mudroom --resume")
        await tmux.close()
        await tmux.start("-c", *MODEL, url=server.url, columns=110)
        await tmux.expect("your next prompt continues it", "2 in the background, ctrl+t")
        script.gate.set()
        await tmux.expect("claude-s", gone="in the background, ctrl+t")
        await tmux.say("what did they say")
        await tmux.expect("I have 2 reports.")
        await tmux.leave()


async def test_exit_leaves_a_model_that_works(tmux: Tmux) -> None:
    script = Script()
    async with ModelServer(script) as server:
        await look_around(tmux, server)
        await tmux.say("think")
        await script.is_thinking.wait()
        await tmux.say("/exit")
        assert await tmux.end() == 0
        await tmux.expect("mudroom --resume")


class Team:
    """Script of a root run with alice, who is idle, and bob, who waits for `go`."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.received: dict[str, list[str]] = {"alice": [], "bob": [], "main": []}

    async def __call__(self, asked: ServerRequest) -> ServerAnswer:
        first = str(asked.messages[0])
        last = str(asked.messages[-1])
        if "CHILD alice" in first:
            self.received["alice"].append(last)
            if "write to bob" in last:
                text = "the door is \x1b[31mgreen\x1b]0;owned\x07\nand open"
                return [ToolCallBlock("m", "send_message", {"to": "bob", "message": text})]
            return f"alice answers {asked.turn}"
        if "CHILD bob" in first:
            self.received["bob"].append(last)
            await self.go.wait()
            if asked.turn:
                return "bob has ended"
            return [ToolCallBlock("r", "read", {"file_path": "f0.txt"})]
        self.received["main"].append(last)
        if asked.turn == 0:
            return [start_child("alice")]
        if asked.turn == 1:
            return [start_child("bob", background=True)]
        return "all told" if "bob has ended" in str(asked.messages) else "bob works"


def start_child(name: str, *, background: bool = False) -> ToolCallBlock:
    """Return the call that starts a named child."""
    return ToolCallBlock(
        f"t-{name}",
        "task",
        {
            "name": name,
            "prompt": f"CHILD {name}",
            "description": f"work of {name}",
            "background": background,
        },
    )


@pytest.fixture
def team() -> Team:
    return Team()


async def start_team(tmux: Tmux, server: ModelServer) -> None:
    """Start the program and wait until alice is idle and bob works."""
    await tmux.open(server, columns=100, rows=40)
    await tmux.say("/team")
    await tmux.expect("There are no teammates.")
    await tmux.say("/inbox")
    await tmux.expect("There are no unread messages.")
    await tmux.say("start")
    await tmux.expect("bob works", "1 running")


async def test_the_roster_and_the_unread_messages_are_listed_while_a_run_works(
    tmux: Tmux, team: Team
) -> None:
    async with ModelServer(team) as server:
        await start_team(tmux, server)
        await tmux.say("/team")
        await tmux.expect("alice  general · idle · 1 run", "bob    general · working · 1 run")
        await tmux.expect("tokens · 0 unread")
        await tmux.press("C-t")
        await tmux.expect("m: message")
        await tmux.press("m")
        await tmux.expect("enter: send")
        await tmux.say("look at the end too")
        await tmux.expect("Message to bob: look at the end too")
        await tmux.say("/inbox")
        await tmux.expect("1  user → bob: look at the end too", "/inbox N shows a message")
        await tmux.say("/inbox 1")
        await tmux.expect("From user to bob:")
        await tmux.say("/inbox carol")
        await tmux.expect("no unread message has the number or the name carol")
        await tmux.say("/team")
        await tmux.expect("1 unread", "/inbox shows the unread messages.")
        team.go.set()
        await tmux.expect("all told")
        await tmux.say("/inbox all")
        await tmux.expect_scrolled("There are no unread messages.", 2)
        await tmux.say("/team")
        await tmux.expect("bob    general · idle · 1 run")
    assert "look at the end too" in team.received["bob"][-1]


async def test_a_line_to_a_named_child_starts_it_again_and_its_message_is_opened(
    tmux: Tmux, team: Team
) -> None:
    (tmux.mudroom.project / "alice").write_text("not this file")
    async with ModelServer(team) as server:
        await start_team(tmux, server)
        await tmux.say("@alice write to bob")
        await tmux.expect("Message to alice: write to bob")
        await tmux.expect("> task (alice, run 2): write to bob", "@alice  idle, 2 runs, 0 unread")
        await tmux.say("/team")
        await tmux.expect("alice  general · idle · 2 runs", "1 unread")
        await tmux.say("/inbox")
        await tmux.expect("1  alice → bob: the door is green and open")
        await tmux.say("/inbox bob")
        await tmux.expect("From alice to bob:", "the door is green\nand open")
        team.go.set()
        await tmux.expect("all told")
        await tmux.say("@alice are you there")
        await tmux.expect("Stored; alice works again with it at your next prompt.")
        await tmux.say("@allice go on")
        await tmux.expect_scrolled("@allice is no agent, named child or file here.", 1)
        await tmux.expect_scrolled("all told", 2)
    assert "write to bob" in team.received["alice"][1]
    assert "the door is" in str(team.received["bob"])
    assert "are you there" in str(team.received["alice"])
    assert "not this file" not in str(team.received["main"])


async def test_an_idle_child_is_opened_and_works_again_with_a_message_from_its_row(
    tmux: Tmux, team: Team
) -> None:
    async with ModelServer(team) as server:
        await start_team(tmux, server)
        await tmux.expect("@alice  idle, 1 run, 0 unread")
        await tmux.press("C-t", "Down")
        await tmux.expect("▸ @alice", "enter: open, m: message")
        await tmux.press("w")
        await tmux.expect("alice is idle. A message starts its next run: press m.")
        await tmux.press("Enter")
        await tmux.expect("run 1.1.1 · alice · general", "CHILD alice", "alice answers 0")
        await tmux.press("m")
        await tmux.expect("to alice >>")
        await tmux.say("write to bob")
        await tmux.expect_scrolled("Message to alice: write to bob", 1)
        await tmux.expect("@alice  idle, 2 runs, 0 unread")
        await tmux.press("C-t")
        await tmux.expect("▸bob")
        await tmux.press("Enter")
        await tmux.expect("message from alice, not read yet", "the door is green\n", "and open")
        await tmux.press("Escape")
        await tmux.expect("▸bob")
        await tmux.press("Escape")
        await tmux.expect("1 in the background, ctrl+t")
        await tmux.say("/runs")
        await tmux.expect("alice, run 2  write to bob", "@alice  idle, 2 runs, 0 unread")
        team.go.set()
        await tmux.expect("all told")


class Planner:
    """Script of a root run with bob, who plans until his plan is approved, then writes a file."""

    async def __call__(self, asked: ServerRequest) -> ServerAnswer:
        last = str(asked.messages[-1])
        if "CHILD bob" not in str(asked.messages[0]):
            return [start_planner()] if asked.turn == 0 else "the plan is there"
        if "too risky" in last:
            return "plan B: one file"
        if "approve" in last.lower():
            return [ToolCallBlock("w", "write", {"file_path": "b.txt", "content": "done"})]
        return "bob has written it" if asked.turn > 1 else "plan A: all files"


def start_planner() -> ToolCallBlock:
    """Return the call that starts bob with a plan."""
    arguments = {"name": "bob", "prompt": "CHILD bob", "description": "refactor", "plan": True}
    return ToolCallBlock("t-bob", "task", arguments)


async def test_a_plan_is_rejected_then_approved_at_the_prompt(tmux: Tmux) -> None:
    async with ModelServer(Planner()) as server:
        await tmux.start(
            *MODEL, "--permission-mode", "bypassPermissions", url=server.url, columns=100, rows=40
        )
        await tmux.expect("claude-s")
        await tmux.say("plan it")
        await tmux.expect("the plan is there", gone="esc: stop")
        await tmux.say("/approve")
        await tmux.expect("the name of a child is missing", "Plans wait from: bob.")
        await tmux.say("/approve bbo")
        await tmux.expect("unknown teammate 'bbo'", "Did you mean bob?")
        await tmux.say("/reject bob too risky")
        await tmux.expect("Refused the plan of bob: too risky", "works again with it at your next")
        await tmux.say("go on")
        await tmux.expect_scrolled("the plan is there", 2)
        # The first answer to "go on" may come before bob's plan; /team prints his state once.
        await tmux.expect("Session: 2 children", gone="esc: stop")
        await tmux.say("/team")
        await tmux.expect("bob  general · waits for approval · 2 runs")
        assert not (tmux.mudroom.project / "b.txt").exists()
        await tmux.say("/approve bob")
        await tmux.expect("Approved the plan of bob")
        await tmux.say("now do it")
        await wait_until((tmux.mudroom.project / "b.txt").exists)
        await tmux.expect("claude-s", gone="esc: stop")
        await tmux.say("/approve bob")
        await tmux.expect("Nothing was sent: bob has no open plan.")
        await tmux.leave()
