"""Clients of the Agent Client Protocol in TypeScript: the SDK and `acpx`. Run: make fits."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from mudroom._core.messages import ToolCallBlock
from mudroom.testing import ModelServer, ServerRequest
from mudroom.testing.model_server import ServerAnswer

PLACE = os.environ.get("MUDROOM_FITS", "")
CLIENT = Path(__file__).with_name("acp_client.mjs")
PROMPT = "find what testing framework this project uses"

pytestmark = [
    pytest.mark.skipif(not PLACE, reason="needs the packages of Node; run make fits"),
    pytest.mark.timeout(180),
]


def run(folder: Path, *command: str, code: int = 0, **variables: str) -> str:
    """Run a client in a project, with the offline model, and return its output."""
    (folder / "pyproject.toml").write_text('[project]\nname = "x"\ndependencies = ["pytest"]\n')
    environ = {
        **os.environ,
        "HOME": str(folder),
        "MUDROOM_HOME": str(folder / "home"),
        "MUDROOM_MODEL": "offline",
        **variables,
    }
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    return done.stdout


def check_schema(method: str, value: Any) -> None:
    """Check a value against the JSON Schema of the protocol, unstable parts included."""
    folder = Path(PLACE, "node_modules/@agentclientprotocol/sdk/schema/v1")
    schema = json.loads((folder / "schema.unstable.json").read_text())
    checked = {"$ref": f"#/$defs/{method}", "$defs": schema["$defs"]}
    jsonschema_rs.validator_for(checked).validate(value)


def test_the_typescript_client_receives_children_as_subagents(tmp_path: Path) -> None:
    shutil.copy(CLIENT, PLACE)
    program = str(Path(sys.executable).with_name("mudroom"))
    client = str(Path(PLACE, CLIENT.name))
    received = json.loads(run(tmp_path, "node", client, program, str(tmp_path), PROMPT))
    assert received["answer"]["stopReason"] == "end_turn"
    check_schema("InitializeResponse", received["initialized"])
    check_schema("NewSessionResponse", received["session"])
    check_schema("PromptResponse", received["answer"])
    for params in received["updates"]:
        check_schema("SessionNotification", params)
    updates = [params["update"] for params in received["updates"]]
    states = [
        update["state"]["state"]
        for update in updates
        if update["sessionUpdate"] == "subagent_update"
    ]
    assert states == ["running", "idle"]


def run_acpx(
    folder: Path, *arguments: str, code: int = 0, **variables: str
) -> list[dict[str, Any]]:
    """Send a prompt with `acpx`, check the lines of mudroom, and return its updates and answer."""
    program = shlex.quote(str(Path(sys.executable).with_name("mudroom")))
    client = str(Path(PLACE, "node_modules/acpx/dist/cli.js"))
    flags = ("--agent", f"{program} acp", "--format", "json", "--json-strict")
    lines = run(folder, "node", client, *flags, *arguments, code=code, **variables)
    messages = [json.loads(line) for line in lines.splitlines()]
    received = [line["params"] for line in messages if line.get("method") == "session/update"]
    for params in received:
        check_schema("SessionNotification", params)
    check_schema("PromptResponse", messages[-1]["result"])
    return [*(params["update"] for params in received), messages[-1]["result"]]


def test_acpx_shows_a_child_as_a_call(tmp_path: Path) -> None:
    *updates, answer = run_acpx(tmp_path, "exec", PROMPT)
    assert answer["stopReason"] == "end_turn"
    states = [update["status"] for update in updates if update.get("toolCallId")]
    assert (states[0], states[-1]) == ("pending", "completed")
    texts = [
        update["content"]["text"]
        for update in updates
        if update["sessionUpdate"] == "agent_message_chunk"
    ]
    assert "**pytest**" in "".join(texts)


@pytest.mark.parametrize(
    ("flag", "state", "code"), [("--approve-all", "completed", 0), ("--deny-all", "failed", 5)]
)
async def test_acpx_answers_a_permission_request(
    tmp_path: Path, flag: str, state: str, code: int
) -> None:
    def answer(request: ServerRequest) -> ServerAnswer:
        if len(request.messages) > 1:
            return "Done."
        return [ToolCallBlock("c1", "write", {"path": "made.txt", "content": "mud"})]

    async with ModelServer(answer) as server:
        *updates, _ = await asyncio.to_thread(
            run_acpx,
            tmp_path,
            flag,
            "exec",
            "Write a file.",
            code=code,
            MUDROOM_MODEL="anthropic:claude-haiku-4-5",
            ANTHROPIC_API_KEY="k",
            ANTHROPIC_BASE_URL=server.url,
        )
    states = [update["status"] for update in updates if update.get("toolCallId")]
    assert states[-1] == state
    assert (tmp_path / "made.txt").exists() == (state == "completed")
