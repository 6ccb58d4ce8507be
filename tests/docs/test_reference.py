"""The API reference is complete: names, members, arguments and errors of the public surface."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest

SURFACE = Path(__file__).parents[1] / "shape" / "surface.txt"


def read_surface() -> dict[str, list[str]]:
    """Return the names and members of each public module, from the recorded surface."""
    names: dict[str, list[str]] = {}
    door = ""
    owner = ""
    for line in SURFACE.read_text("utf-8").splitlines():
        if line.startswith("# "):
            door = line[2:]
            names[door] = []
        elif line.startswith("  "):
            names[door].append(f"{owner}.{re.split(r'[^a-zA-Z_]', line.strip())[0]}")
        else:
            owner = re.split(r"[^a-zA-Z_]", line.removeprefix("class "))[0]
            names[door].append(owner)
    return names


@pytest.fixture(scope="module")
def pages(reference: ModuleType) -> dict[str, str]:
    return reference.build_pages()


def split_page(page: str) -> dict[str, str]:
    """Return the entries of a page by heading."""
    parts = re.split(r"^###? (.+)$", page, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def list_described(entries: dict[str, str]) -> list[str]:
    """Return the entries with a text of their own: those of other modules only have a link."""
    return [name for name, text in entries.items() if not text.strip().startswith("The same as")]


@pytest.mark.parametrize("door", read_surface())
def test_every_name_of_the_surface_has_an_entry(
    door: str, reference: ModuleType, pages: dict[str, str]
) -> None:
    entries = split_page(pages[reference.get_file(door)])
    elsewhere = {name for name in entries if name not in list_described(entries)}
    missing = [
        name
        for name in read_surface()[door]
        if name not in entries and name.partition(".")[0] not in elsewhere
    ]
    assert missing == []
    empty = [name for name in list_described(entries) if not re.search(r"\w{3} \w", entries[name])]
    assert empty == []


def test_a_session_begins_with_the_methods_that_start_runs(pages: dict[str, str]) -> None:
    entries = [name for text in pages.values() for name in split_page(text)]
    members = [name for name in entries if name.startswith("Session.")]
    assert members[:5] == [
        f"Session.{name}" for name in ("run", "stream", "run_sync", "task", "map")
    ]
    assert len(members) == len(set(members))


def find_parameters(value: Any) -> list[str]:
    is_class = inspect.isclass(value)
    if is_class and (issubclass(value, Enum) or getattr(value, "_is_protocol", False)):
        return []
    parameters = inspect.signature(value).parameters if callable(value) else ()
    return [name for name in parameters if name not in ("self", "cls")]


@pytest.mark.parametrize("door", read_surface())
def test_every_argument_is_described(
    door: str, reference: ModuleType, pages: dict[str, str]
) -> None:
    module = import_module(door)
    for name, text in split_page(pages[reference.get_file(door)]).items():
        if name not in list_described({name: text}) or "the fields of [SessionOptions]" in text:
            continue
        owner, _, member = name.partition(".")
        value = getattr(module, owner)
        value = inspect.getattr_static(value, member) if member else value
        value = getattr(value, "__func__", value)
        if inspect.isclass(value) or inspect.isfunction(value):
            described = set(re.findall(r"^- `([a-z_]+)`: \S", text, re.MULTILINE))
            assert set(find_parameters(value)) <= described, name


def list_raised(function: Any) -> Iterator[str]:
    """Yield the names of the exceptions that a function itself raises, or has made by another."""
    for node in ast.walk(ast.parse(dedent(inspect.getsource(function)))):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            name = ast.unparse(node.exc.func)
            made_by = inspect.unwrap(function).__globals__.get(name)
            yield (
                inspect.get_annotations(made_by)["return"] if inspect.isfunction(made_by) else name
            )


@pytest.mark.parametrize("door", read_surface())
def test_errors_of_functions_are_named(
    door: str, reference: ModuleType, pages: dict[str, str]
) -> None:
    module = import_module(door)
    entries = split_page(pages[reference.get_file(door)])
    for name in list_described(entries):
        owner, _, member = name.partition(".")
        value = getattr(module, owner)
        if member:
            value = inspect.getattr_static(value, member)
        value = getattr(value, "__func__", value)
        if inspect.isfunction(value):
            for error in list_raised(value):
                text = entries[name] + entries[owner]
                assert error in text, f"{name} raises {error}; its docstring does not say so"
