"""The house keeps its size: what grows past these figures is cut in two, or an ADR says why not."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "mudroom"
FILES = sorted(SOURCE.rglob("*.py"))
LINES_OF_THE_CORE = 4_700
EXAMPLE = re.compile(r'^\n *Example:\n(?:.*\n)*?(?= *""")', re.MULTILINE)
LINES_OF_A_FILE = 400
LINES_OF_A_FUNCTION = 50


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_core_and_engine_stay_small() -> None:
    files = [path for folder in ("_core", "_engine") for path in (SOURCE / folder).rglob("*.py")]
    examples = sum(
        found.count("\n")
        for path in files
        for found in EXAMPLE.findall(path.read_text(encoding="utf-8"))
    )
    total = (
        sum(lines(path) for path in files) - examples
    )  # examples are run by tests/docs and are no part of the engine
    assert total <= LINES_OF_THE_CORE, (
        f"{total} lines: move what is a port, a tool or a screen out of the engine"
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_stay_small(path: Path) -> None:
    assert lines(path) <= LINES_OF_A_FILE, "cut it where its two subjects meet"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_functions_stay_small(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= LINES_OF_A_FUNCTION, f"{node.name} has {length} lines: name its steps"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_module_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), (
        "its first line says what it is for"
    )


def test_no_manager_no_helper() -> None:
    banned = ("manager", "handler", "helper", "utils", "service", "base", "impl")
    found = [path for path in FILES if any(word in path.stem.lower() for word in banned)]
    assert not found, "name it by what it does"
