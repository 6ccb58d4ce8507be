"""The public names and their signatures: `surface.txt` records them, so a change is seen in review.

After an intended change: `pytest tests/shape/test_public_door.py --inline-snapshot=fix`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import ModuleType

from inline_snapshot import external_file

import mudroom
from mudroom import Session, SessionOptions

SURFACE = Path(__file__).parent / "surface.txt"
DOORS = (
    "mudroom",
    "mudroom.driving",
    "mudroom.events",
    "mudroom.ports",
    "mudroom.permissions",
    "mudroom.scope",
    "mudroom.testing",
    "mudroom.tracing",
    "mudroom.views",
)


def describe(name: str, value: object) -> str:
    """Return name and signature, without the addresses of default values."""
    try:
        signature = str(inspect.signature(value)) if callable(value) else ""
    except ValueError:
        signature = ""
    return name + re.sub(r" at 0x[0-9a-f]+", "", signature)


def describe_class(name: str, cls: type[object]) -> Iterator[str]:
    if issubclass(cls, Enum):
        yield f"class {name}: {' '.join(cls.__members__)}"
        return
    is_protocol = getattr(cls, "_is_protocol", False)
    yield f"class {name}" if is_protocol else f"class {describe(name, cls)}"
    for member in sorted(list_members(cls)):
        value = inspect.getattr_static(cls, member)
        if isinstance(value, property):
            yield f"  {member}"
        elif callable(value) or isinstance(value, staticmethod | classmethod):
            yield f"  {describe(member, getattr(cls, member))}"


def list_members(cls: type[object]) -> set[str]:
    """Return the public members of a class and of its base classes without a public name."""
    doors = [importlib.import_module(name) for name in DOORS]
    named = {getattr(door, name) for door in doors for name in door.__all__}
    bases = [base for base in cls.__mro__ if base.__module__.startswith("mudroom.")]
    members = {name for base in bases if base is cls or base not in named for name in vars(base)}
    return {name for name in members if not name.startswith("_")}


def describe_door(door: ModuleType) -> Iterator[str]:
    yield f"# {door.__name__}"
    for name in sorted(door.__all__):
        value = getattr(door, name)
        if inspect.isclass(value):
            yield from describe_class(name, value)
        elif inspect.isfunction(value):
            yield describe(name, value)
        else:
            yield name


def test_every_public_name_exists() -> None:
    for name in DOORS:
        door = importlib.import_module(name)
        for public in door.__all__:
            assert getattr(door, public) is not None


def test_main_door_has_few_names() -> None:
    assert len(mudroom.__all__) <= 45


def test_names_for_checkers_are_the_names_at_run_time() -> None:
    tree = ast.parse(inspect.getsource(mudroom))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    imports = [node for node in guarded.body if isinstance(node, ast.ImportFrom)]
    names = {alias.name for node in imports for alias in node.names}
    scope = importlib.import_module("mudroom.scope")
    assert names == {*mudroom.__all__, *scope.__all__}
    for name in names:
        assert getattr(mudroom, name) is not None


def test_session_takes_all_session_options() -> None:
    assert set(inspect.signature(Session).parameters) == set(SessionOptions.__struct_fields__)


def test_session_has_no_public_plumbing() -> None:
    assert not {"execute", "toolbox", "redact"} & set(dir(Session))


def test_dropped_parameter_changes_the_description() -> None:
    def before(prompt: str, *, model: str = "auto") -> None: ...
    def after(prompt: str) -> None: ...

    assert describe("run", before) != describe("run", after)
    assert describe("run", before) == "run(prompt: 'str', *, model: 'str' = 'auto') -> 'None'"


def test_surface_is_recorded() -> None:
    lines = [line for name in DOORS for line in describe_door(importlib.import_module(name))]
    assert "\n".join(lines) + "\n" == external_file(str(SURFACE))
