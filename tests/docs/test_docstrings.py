"""Every public name has an example in its docstring or in that of its module, and all run."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from mudroom import ToolCallBlock
from mudroom.testing.model_server import ModelServer, ServerAnswer, ServerRequest

RUNNER = """
import ast, asyncio, contextlib, io, json, sys, traceback
from importlib import import_module
import mudroom


class AssertComparisons(ast.NodeTransformer):
    "Turn a comparison that stands alone into an assertion."

    def visit_Expr(self, node):
        if not isinstance(node.value, ast.Compare):
            return node
        return ast.copy_location(ast.Assert(node.value), node)


async def run_examples(door, code, session):
    names = {"session": session, "mudroom": mudroom, "asyncio": asyncio}
    for module in (mudroom, import_module(door)):
        names |= {name: getattr(module, name) for name in module.__all__}
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
    async def run_one(door, code):
        async with mudroom.Session(journal="memory") as session:
            return await run_examples(door, code, session)

    examples = json.load(sys.stdin)
    print(json.dumps([await run_one(door, code) for door, code in examples]))


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


def list_examples(reference: ModuleType) -> dict[str, tuple[str, str]]:
    """Return module and example of each public module and name that has one."""
    examples: dict[str, tuple[str, str]] = {}
    for door in reference.DOORS:
        for name in ("", *reference.list_names(door)):
            thing = reference.get_object(door, name) if name else reference.get_door(door)
            code = reference.extract_example(reference.get_text(thing))
            if code:
                examples[f"{door}.{name}" if name else door] = (door, code)
    return examples


async def run_examples(examples: list[tuple[str, str]], place: Path) -> list[str]:
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
        out, err = await process.communicate(json.dumps(examples).encode())
        assert process.returncode == 0, err.decode()
        return json.loads(out.decode().splitlines()[-1])


async def test_every_example_runs(tmp_path: Path, reference: ModuleType) -> None:
    place = tmp_path / "project"
    (place / ".git").mkdir(parents=True)
    (place / "paper.md").write_text("# On Mud\n\nBy Ada Bootscraper\n")
    examples = list_examples(reference)
    errors = await run_examples(list(examples.values()), place)
    assert {name: error for name, error in zip(examples, errors, strict=True) if error} == {}


def test_every_public_name_has_an_example(reference: ModuleType) -> None:
    examples = list_examples(reference)
    for door in reference.DOORS:
        for name in reference.list_names(door):
            own = examples.get(f"{door}.{name}", ("", ""))[1]
            shared = examples.get(door, ("", ""))[1]
            assert re.search(rf"\b{name}\b", own or shared), f"{door}.{name} has no example"
