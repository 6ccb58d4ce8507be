"""mudroom as the CLI of Claude's agent SDK: the real SDK, its flags, and its end."""

import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import Any, Literal

import pytest
from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ResultMessage,
    SystemMessage,
    TextBlock,
    create_sdk_mcp_server,
    query,
    tool,
)
from claude_agent_sdk.types import (
    PermissionResult,
    PermissionResultAllow,
    PermissionResultDeny,
    ToolPermissionContext,
)
from tests.signals import send_signal
from tests.waiting import SECONDS

from mudroom._cli.commands.root import is_started_by_sdk, root_command, separate_sdk_flags
from mudroom._core.messages import ToolCallBlock
from mudroom.testing import ModelServer, ServerRequest
from mudroom.testing.model_server import ServerAnswer

from .conftest import Mudroom

FLAGS = ("--output-format", "stream-json", "--verbose", "--input-format", "stream-json")
EVERY_FLAG = {
    "--system-prompt": "Be brief.",
    "--append-system-prompt": "Be kind.",
    "--tools": "Read,Bash",
    "--allowedTools": "Read,Skill(pdf),Monitor",
    "--disallowedTools": "Bash(git push:*)",
    "--max-turns": "3",
    "--max-budget-usd": "0.5",
    "--task-budget": "1000",
    "--model": "claude-sonnet-4-5",
    "--fallback-model": "claude-haiku-4-5",
    "--betas": "context-1m",
    "--permission-prompt-tool": "stdio",
    "--permission-mode": "auto",
    "--settings": '{"permissions": {"deny": ["Read(./secret/**)"]}, "env": {}}',
    "--setting-sources": "user,project,local",
    "--add-dir": "/",
    "--mcp-config": '{"mcpServers": {"x": {"command": "none"}}}',
    "--plugin-dir": "/none",
    "--thinking": "adaptive",
    "--max-thinking-tokens": "10",
    "--thinking-display": "omitted",
    "--effort": "high",
    "--resume-drops-turn": "u1",
    "--resume-session-at": "u1",
    "--not-yet-known": "value",
}
SWITCHES = ("--strict-mcp-config", "--include-partial-messages", "--include-hook-events")


def make_options(mudroom: Mudroom, url: str, **more: Any) -> ClaudeAgentOptions:
    """Return options of the SDK that start the program of this repository."""
    program = Path(sys.executable).with_name("mudroom")
    env = {**mudroom.env, "ANTHROPIC_BASE_URL": url}
    return ClaudeAgentOptions(cli_path=program, env=env, cwd=mudroom.project, **more)


def make_prompt_line(text: str) -> bytes:
    message = {"role": "user", "content": text}
    return json.dumps({"type": "user", "message": message}).encode() + b"\n"


async def test_the_sdk_runs_a_query(mudroom: Mudroom) -> None:
    async with ModelServer(lambda _: "Four.") as server:
        options = make_options(mudroom, server.url, system_prompt="Be brief.", max_turns=2)
        messages = [message async for message in query(prompt="What is 2 + 2?", options=options)]
    (answer,) = [message for message in messages if isinstance(message, AssistantMessage)]
    assert answer.content == [TextBlock("Four.")]
    result = messages[-1]
    assert isinstance(result, ResultMessage)
    assert (result.result, result.is_error) == ("Four.", False)
    assert result.total_cost_usd
    assert server.requests[0].json["system"][0]["text"].startswith("Be brief.\n")


async def test_the_sdk_continues_and_forks_sessions(mudroom: Mudroom) -> None:
    chosen = "12345678-1234-4234-8234-123456789abc"
    async with ModelServer(lambda request: f"Answer {request.turn}.") as server:
        uuids: list[str | None] = []

        async def ask(prompt: str, **more: Any) -> tuple[str, str | None]:
            options = make_options(mudroom, server.url, **more)
            messages = [message async for message in query(prompt=prompt, options=options)]
            uuids.extend(each.uuid for each in messages if isinstance(each, AssistantMessage))
            assert isinstance(messages[-1], ResultMessage)
            return messages[-1].session_id, messages[-1].result

        assert await ask("One.", session_id=chosen) == (chosen, "Answer 0.")
        fork, result = await ask("Two.", resume=chosen, fork_session=True)
        assert (fork != chosen, result) == (True, "Answer 1.")
        assert await ask("Three.", continue_conversation=True) == (fork, "Answer 2.")
        first_answer = {"resume": fork, "resume_session_at": uuids[0]}
        assert await ask("Four.", **first_answer) == (fork, "Answer 1.")


