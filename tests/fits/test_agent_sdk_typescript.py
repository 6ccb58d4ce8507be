"""Programs with the TypeScript agent SDK, which start mudroom as their CLI. Run: make fits."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.servers.conftest import SUBTYPES
from tests.waiting import SECONDS

from mudroom._core.messages import ToolCallBlock
from mudroom.testing import ModelServer, ServerRequest
from mudroom.testing.model_server import ServerAnswer

PLACE = os.environ.get("MUDROOM_FITS", "")
GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "agent-sdks.md"
PROGRAMS = Path(__file__).with_name("programs.mjs")

pytestmark = [
    pytest.mark.skipif(not PLACE, reason="needs the packages of Node; run make fits"),
    pytest.mark.timeout(180),
]


def read_prompt(request: ServerRequest) -> str:
    """Return the text of the last message, "" if it has tool results."""
    content = request.messages[-1]["content"]
    if isinstance(content, str):
        return content
    if any(block["type"] == "tool_result" for block in content):
        return ""
    return " ".join(block.get("text", "") for block in content)


def make_call(line: str, number: int) -> ToolCallBlock:
    """Return the call of a line such as `CALL bash touch made`."""
    _, name, *words = line.split()
    arguments: dict[str, Any] = {"command": " ".join(words)}
    if name == "task":
        arguments = {"prompt": "Look.", "agent": words[0]}
    elif name.startswith("mcp__"):
        arguments = {"a": int(words[0]), "b": int(words[1])}
    return ToolCallBlock(f"c{number}", name, arguments)


async def answer(request: ServerRequest) -> ServerAnswer:
    """Do as the prompt says."""
    prompt = read_prompt(request)
    if calls := [line for line in prompt.splitlines() if line.startswith("CALL ")]:
        return [make_call(line, number) for number, line in enumerate(calls)]
    if prompt.startswith("WAIT"):
        await asyncio.sleep(SECONDS)
    if prompt.startswith("EMIT"):
        emission = {"emit_variable_name": "n", "emit_variable_value": 4}
        tool = next(tool for tool in request.tools if "emit" in tool)
        return [ToolCallBlock("e1", tool, emission)]
    return prompt.removeprefix("Say ").rstrip(".").capitalize() or "Done."


EXPECTED: dict[str, dict[str, Any]] = {
    "simpleQuery": {"types": ["system", "assistant", "result"], "result": "It"},
    "streamingInput": {"results": ["One", "Two"]},
    "denyAndStop": {"subtype": "error_during_execution"},
    "interrupt": {"found": [["error_during_execution", None], ["success", "More"]]},
    "structuredOutput": {"output": {"n": 4}},
    "sessions": {"isForked": True, "isContinued": True},
    "changedServers": {
        "first": {"added": ["broken", "calc"], "failed": ["broken"]},
        "second": {"added": [], "removed": ["calc", "broken"], "errors": {}},
        "states": {"calc": "connected", "broken": "failed", "early": "pending"},
        "texts": ["sum 42"],
    },
    "partialMessages": {
        "events": [
            "message_start",
            "content_block_start",
            "content_block_delta",
            "content_block_stop",
            "message_delta",
            "message_stop",
        ]
    },
}
"""Output of the programs whose whole output is fixed."""


async def run_program(name: str, folder: Path) -> dict[str, Any]:
    """Run a program of `programs.mjs` with a model server and return its output."""
    shutil.copy(PROGRAMS, Path(PLACE, "programs.mjs"))
    return json.loads(await run_node(folder, "programs.mjs", name))


async def run_node(folder: Path, *arguments: str) -> str:
    """Run a program of the folder of packages with a model server and return its output."""
    node = shutil.which("node")
    assert node
    project = folder / "project"
    project.mkdir()
    async with ModelServer(answer) as server:
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "MUDROOM_HOME": str(folder / "home"),
            "MUDROOM_PROGRAM": str(Path(sys.executable).with_name("mudroom")),
            "ANTHROPIC_API_KEY": "k",
            "ANTHROPIC_BASE_URL": server.url,
        }
        process = await asyncio.create_subprocess_exec(
            node,
            str(Path(PLACE, arguments[0])),
            *arguments[1:],
            cwd=project,
            env=env,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode()


def test_no_control_request_is_new_in_the_sdk() -> None:
    types = Path(PLACE, "node_modules/@anthropic-ai/claude-agent-sdk/sdk.d.ts").read_text()
    (union,) = re.findall(r"type SDKControlRequestInner = (.*?);", types)
    subtypes = {
        re.findall(rf"type {name} = \{{\s*(?:/\*.*?\*/\s*)?subtype: '(\w+)'", types, re.DOTALL)[0]
        for name in union.split(" | ")
    }
    assert subtypes == set(SUBTYPES)


async def test_the_program_of_the_guide_works(tmp_path: Path) -> None:
    (program,) = re.findall(r"^```js\n(.*?)^```$", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    Path(PLACE, "ask.mjs").write_text(program)
    assert await run_node(tmp_path, "ask.mjs") == "success What is paper.md about?\n"


@pytest.mark.parametrize("name", EXPECTED)
async def test_a_program_has_its_output(name: str, tmp_path: Path) -> None:
    assert await run_program(name, tmp_path) == EXPECTED[name]


async def test_the_program_decides_on_calls(tmp_path: Path) -> None:
    output = await run_program("permissions", tmp_path)
    assert output["asked"] == ["Bash", "Bash"]
    assert "Not this." in output["texts"][1]
    assert [path.name for path in (tmp_path / "project").iterdir()] == ["made"]


async def test_the_program_changes_the_arguments_of_a_call(tmp_path: Path) -> None:
    await run_program("changedInput", tmp_path)
    assert [path.name for path in (tmp_path / "project").iterdir()] == ["right"]


async def test_a_hook_of_the_program_blocks_a_call(tmp_path: Path) -> None:
    output = await run_program("hooks", tmp_path)
    assert output["called"] == [["PreToolUse", "Bash", "touch made"]]
    assert "A hook said no." in output["texts"][0]


async def test_the_program_brings_tools(tmp_path: Path) -> None:
    output = await run_program("ownTools", tmp_path)
    assert output == {
        "texts": ["sum 42"],
        "servers": [{"name": "calc", "status": "connected"}],
    }


async def test_the_program_brings_agents(tmp_path: Path) -> None:
    output = await run_program("agents", tmp_path)
    assert "reviewer" in output["names"]
    assert output["started"] == ["reviewer"]


async def test_a_turn_limit_is_a_result(tmp_path: Path) -> None:
    assert (await run_program("turnLimit", tmp_path))["subtype"] == "error_max_turns"


async def test_a_program_asks_for_information(tmp_path: Path) -> None:
    output = await run_program("information", tmp_path)
    assert output["agents"] == ["general", "explore", "plan"]
    assert output["commands"] == []
    assert "not supported by mudroom: rewind_files" in output["refused"]


async def test_a_program_changes_mode_and_model(tmp_path: Path) -> None:
    output = await run_program("changes", tmp_path)
    assert output["last"] == ["plan", "anthropic:claude-haiku-4-5"]
    assert output["models"] > 1
