"""The public names: a change of them is seen here first."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

from inline_snapshot import external_file

import mudroom

SURFACE = Path(__file__).parent / "surface.txt"


def signature(name: str) -> str:
    thing = getattr(mudroom, name)
    if inspect.isclass(thing):
        members = sorted(member for member in vars(thing) if not member.startswith("_"))
        return f"class {name}: {' '.join(members)}"
    return f"{name}{inspect.signature(thing)}" if inspect.isfunction(thing) else name


def test_every_public_name_is_there() -> None:
    for name in mudroom.__all__:
        assert getattr(mudroom, name) is not None


def test_at_most_forty_public_names() -> None:
    assert len(mudroom.__all__) <= 40


def test_names_for_checkers_are_those_for_programs() -> None:
    tree = ast.parse(inspect.getsource(mudroom))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    assert {
        alias.name
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    } == set(mudroom.__all__)


def test_the_public_surface_is_the_one_written_down() -> None:
    surface = "\n".join(sorted(signature(name) for name in mudroom.__all__)) + "\n"
    assert surface == external_file(str(SURFACE))
