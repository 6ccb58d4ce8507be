"""The server of the conformance suite that a stranger could have written stays one."""

from __future__ import annotations

import ast
from pathlib import Path

DOORS = {"mudroom", "mudroom.driving", "mudroom.events"}


def test_it_imports_public_doors_only() -> None:
    tree = ast.parse(Path(__file__).with_name("line_server.py").read_text())
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {module for module in modules if module.startswith("mudroom")} == DOORS
