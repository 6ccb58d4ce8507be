"""What `mudroom -p` does until its first model request has arrived."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import Struct

PROGRAM = """
import json, os, re, signal, sys
import re._compiler

compiled = []
compile_pattern = re._compiler.compile

def record_pattern(pattern, flags=0):
    frame = sys._getframe()
    while frame and frame.f_globals["__name__"] in ("re", "__main__"):
        frame = frame.f_back
    module = frame.f_globals["__name__"]
    while frame and frame.f_globals["__name__"] != "importlib._bootstrap":
        frame = frame.f_back
    compiled.append([module, str(pattern), frame is not None])
    return compile_pattern(pattern, flags)

def report(*_):
    with open(sys.argv.pop(), "w") as file:
        json.dump({"modules": sorted(sys.modules), "patterns": compiled}, file)
    os._exit(0)

re._compiler.compile = record_pattern
signal.signal(signal.SIGUSR1, report)
from mudroom._cli.main import main
main(sys.argv[1:-1])
"""
"""The command line, with a report about itself when it is sent SIGUSR1."""


class Start(Struct):
    """Modules that a process has imported, and patterns: module, pattern, if at its import."""

    modules: list[str]
    patterns: list[tuple[str, str, bool]]

    def list_own_modules(self) -> list[str]:
        return [name for name in self.modules if name.partition(".")[0] == "mudroom"]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Start:
    """The state of `mudroom -p` when its first request has arrived."""
    folder = tmp_path_factory.mktemp("start")
    result = folder / "result.json"
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "ANTHROPIC_API_KEY": "key",
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{server.getsockname()[1]}",
        }
        words = ["-p", "Say hello.", "--model", "anthropic:claude-sonnet-4-5", "-C", str(folder)]
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words, str(result)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environ,
        )
        connection, _ = server.accept()
        with connection:
            connection.recv(1)
            process.send_signal(signal.SIGUSR1)
            _, errors = process.communicate(timeout=60)
    assert not process.returncode, errors.decode()
    found = json.loads(Path(result).read_bytes())
    return Start(found["modules"], [tuple(pattern) for pattern in found["patterns"]])


def test_no_module_compiles_a_pattern_when_it_is_imported(start: Start) -> None:
    own = [
        f"{module}: {pattern}"
        for module, pattern, at_import in start.patterns
        if at_import and module.partition(".")[0] == "mudroom"
    ]
    assert not own


MAX_OWN_MODULES = 300
"""Modules of mudroom that a start may import. Each costs about 0.3 ms."""

LATER = {
    "aiohttp",
    "dataclasses",
    "opentelemetry",
    "difflib",
    "prompt_toolkit",
    "rich",
    "shlex",
    "yaml",
    "mudroom._engine.children.child_run",
    "mudroom._engine.children.team",
    "mudroom._engine.compaction.shortening",
    "mudroom._engine.resume",
    "mudroom._engine.tool_calls",
    "mudroom._cli.actions.permissions",
    "mudroom._cli.commands.sessions",
    "mudroom._cli.output.live_tree",
    "mudroom._cli.output.markdown",
    "mudroom._adapters.boards",
    "mudroom._adapters.integrations.usable_programs",
    "mudroom._projections.spans",
    "mudroom._projections.stream_json",
    "mudroom.scope",
    "mudroom._viewer",
}
"""Modules that are imported when a command, an answer or a file needs them."""


def test_a_start_imports_few_modules(start: Start) -> None:
    assert not LATER.intersection(start.modules)
    assert len(start.list_own_modules()) <= MAX_OWN_MODULES


def test_a_list_of_sessions_needs_no_event_loop_and_an_address_no_web_server(
    tmp_path: Path,
) -> None:
    program = """
import sys
from mudroom._cli.main import run

assert run(["runs"]) == 0
assert "asyncio" not in sys.modules
import mudroom._cli.actions.serve_viewer
assert "aiohttp" not in sys.modules and "mudroom._adapters.workspaces" not in sys.modules
"""
    environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environ, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert "No sessions" in ended.stdout
