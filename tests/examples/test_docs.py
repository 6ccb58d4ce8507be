"""Every block on the pages of docs/ runs.

Python against a model server on loopback, shell commands with the offline model.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from mudroom import ToolCallBlock
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

DOCS = Path(__file__).parents[2] / "docs"
PAGES = sorted(DOCS.glob("*.md"))
OWN_TESTS = {"tutorial.md"}  # `tests/docs` runs its steps, in their order
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VALUES: dict[str, Any] = {
    "string": "On Mud",
    "integer": 3,
    "number": 3.5,
    "boolean": True,
    "array": [],
    "object": {},
}
REMARK = {"file": "paper.md", "line": 3, "message": "The author is not named."}
RUNNER = """
import ast, asyncio, inspect, sys
space = {"__name__": "__main__"}
async def main():
    for block in sys.stdin.read().split("\\0"):
        code = compile(block, "block", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if (waiting := eval(code, space)) is not None:
            await waiting
asyncio.run(main())
"""


def list_blocks(page: Path, kind: str) -> list[str]:
    return [text for language, text in BLOCK.findall(page.read_text()) if language == kind]


def list_pages(kind: str) -> list[Path]:
    """Return the pages with blocks of one language."""
    return [page for page in PAGES if page.name not in OWN_TESTS and list_blocks(page, kind)]


def is_list_of_remarks(schema: dict[str, Any]) -> bool:
    return "file" in schema.get("items", {}).get("properties", {})


def list_schemas(declared: dict[str, Any], names: list[str]) -> dict[str, Any]:
    """Return the schema of each output, as the emit tool declares them: one for each type."""
    branches: list[dict[str, Any]] = declared.get("anyOf", [])
    named = {name: each for each in branches for name in each["description"].split(", ")}
    return {name: named.get(name, declared) for name in names}


def answer(asked: ServerRequest) -> ServerAnswer:
    """A model that looks once, and emits a fitting value for whatever is wanted of it."""
    if "self_emitvalue" in asked.tools:
        tool = next(tool for tool in asked.json["tools"] if tool["name"] == "self_emitvalue")
        properties: dict[str, Any] = tool["input_schema"]["properties"]
        names: list[str] = properties["emit_variable_name"]["enum"]
        schemas = list_schemas(properties["emit_variable_value"], names)
        value = {name: VALUES[schemas.get(name, {}).get("type", "string")] for name in names}
        value |= {name: schemas[name]["enum"][0] for name in schemas if "enum" in schemas[name]}
        value |= {name: [REMARK] for name in schemas if is_list_of_remarks(schemas[name])}
        emitted = (
            {"emit_variable_name": name, "emit_variable_value": value[name]} for name in names
        )
        return tuple(
            ToolCallBlock(f"c{n}", "self_emitvalue", arguments)
            for n, arguments in enumerate(emitted)
        )
    if "read" in asked.tools and not asked.turn:
        return (ToolCallBlock("r1", "read", {"file_path": "paper.md"}),)
    return "It is about mud."


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A small project in a home of its own."""
    project = tmp_path / "project"
    (project / "tests").mkdir(parents=True)
    (project / ".git").mkdir()
    (project / "paper.md").write_text("# On Mud\n\nBy Ada Bootscraper\n")
    (project / "boots.py").write_text('"""Boots."""\n')
    (project / "tests" / "test_boots.py").write_text(
        "import pytest\n\n\ndef test_boots():\n    assert pytest\n"
    )
    (project / "pyproject.toml").write_text('[tool.pytest.ini_options]\ntestpaths = ["tests"]\n')
    for kind, path in (
        ("name: reviewer", ".agents/agents/reviewer.md"),
        ("name: pdf-forms", ".agents/skills/pdf-forms/SKILL.md"),
    ):
        page = DOCS / ("agent-files.md" if "agents/agents" in path else "skills.md")
        (project / path).parent.mkdir(parents=True)
        (project / path).write_text(
            next(text for text in list_blocks(page, "markdown") if kind in text)
        )
    return project


@pytest.fixture
async def env(place: Path) -> AsyncGenerator[dict[str, str]]:
    """Of a person with one key, for the server on loopback."""
    async with ModelServer(answer) as server:
        yield {**make_environ(place), "ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}


def make_environ(place: Path) -> dict[str, str]:
    home = place.parent / "person"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {
        "PATH": path,
        "HOME": str(home),
        "MUDROOM_HOME": str(home / "state"),
        "XDG_CONFIG_HOME": str(home / "etc"),
        "LANG": "C.UTF-8",
    }


async def run_program(
    *command: str, place: Path, env: dict[str, str], stdin: str = ""
) -> tuple[int | None, str, str]:
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
    process = await asyncio.create_subprocess_exec(*command, cwd=place, env=env, **pipes)
    out, err = await process.communicate(stdin.encode())
    return process.returncode, out.decode(), err.decode()


async def run_blocks(blocks: list[str], place: Path, env: dict[str, str]) -> None:
    """Run Python blocks, one after the other, in one program."""
    code, _, err = await run_program(
        sys.executable, "-c", RUNNER, place=place, env=env, stdin="\0".join(blocks)
    )
    assert code == 0, err


@pytest.mark.parametrize("page", list_pages("python"), ids=lambda page: page.name)
async def test_python_blocks_run(page: Path, place: Path, env: dict[str, str]) -> None:
    await run_blocks(list_blocks(page, "python"), place, env)


@pytest.mark.parametrize("page", list_pages("console"), ids=lambda page: page.name)
async def test_commands_print_what_the_page_says(page: Path, place: Path) -> None:
    if page.name == "agent-files.md":
        (place / ".agents" / "agents" / "reviewer.md").unlink()
    for block in list_blocks(page, "console"):
        for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, shown = step.partition("\n")
            code, out, err = await run_program(
                "sh", "-c", command, place=place, env=make_environ(place)
            )
            assert code == 0, f"{command}: {err}"
            pattern = ".*".join(
                re.escape(part.strip("\n")) for part in shown.strip("\n").split("…")
            )
            assert re.search(pattern, out, re.DOTALL), f"{command}\n{out}"


def test_every_page_is_on_the_first_one() -> None:
    listed = set(re.findall(r"\]\(((?:how-to/)?[\w-]+\.md)\)", (DOCS / "README.md").read_text()))
    pages = {page.relative_to(DOCS).as_posix() for page in [*PAGES, *DOCS.glob("how-to/*.md")]}
    assert listed == pages - {"README.md"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target
