"""Imports objects by name: a caller's, and those of a public module on first use.

Standard library only: `mudroom` itself imports it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any


def import_object(reference: str) -> Any:  # noqa: ANN401  a module may have anything
    """Import the object named by "module:name". Raises whatever the module raises."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def extend_import_path(folders: Iterable[str]) -> None:
    """Append folders to the import path, except those it already has."""
    sys.path.extend(folder for folder in folders if folder not in sys.path)


def load_later(module: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """Make a module's `__getattr__`, which imports each of its names on first use.

    `names` maps modules, relative to the package, to the names they define, separated by
    spaces.
    """
    owner = sys.modules[module]
    modules = {name: place for place, together in names.items() for name in together.split()}

    def load(name: str) -> object:
        if name not in modules:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = getattr(import_module(f".{modules[name]}", owner.__package__), name)
        setattr(owner, name, value)
        return value

    return load
