"""Import of objects of the caller by name, and the folders in which their modules are found."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from importlib import import_module
from typing import Any


def import_object(reference: str) -> Any:  # noqa: ANN401  a module may have anything
    """Return the object that "module:name" names. Raises what the module raises."""
    module, _, name = reference.partition(":")
    return getattr(import_module(module), name)


def extend_import_path(folders: Iterable[str]) -> None:
    """Add the folders to the end of the import path that it does not have yet."""
    sys.path.extend(folder for folder in folders if folder not in sys.path)