@pytest.mark.parametrize("sources", [[], ["user"], ["project", "local"]])
async def test_only_the_files_of_the_named_sources_are_read(
    mudroom: Mudroom, sources: list[Literal["user", "project", "local"]]
) -> None:
    folders = {"user": Path(mudroom.env["HOME"], ".claude"), "project": mudroom.project / ".claude"}
    for name, folder in folders.items():
        for path, text in {
            f"commands/{name}-command.md": "Do it.",
            f"agents/{name}-agent.md": f"---\nname: {name}-agent\ndescription: Helps.\n---\nHelp.",
            f"skills/{name}-skill/SKILL.md": f"---\nname: {name}-skill\ndescription: Helps.\n---\n",
            "settings.json": json.dumps({"permissions": {"deny": [f"Read(/{name}/**)"]}}),
            "CLAUDE.md": f"Rules of the {name}.",
        }.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_text(text)
    (mudroom.project / "CLAUDE.local.md").write_text("Rules of the local.")
    async with ModelServer(lambda _: "Fine.") as server:
        options = make_options(mudroom, server.url, setting_sources=sources)
        messages = [message async for message in query(prompt="Work.", options=options)]
    first = next(message for message in messages if isinstance(message, SystemMessage))
    sent = json.dumps(server.requests[0].json)
    for name in ("user", "project", "local"):
        is_read = name in sources
        assert (f"Rules of the {name}." in sent) is is_read, name
        if name != "local":
            assert (f"{name}-skill" in sent) is is_read
            assert (f"{name}-agent" in first.data["agents"]) is is_read
            assert (f"{name}-command" in first.data["slash_commands"]) is is_read


