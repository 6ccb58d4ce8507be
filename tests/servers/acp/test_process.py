"""`mudroom acp` as a process: pure output, a quick start, an end with the input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any


def test_the_answer_to_initialize_needs_no_slow_import() -> None:
    code = (
        "import sys, mudroom._cli.commands.serve, mudroom._cli.actions.serve_acp\n"
        "slow = ('mudroom._session.session', 'mudroom._session.build', "
        "'mudroom._adapters.models.pricing', 'pydantic', 'acp')\n"
        "print([name for name in slow if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_process_answers_only_with_lines_and_ends_with_its_input(tmp_path: Path) -> None:
    messages: list[dict[str, Any]] = [
        {"id": 0, "method": "initialize", "params": {"protocolVersion": 1}},
        {"id": 1, "method": "session/new", "params": {"cwd": str(tmp_path), "mcpServers": []}},
        {"id": 2, "method": "session/list", "params": {}},
    ]
    lines = [json.dumps({"jsonrpc": "2.0", **message}) for message in messages]
    environ = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "MUDROOM_HOME": str(tmp_path / "home"),
        "MUDROOM_MODEL": "offline",
    }
    done = subprocess.run(
        [sys.executable, "-m", "mudroom", "acp"],
        input="\n".join([*lines, '{"jsonrpc": "2.0", "id": 3, "meth']),
        capture_output=True,
        text=True,
        env=environ,
        check=True,
    )
    answers = {line.get("id"): line for line in map(json.loads, done.stdout.splitlines())}
    assert answers[0]["result"]["agentInfo"]["name"] == "mudroom"
    assert answers[1]["result"]["modes"]["currentModeId"] == "default"
    assert answers[2]["result"] == {"sessions": []}
    assert "a line on stdin is no JSON" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_key_the_setup_says_so(tmp_path: Path) -> None:
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "mudroom", "acp", "--setup"]
    done = subprocess.run(command, capture_output=True, text=True, env=environ, check=False)
    assert done.returncode == 1
    assert "no model is set up" in done.stderr
    done = subprocess.run(
        [*command, "-m", "offline"], capture_output=True, text=True, env=environ, check=False
    )
    assert done.returncode == 0
    assert done.stdout.startswith("Model: offline (flag)")
