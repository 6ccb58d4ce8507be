"""Hooks and MCP servers of a folder, with the real program: used after trust, also with -p."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mudroom._adapters.models.scripted import call
from mudroom.testing import ModelServer, ServerRequest
from mudroom.testing.model_server import ServerAnswer

from ..integrations.mcp_servers.servers import count_starts
from .conftest import Mudroom
from .course import MODEL

OFFLINE = ("--model", "offline")


def write_hooks(mudroom: Mudroom, **commands: str) -> Path:
    """Write the hooks of the project, by event, and return the file."""
    hooks: dict[str, Any] = {
        event: [{"hooks": [{"type": "command", "command": command}]}]
        for event, command in commands.items()
    }
    path = mudroom.project / ".claude" / "settings.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"hooks": hooks}))
    return path


async def test_hooks_of_a_trusted_folder_run_and_read_what_happens(mudroom: Mudroom) -> None:
    script = mudroom.project / "hook.sh"
    script.write_text('#!/bin/sh\ncat > "$CLAUDE_PROJECT_DIR/seen-$1.json"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    command = '"$CLAUDE_PROJECT_DIR"/hook.sh'
    events = ("UserPromptSubmit", "PreToolUse", "Stop", "SessionEnd")
    write_hooks(mudroom, **{event: f"{command} {event}" for event in events})
    done = await mudroom("-p", "how many lines has f0.txt?", *OFFLINE, "--trust")
    assert (done.code, "not used" in done.err) == (0, False)
    inputs = {
        event: json.loads((mudroom.project / f"seen-{event}.json").read_text()) for event in events
    }
    assert inputs["UserPromptSubmit"]["prompt"] == "how many lines has f0.txt?"
    assert Path(inputs["Stop"]["transcript_path"]).is_file()
    assert inputs["PreToolUse"]["tool_name"] in ("Read", "Bash", "Grep", "Glob", "Agent")


async def test_a_prompt_that_a_hook_refuses_ends_with_its_reason(mudroom: Mudroom) -> None:
    write_hooks(mudroom, UserPromptSubmit="echo no prompts on Sundays >&2; exit 2")
    done = await mudroom("-p", "how many lines?", *OFFLINE, "--trust")
    assert done.code == 1
    assert "a hook refused the prompt: no prompts on Sundays" in done.err


async def test_a_hook_that_fails_is_a_notice_with_its_file(mudroom: Mudroom) -> None:
    path = write_hooks(mudroom, UserPromptSubmit="echo broken >&2; exit 3")
    done = await mudroom("-p", "how many lines?", *OFFLINE, "--trust")
    assert done.code == 0
    assert "A hook failed" in done.err
    assert "it ended with exit code 3: broken" in done.err
    assert str(path) in done.err


async def test_hooks_are_tried_with_an_example_and_the_list_has_their_last_runs(
    mudroom: Mudroom,
) -> None:
    path = write_hooks(mudroom, PreToolUse="grep -q push && echo no pushing >&2 && exit 2; exit 0")
    declared = json.loads(path.read_text())
    declared["hooks"]["PreToolUse"][0]["hooks"].append(
        {"type": "mcp_tool", "server": "s", "tool": "t", "onFailure": "block"}
    )
    path.write_text(json.dumps(declared))
    example = ("hooks", "test", "PreToolUse", "--tool", "bash", "--input")
    refused = await mudroom(*example, '{"command": "git push"}')
    assert "decision none" in " ".join(refused.out.split())
    assert "not used: 2 hooks of this folder" in refused.out + refused.err
    assert "not run here" not in refused.out
    await mudroom("trust", "add")
    done = await mudroom(*example, '{"command": "git push"}', "--json")
    tried = json.loads(done.out)
    assert tried["input"]["tool_name"] == "Bash"
    assert tried["outcome"]["decision"] == "deny"
    assert tried["outcome"]["reason"] == "no pushing"
    assert tried["not_run"] == ["s t"]
    passed = await mudroom(*example, '{"command": "git log"}')
    assert "decision none" in " ".join(passed.out.split())
    assert "not run here" in passed.out and "its server works in a session only" in passed.out
    listed = await mudroom("hooks")
    assert "last runs: exit code 0 in " in listed.out
    assert "exit code 2 in " in listed.out
    unknown = await mudroom("hooks", "test", "PreToolUs")
    assert (unknown.code, "PreToolUse" in unknown.err) == (2, True)


if TYPE_CHECKING:
    from tests.journeys.conftest import Mudroom

QUICK = Path(__file__).parent.parent / "integrations" / "mcp_servers" / "quick_server.py"


def declare_server(mudroom: Mudroom, fault: str = "", **env: str) -> Path:
    """Declare the small server in the project; return the file of its log."""
    log = mudroom.project / "log"
    env["SERVER_LOG"] = str(log)
    server = {"command": sys.executable, "args": [str(QUICK), fault], "env": env}
    (mudroom.project / ".mcp.json").write_text(json.dumps({"mcpServers": {"quick": server}}))
    return log


async def test_a_server_of_the_folder_is_used_after_trust_and_never_before(
    mudroom: Mudroom,
) -> None:
    log = declare_server(mudroom)
    results: list[str] = []

    def answer(request: ServerRequest) -> ServerAnswer:
        last = json.dumps(request.messages[-1])
        results.append(last)
        if "mcp_find" not in request.tools:
            return "no servers"
        if "tool_result" not in last:
            return [call("mcp_find", query="add")]
        return "done"

    async with ModelServer(answer) as server:
        refused = await mudroom("-p", "Add.", *MODEL, url=server.url)
        assert (refused.code, refused.out.strip()) == (0, "no servers")
        assert "not used: 1 MCP server of this folder" in refused.err
        assert count_starts(log) == 0
        done = await mudroom("-p", "Add.", *MODEL, "--trust", "-o", "stream-json", url=server.url)
    first, *_, last = map(json.loads, done.out.splitlines())
    assert (done.code, last["result"]) == (0, "done"), done.err
    assert first["mcp_servers"] == [{"name": "quick", "status": "pending"}]
    assert "not used" not in done.err
    assert "mcp__quick__add" in results[-1]
    assert count_starts(log) == 1


async def test_a_server_of_an_agent_file_is_used_after_trust_by_its_agent_alone(
    mudroom: Mudroom,
) -> None:
    log = mudroom.project / "log"
    server = {"command": sys.executable, "args": [str(QUICK)], "env": {"SERVER_LOG": str(log)}}
    path = mudroom.project / ".claude" / "agents" / "adder.md"
    path.parent.mkdir(parents=True)
    path.write_text(
        "---\nname: adder\ndescription: Adds.\ntools: Read\n"
        f"mcpServers:\n  - quick: {json.dumps(server)}\n  - absent\n---\nAdd.\n"
    )
    offered: list[str] = []

    def answer(request: ServerRequest) -> ServerAnswer:
        last = json.dumps(request.messages[-1])
        if "task" in request.tools:
            assert not any("mcp" in name for name in request.tools)
            agent = "flagged" if "flagged" in json.dumps(request.messages) else "adder"
            return "done" if "tool_result" in last else [call("task", agent=agent, prompt="Add.")]
        names = sorted(name for name in request.tools if "mcp" in name)
        offered.append(" ".join(names))
        is_first = "mcp_find" in names and "tool_result" not in last
        return [call("mcp_find", query="add")] if is_first else "added"

    async with ModelServer(answer) as model:
        refused = await mudroom("-p", "Delegate.", *MODEL, url=model.url)
        assert "not used: 1 MCP server of this folder" in refused.err
        assert "agent adder: its MCP server quick is not used" in refused.err
        assert (offered, count_starts(log)) == ([""], 0)
        listed = await mudroom("trust", "add", ".")
        assert "MCP server quick of agent adder" in listed.out + listed.err
        done = await mudroom("-p", "Delegate.", *MODEL, url=model.url)
        assert (done.code, done.out.strip()) == (0, "done"), done.err
        keys = {"description": "A.", "prompt": "A.", "mcpServers": {"quick": server}}
        flag = json.dumps({"flagged": keys})
        flagged = await mudroom("-p", "Use flagged.", *MODEL, "--agents", flag, url=model.url)
    assert "not used" not in done.err + flagged.err
    assert offered[1:] == ["mcp_call mcp_find"] * 4
    assert count_starts(log) == 2
    only = await mudroom("mcp")
    assert "only for runs of agent adder" in only.out


async def test_tools_are_listed_and_called_without_a_model(mudroom: Mudroom) -> None:
    declare_server(mudroom)
    unknown = await mudroom("mcp", "tools", "quick")
    assert (unknown.code, "unknown MCP server 'quick'" in unknown.err) == (2, True)
    assert (await mudroom("trust", "add", ".")).code == 0
    listed = await mudroom("mcp", "tools")
    assert listed.code == 0
    assert "mcp__quick__add" in listed.out
    assert "Add two numbers." in listed.out
    called = await mudroom("mcp", "call", "quick", "add", '{"a": 20, "b": 22}')
    assert (called.code, called.out) == (0, "42\n")
    wrong = await mudroom("mcp", "call", "quick", "add", '{"a": "x", "b": 22}')
    assert wrong.code == 2
    assert 'a: "x" is not of type "integer"' in wrong.err


async def test_a_question_of_a_server_is_asked_at_the_terminal_of_mcp_call(
    mudroom: Mudroom,
) -> None:
    color = {"type": "string", "enum": ["red", "blue"]}
    count = {"type": "integer", "maximum": 5, "default": 2}
    schema = {"type": "object", "properties": {"color": color, "count": count}}
    question = {"mode": "form", "message": "Which color?", "requestedSchema": schema}
    declare_server(mudroom, ASK=json.dumps(question))
    assert (await mudroom("trust", "add", ".")).code == 0
    declined = await mudroom("mcp", "call", "quick", "ask")
    assert (
        "declined without asking: stdin or stderr is not a terminal: Which color?" in declined.err
    )
    assert json.loads(declined.out) == {"action": "decline"}
    async with mudroom.start_at_terminal("mcp", "call", "quick", "ask") as terminal:
        terminal.type("red\r")  # before the question: it does not count as its answer
        await terminal.expect("MCP server quick asks: Which color?")
        await terminal.expect("color (one of: red, blue; not required):")
        terminal.type("green\r")
        await terminal.expect("'green' is not one of: red, blue")
        terminal.type("blue\r")
        await terminal.expect("count (integer; at most 5; Enter alone: 2):")
        terminal.type("7\r")
        await terminal.expect("7 is more than 5")
        terminal.type("\r")
        await terminal.expect('{"count": 2, "color": "blue"}')
    async with mudroom.start_at_terminal("mcp", "call", "quick", "ask") as terminal:
        await terminal.expect("not required):")
        terminal.type("\x04")
        await terminal.expect('{"action": "decline"}')


async def test_print_mode_sends_the_prompt_of_a_server(mudroom: Mudroom) -> None:
    declare_server(mudroom, "offers")
    prompts: list[str] = []

    def answer(request: ServerRequest) -> ServerAnswer:
        prompts.append(json.dumps(request.messages[-1]))
        return "done"

    async with ModelServer(answer) as server:
        line = "/mcp__quick__summarize parsers"
        done = await mudroom("-p", line, *MODEL, "--trust", url=server.url, stdin=b"data")
        assert (done.code, done.out.strip()) == (0, "done"), done.err
        wrong = await mudroom("-p", "/mcp__quick__summarize", *MODEL, "--trust", url=server.url)
        none = await mudroom("-p", line, *MODEL, url=server.url)
    assert "Summarize {'topic': 'parsers'} @agent-explore" in prompts[0]
    assert "data" in prompts[0] and len(prompts) == 1
    assert wrong.code == 2 and "topic is missing" in wrong.err
    assert none.code == 2 and "the session has no MCP server" in none.err
