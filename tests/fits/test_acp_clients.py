"""An editor with the TypeScript client of the Agent Client Protocol. Run: make fits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

PLACE = os.environ.get("MUDROOM_FITS", "")
CLIENT = Path(__file__).with_name("acp_client.mjs")
PROMPT = "find what testing framework this project uses"

pytestmark = [
    pytest.mark.skipif(not PLACE, reason="needs the packages of Node; run make fits"),
    pytest.mark.timeout(180),
]


def run(folder: Path, *command: str) -> str:
    """Run a client in a project, with the offline model, and return its output."""
    (folder / "pyproject.toml").write_text('[project]\nname = "x"\ndependencies = ["pytest"]\n')
    environ = {
        **os.environ,
        "HOME": str(folder),
        "MUDROOM_HOME": str(folder / "home"),
        "MUDROOM_MODEL": "offline",
    }
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_schema(method: str, value: Any) -> None:
    """Check a value against the JSON Schema of the protocol, unstable parts included."""
    folder = Path(PLACE, "node_modules/@agentclientprotocol/sdk/schema/v1")
    schema = json.loads((folder / "schema.unstable.json").read_text())
    checked = {"$ref": f"#/$defs/{method}", "$defs": schema["$defs"]}
    jsonschema_rs.validator_for(checked).validate(value)


def test_the_typescript_client_receives_children_as_subagents(tmp_path: Path) -> None:
    shutil.copy(CLIENT, PLACE)
    program = shutil.which("mudroom")
    assert program
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
