"""Every public name has an example in its docstring, and every example runs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import mudroom
from mudroom import ToolCallBlock
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

RUNNER = """
import ast, asyncio, contextlib, io, json, sys, traceback
import mudroom


class AssertComparisons(ast.NodeTransformer):
    "Turn a comparison that stands alone into an assertion."

    def visit_Expr(self, node):
        if not isinstance(node.value, ast.Compare):
            return node
        return ast.copy_location(ast.Assert(node.value), node)


async def run_examples(code, session):
    names = {name: getattr(mudroom, name) for name in mudroom.__all__} | {"session": session}
    tree = ast.fix_missing_locations(AssertComparisons().visit(ast.parse(code)))
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            program = compile(tree, "example", "exec", flags=flags, dont_inherit=True)
            if (waiting := eval(program, names)) is not None:
                await waiting
    except Exception:
        return traceback.format_exc()
    return ""


async def main():
    async def one(code):
        async with mudroom.Session(journal="memory") as session:
            return await run_examples(code, session)

    print(json.dumps({name: await one(code) for name, code in json.load(sys.stdin).items()}))


asyncio.run(main())
"""


def answer(asked: ServerRequest) -> ServerAnswer:
    """Answer like a model: emit the requested values, else a short text."""
    if "self_emitvalue" not in asked.tools:
        return "Ada Bootscraper."
    tool = next(tool for tool in asked.json["tools"] if tool["name"] == "self_emitvalue")
    names: list[str] = tool["input_schema"]["properties"]["emit_variable_name"]["enum"]
    emitted = ({"emit_variable_name": name, "emit_variable_value": "On Mud"} for name in names)
    return tuple(
        ToolCallBlock(f"c{n}", "self_emitvalue", arguments) for n, arguments in enumerate(emitted)
    )


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory, site: ModuleType) -> dict[str, str]:
    """Run all examples in one process, in the folder of a small project.

    Return their errors by name.
    """
    place = tmp_path_factory.mktemp("project")
    (place / "paper.md").write_text("# On Mud\n\nBy Ada Bootscraper\n")
    (place / ".git").mkdir()
    return asyncio.run(
        run_examples(
            {name: site.extract_example(site.find_docstring(name)) for name in mudroom.__all__},
            place,
        )
    )


async def run_examples(programs: dict[str, str], place: Path) -> dict[str, str]:
    async with ModelServer(answer) as server:
        env = {
            "PATH": os.environ["PATH"],
            "HOME": str(place / "home"),
            "MUDROOM_HOME": str(place / "state"),
            "LANG": "C.UTF-8",
        }
        env |= {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        pipes: dict[str, Any] = dict.fromkeys(
            ("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE
        )
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", RUNNER, cwd=place, env=env, **pipes
        )
        out, err = await process.communicate(json.dumps(programs).encode())
        assert process.returncode == 0, err.decode()
        return json.loads(out.decode().splitlines()[-1])


@pytest.mark.parametrize("name", mudroom.__all__)
def test_a_public_name_has_an_example(name: str, site: ModuleType) -> None:
    assert name in site.extract_example(site.find_docstring(name)), (
        f"{name} has no example that uses it"
    )


@pytest.mark.parametrize("name", mudroom.__all__)
def test_the_example_of_a_public_name_runs(name: str, errors: dict[str, str]) -> None:
    assert errors[name] == ""
