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


def run_acp(folder: Path, *words: str, input: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mudroom", "acp", *words],
        input=input,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder)},
        check=False,
    )


def test_the_process_answers_only_with_lines_and_ends_with_its_input(tmp_path: Path) -> None:
    messages: list[dict[str, Any]] = [
        {"id": 0, "method": "initialize", "params": {"protocolVersion": 1}},
        {"id": 1, "method": "session/new", "params": {"cwd": str(tmp_path), "mcpServers": []}},
        {"id": 2, "method": "session/list", "params": {}},
    ]
    lines = [json.dumps({"jsonrpc": "2.0", **message}) for message in messages]
    lines.append('{"jsonrpc": "2.0", "id": 3, "meth')
    done = run_acp(tmp_path, "-m", "offline", input="\n".join(lines))
    assert done.returncode == 0
    answers = {line.get("id"): line for line in map(json.loads, done.stdout.splitlines())}
    assert answers[0]["result"]["agentInfo"]["name"] == "mudroom"
    assert answers[1]["result"]["modes"]["currentModeId"] == "default"
    assert answers[2]["result"] == {"sessions": []}
    assert "a line on stdin is no JSON" in done.stderr
    assert "Traceback" not in done.stderr


def test_without_a_key_the_setup_says_so(tmp_path: Path) -> None:
    done = run_acp(tmp_path, "--setup")
    assert done.returncode == 1
    assert "no model is set up" in done.stderr
    done = run_acp(tmp_path, "--setup", "-m", "offline")
    assert done.returncode == 0
    assert done.stdout.startswith("Model: offline (flag)")