@pytest.mark.filterwarnings("ignore::claude_agent_sdk.types.CanUseToolShadowedWarning")
async def test_the_client_of_the_sdk_decides_and_brings_tools(mudroom: Mudroom) -> None:
    def answer(request: ServerRequest) -> ServerAnswer:
        if request.turn:
            return "Done."
        return [
            ToolCallBlock("t1", "mcp__calc__add", {"a": 15, "b": 27}),
            ToolCallBlock("t4", "mcp__calc__divide", {"a": 15, "b": 0}),
            ToolCallBlock("t2", "bash", {"command": "touch made"}),
            ToolCallBlock("t3", "bash", {"command": "touch refused"}),
        ]

    @tool("add", "Add two numbers", {"a": float, "b": float})
    async def add(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": f"sum {arguments['a'] + arguments['b']}"}]}

    @tool("divide", "Divide two numbers", {"a": float, "b": float})
    async def divide(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": str(arguments["a"] / arguments["b"])}]}

    asked: list[str] = []

    async def decide(
        name: str, arguments: dict[str, Any], _: ToolPermissionContext
    ) -> PermissionResult:
        asked.append(name)
        if "refused" in str(arguments):
            return PermissionResultDeny(message="Not this.")
        return PermissionResultAllow()

    calculator = create_sdk_mcp_server("calc", tools=[add, divide])
    async with ModelServer(answer) as server:
        options = make_options(
            mudroom,
            server.url,
            can_use_tool=decide,
            mcp_servers={"calc": calculator},
            allowed_tools=["mcp__calc__add", "mcp__calc__divide"],
        )
        async with ClaudeSDKClient(options) as client:
            await client.query("Work.")
            first = str([message async for message in client.receive_response()])
            await client.set_permission_mode("plan")
            await client.query("Again.")
            second = str([message async for message in client.receive_response()])
            assert "sum 42" in first
            assert "division by zero" in first
            assert "Not this." in first
            assert "'permissionMode': 'plan'" in second
    assert asked == ["Bash", "Bash"]
    assert (mudroom.project / "made").exists()
    assert not (mudroom.project / "refused").exists()


def test_a_flag_of_the_sdks_has_its_value_after_a_sign_or_as_the_next_argument() -> None:
    joined = [f"{name}={value}" for name, value in EVERY_FLAG.items()]
    separate = [word for pair in EVERY_FLAG.items() for word in pair]
    assert is_started_by_sdk(FLAGS)
    assert is_started_by_sdk(["--input-format=stream-json"])
    assert not any(map(is_started_by_sdk, ([], ["--input-format"], ["stream-json"])))
    first, second = (
        separate_sdk_flags([*SWITCHES, *flags], root_command) for flags in (joined, separate)
    )
    assert first.rest == second.rest
    assert first.values == second.values
    assert first.notices == second.notices
    assert "not used by mudroom: --not-yet-known" in first.notices


async def test_every_flag_of_the_sdks_is_accepted(mudroom: Mudroom) -> None:
    flags = [word for pair in EVERY_FLAG.items() for word in pair]
    async with ModelServer(lambda _: "Fine.") as server:
        done = await mudroom(
            *FLAGS, *SWITCHES, *flags, stdin=make_prompt_line("Hi."), url=server.url
        )
    assert done.code == 0, done.err
    result = next(line for line in done.out.splitlines() if '"type":"result"' in line)
    assert json.loads(result)["result"] == "Fine."
    for name in ("--betas", "--effort", "--not-yet-known", "env of --settings", "Monitor"):
        assert done.err.count(name) == 1, done.err
    offered = server.requests[0].tools
    assert offered[:2] == ["bash", "read"]
    assert "write" not in offered
    system = server.requests[0].json["system"][0]["text"]
    assert system.startswith("Be brief.\n\nBe kind.")


async def test_a_session_that_gets_sigterm_inside_a_prompt_is_continued(mudroom: Mudroom) -> None:
    entered = asyncio.Event()
    is_released = False

    async def answer(request: ServerRequest) -> ServerAnswer:
        if "CHILD" in str(request.messages[0]["content"]):
            if not is_released:
                entered.set()
                await asyncio.sleep(SECONDS)
            return "The child is done."
        if request.turn == 0:
            return [ToolCallBlock("t0", "task", {"prompt": "CHILD"})]
        return "All is done."

    async with ModelServer(answer) as server:
        process = await mudroom.start(*FLAGS, url=server.url, stdin=asyncio.subprocess.PIPE)
        assert process.stdin and process.stdout
        process.stdin.write(make_prompt_line("Work for long."))
        await entered.wait()
        send_signal(process, signal.SIGTERM)
        async with asyncio.timeout(SECONDS):
            out, err = await process.communicate()
        assert process.returncode == 143 and b"Traceback" not in err, err.decode()
        (listed,) = json.loads((await mudroom("runs", "--json")).out)
        assert listed["state"] == "interrupted", out.decode()
        is_released = True
        words = (*FLAGS, "--resume", listed["id"])
        done = await mudroom(*words, stdin=make_prompt_line("Go on."), url=server.url)
        assert done.code == 0, done.err
        requests = [each for each in server.requests if each.turn == 0]
    lines = [json.loads(line) for line in done.out.splitlines()]
    results = [line for line in lines if line["type"] == "result"]
    assert [(each["subtype"], each["result"]) for each in results] == [("success", "All is done.")]
    prompts = [str(each.messages[0]["content"]) for each in requests]
    assert sum("Work for long." in each for each in prompts) == 1, "its answer was bought once"
    (listed,) = json.loads((await mudroom("runs", "--json")).out)
    assert listed["state"] == "finished"


async def test_servers_of_a_flag_work_beside_those_of_the_host(mudroom: Mudroom) -> None:
    def answer(request: ServerRequest) -> ServerAnswer:
        if request.turn == 0:
            return [ToolCallBlock("t0", "mcp_find", {"query": "add"})]
        if request.turn == 2:
            return "Done."
        arguments = {"tool": "mcp__small__add", "arguments": {"a": 2, "b": 3}}
        return [ToolCallBlock("t1", "mcp_call", arguments)]

    script = Path(__file__).parents[1] / "integrations" / "mcp_servers" / "small_server.py"
    entry = {"command": sys.executable, "args": [str(script)]}
    config = json.dumps({"mcpServers": {"small": entry, "broken": {"args": 3}}})
    async with ModelServer(answer) as server:
        done = await mudroom(
            *FLAGS,
            "--mcp-config",
            config,
            "--strict-mcp-config",
            stdin=make_prompt_line("Add."),
            url=server.url,
        )
    lines = [json.loads(line) for line in done.out.splitlines()]
    init = next(line for line in lines if line.get("subtype") == "init")
    assert init["mcp_servers"] == [{"name": "small", "status": "pending"}]
    results = [line["message"]["content"][0] for line in lines if line["type"] == "user"]
    assert results[1]["content"] == "5", done.err
    assert "broken" in done.err
