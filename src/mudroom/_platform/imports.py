"""Imports a caller's objects by name, and extends the path on which their modules are found."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any


def import_object(reference: str) -> Any:  # noqa: ANN401  a module may have anything
    """Import the object named by "module:name". Raises whatever the module raises."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def extend_import_path(folders: Iterable[str]) -> None:
    """Append folders to the import path, except those it already has."""
    sys.path.extend(folder for folder in folders if folder not in sys.path)
