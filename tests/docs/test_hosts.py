"""Every configuration of the page about hosts is read by a reader of its format, and it starts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.docs.shell_page import make_environ

from mudroom._adapters.integrations.hook_programs.load import load_hooks
from mudroom._adapters.integrations.mcp_servers.load import load_servers
from mudroom._adapters.integrations.mcp_servers.spec import ServerSpec
from mudroom._adapters.integrations.tracing.variables import explain_off, find_address, has_address

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "hosts.md").read_text("utf-8")
BLOCK = re.compile(r"^`(?P<path>[\w./~-]+)`:\n\n```\w+\n(?P<text>.*?)^```$", re.M | re.S)
FILES = {block["path"]: block["text"] for block in BLOCK.finditer(PAGE)}
FLAGS = [".mcp.json", ".vscode/mcp.json"]
PLAIN = [".cursor/mcp.json", ".gemini/settings.json", "~/.codex/config.toml"]
ACP_EDITORS = ["~/.config/zed/settings.json", "~/.jetbrains/acp.json"]
HOOKS = ".claude/settings.json"


def load_block(folder: Path, path: str) -> ServerSpec:
    """Write a block to its file, and return the server that mudroom reads there."""
    project = folder / "home" / "project"
    (project / ".git").mkdir(parents=True)
    file = folder / "home" / path[2:] if path.startswith("~/") else project / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(FILES[path])
    loaded = load_servers(str(project), user_home=str(folder / "home"), environ={})
    assert not [str(finding) for finding in loaded.findings if finding.is_problem]
    (server,) = loaded.servers
    assert Path(server.origin) == file
    return server


def run_at_end_of_input(folder: Path, args: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Start mudroom as a host does that leaves at once."""
    (folder / "home").mkdir(exist_ok=True)
    return subprocess.run(
        [sys.executable, "-m", "mudroom", *args],
        cwd=folder,
        env={**make_environ(folder / "home"), "MUDROOM_MODEL": "offline"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_every_file_of_the_page_is_tested() -> None:
    assert sorted(FILES) == sorted([*FLAGS, *PLAIN, *ACP_EDITORS, HOOKS])
    assert PAGE.count("\n```json\n") + PAGE.count("\n```toml\n") == len(FILES)


@pytest.mark.parametrize("path", [*FLAGS, *PLAIN])
def test_a_block_is_a_server_of_its_program(path: str, tmp_path: Path) -> None:
    server = load_block(tmp_path, path)
    assert (server.name, server.transport, server.command) == ("mudroom", "stdio", "mudroom")
    assert server.args[:2] == ("mcp", "serve")
    assert bool(server.args[2:]) == (path in FLAGS)
    if path in ("~/.codex/config.toml", ".gemini/settings.json"):
        assert server.call_timeout == 3600


@pytest.mark.parametrize("path", FLAGS)
def test_a_server_starts_with_the_flags_of_its_block(path: str, tmp_path: Path) -> None:
    done = run_at_end_of_input(tmp_path, load_block(tmp_path, path).args)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("path", ACP_EDITORS)
def test_the_agent_of_an_editor_starts(path: str, tmp_path: Path) -> None:
    table: dict[str, Any] = json.loads(FILES[path])
    agent = table["agent_servers"]["mudroom"]
    assert agent["command"] == "mudroom"
    done = run_at_end_of_input(tmp_path, tuple(agent["args"]))
    assert done.returncode == 0, done.stderr
    for server in table.get("context_servers", {}).values():
        assert (server["command"], server["args"]) == ("mudroom", ["mcp", "serve"])


def test_the_hook_of_the_page_is_read(tmp_path: Path) -> None:
    file = tmp_path / HOOKS
    file.parent.mkdir()
    file.write_text(FILES[HOOKS])
    loaded = load_hooks(str(tmp_path), user_home=str(tmp_path / "home"))
    assert not loaded.findings
    (hook,) = loaded.hooks
    assert (hook.event, hook.command) == ("PostToolUse", "make format")


def test_the_variables_of_the_page_turn_traces_on() -> None:
    block = re.search(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)
    assert block
    command = ["sh", "-ec", f"{block[1]}env -0"]
    output = subprocess.run(command, env={}, capture_output=True, text=True, check=True).stdout
    variables = dict(line.split("=", 1) for line in output.split("\0") if line)
    assert has_address(variables)
    assert not explain_off(variables)
    assert find_address(variables) == "http://localhost:4318/v1/traces"
    assert variables["OTEL_EXPORTER_OTLP_HEADERS"] == "x-api-key=KEY"


def test_every_link_of_the_page_to_a_heading_exists() -> None:
    headings = {
        line[3:].strip().lower().replace(" ", "-")
        for line in PAGE.splitlines()
        if line.startswith("## ")
    }
    links = set(re.findall(r"\]\(#([\w-]+)\)", PAGE))
    assert links
    assert links <= headings
