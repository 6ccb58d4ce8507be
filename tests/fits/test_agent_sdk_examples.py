"""The example programs of the Python agent SDK, unchanged, with mudroom as their CLI.

The SDK is its source archive, which has no CLI of its own, so it takes `claude` of the PATH: a link
to mudroom. Run: make fits.
"""

from __future__ import annotations

import ast
import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest
from tests.waiting import SECONDS

from mudroom._core.messages import ToolCallBlock
from mudroom.testing import ModelServer, ServerRequest
from mudroom.testing.model_server import ServerAnswer

PLACE = os.environ.get("MUDROOM_FITS", "")

pytestmark = [
    pytest.mark.skipif(not PLACE, reason="needs the packages of requirements/fits; run make fits"),
    pytest.mark.timeout(180),
]

CALLS: dict[str, tuple[str, dict[str, object]]] = {
    "hello.txt": ("write", {"path": "hello.txt", "content": "Hello, World!"}),
    "hello.py": ("write", {"path": "hello.py", "content": "print('Hello')\n"}),
    "important_config.txt": ("write", {"path": "important_config.txt", "content": "test data"}),
    "regular_file.txt": ("write", {"path": "regular_file.txt", "content": "test data"}),
    "./foo.sh": ("bash", {"command": "./foo.sh --help"}),
    "Hello from hooks": ("bash", {"command": "echo 'Hello from hooks example!'"}),
    "Hello from bash": ("bash", {"command": "echo 'Hello from bash!'"}),
    "CRITICAL": ("bash", {"command": "echo 'CRITICAL ERROR: system failure'"}),
    "Run this command": ("bash", {"command": "ls /nonexistent_directory"}),
    "sleep command": ("bash", {"command": "sleep 5"}),
    "code-reviewer agent": ("task", {"prompt": "Review it.", "agent": "code-reviewer"}),
    "doc-writer agent": ("task", {"prompt": "Explain it.", "agent": "doc-writer"}),
    "analyzer agent": ("task", {"prompt": "Find them.", "agent": "analyzer"}),
    "15 + 27": ("mcp__calc__add", {"a": 15, "b": 27}),
    "divided by": ("mcp__calc__divide", {"a": 100, "b": 7}),
}
"""The call that the model makes for a text of a prompt, if the run has the tool."""

EXPECTED = {
    "quick_start.py": ["Claude: Fine.", "Cost: $"],
    "agents.py": ["=== Code Reviewer Agent Example ===", "Claude: Fine."],
    "filesystem_agents.py": ["SUCCESS: Received full", "SUCCESS: test-agent was loaded"],
    "hooks.py all": ["Blocked command: ./foo.sh", "Blocked Write to", "Critical error detected"],
    "include_partial_messages.py": ["StreamEvent"],
    "max_budget_usd.py": ["Budget limit exceeded!"],
    "mcp_calculator.py": ["Tool Result: 15 + 27 = 42"],
    "plugin_example.py": ["- demo-plugin", "Plugin successfully configured!"],
    "setting_sources.py all": [
        "✓ /commit is available (expected: CLI defaults loaded)",
        "✓ /commit is NOT available (expected: sources disabled)",
        "✓ /commit is NOT available (expected)",
        "✓ /commit is available (expected)",
    ],
    "stderr_callback_example.py": ["Captured 0 stderr lines"],
    "streaming_mode.py all": ["Fine."],
    "streaming_mode_ipython.py": ["Fine."],
    "streaming_mode_trio.py": ["Fine."],
    "system_prompt.py": ["Claude: Fine."],
    "tool_permission_callback.py": ["1. Tool: Write", "Claude: Fine."],
    "tools_option.py": ["Fine."],
}
"""Texts that each program prints, by its name and arguments."""


def read_text(content: str | list[dict[str, object]]) -> str:
    """Return the text of a message, "" if it has tool results."""
    if isinstance(content, str):
        return content
    return " ".join(str(block.get("text", "")) for block in content)


async def answer(request: ServerRequest) -> ServerAnswer:
    """Make the calls that a prompt names; wait if it asks to count slowly, for the interrupt."""
    prompt = read_text(request.messages[-1]["content"])
    if "Count from" in prompt:
        await asyncio.sleep(SECONDS)
    calls = [
        ToolCallBlock(f"c{number}", name, arguments)
        for number, (text, (name, arguments)) in enumerate(CALLS.items())
        if text in prompt and name in request.tools
    ]
    return calls or "Fine."


def copy_examples(folder: Path) -> Path:
    """Copy the SDK with its examples, and return the folder of the examples."""
    source = Path(PLACE, "examples")
    shutil.copytree(source / "src", folder / "sdk" / "src")
    shutil.copytree(source / "examples", folder / "sdk" / "examples")
    agents = folder / "sdk" / ".claude" / "agents"
    agents.mkdir(parents=True)
    (agents / "test-agent.md").write_text(
        "---\nname: test-agent\ndescription: Tests.\n---\nTest it.\n"
    )
    commands = folder / "sdk" / ".claude" / "commands"
    commands.mkdir()
    (commands / "commit.md").write_text("Commit.\n")
    programs = folder / "programs"
    programs.mkdir()
    (programs / "claude").symlink_to(Path(sys.executable).with_name("mudroom"))
    return folder / "sdk" / "examples"


def wrap_notebook(program: Path) -> None:
    """Move the lines of a notebook, which await outside of functions, into a function."""
    tree = ast.parse(program.read_text())
    function = ast.parse("async def main():\n    pass\n\nimport asyncio\nasyncio.run(main())\n")
    function.body[0].body = tree.body  # pyright: ignore
    program.write_text(ast.unparse(ast.fix_missing_locations(function)))


@pytest.mark.parametrize("command", EXPECTED)
async def test_an_example_of_the_sdk_runs(command: str, tmp_path: Path) -> None:
    examples = copy_examples(tmp_path)
    name, *arguments = command.split()
    if name == "streaming_mode_ipython.py":
        wrap_notebook(examples / name)
    packages = (str(tmp_path / "sdk" / "src"), str(Path(PLACE, "examples", "packages")))
    async with ModelServer(answer) as server:
        environ = {
            "PATH": f"{tmp_path / 'programs'}:{os.environ['PATH']}",
            "PYTHONPATH": ":".join(packages),
            "HOME": str(tmp_path),
            "MUDROOM_HOME": str(tmp_path / "home"),
            "ANTHROPIC_API_KEY": "k",
            "ANTHROPIC_BASE_URL": server.url,
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            name,
            *arguments,
            cwd=examples,
            env=environ,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate(b"y\n" * 20)
    text = output.decode()
    assert process.returncode == 0, text
    assert [each for each in EXPECTED[command] if each not in text] == [], text
    assert "(unexpected)" not in text, text
