"""Fixtures with `scripts/site` and `scripts/reference_pages.py` as modules."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest

SCRIPTS = Path(__file__).parents[2] / "scripts"
sys.path.append(str(SCRIPTS))


def load_script(name: str) -> ModuleType:
    """Return a script of this repository as a module."""
    loader = SourceFileLoader(f"{name}_of_mudroom", str(SCRIPTS / name))
    spec = spec_from_loader(loader.name, loader)
    assert spec
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def site() -> ModuleType:
    """Return the script that builds the site."""
    return load_script("site")


class BuiltSite(NamedTuple):
    """The folder of the site as `scripts/site` builds it, and the output of the script."""

    folder: Path
    done: subprocess.CompletedProcess[str]


@pytest.fixture(scope="session")
def built_site(tmp_path_factory: pytest.TempPathFactory) -> BuiltSite:
    """Build the site with the script."""
    place = tmp_path_factory.mktemp("site")
    done = subprocess.run([sys.executable, SCRIPTS / "site", place], capture_output=True, text=True)
    return BuiltSite(place / "build" / "site", done)


@pytest.fixture(scope="session")
def reference() -> ModuleType:
    """Return the script that writes the API reference."""
    return import_module("reference_pages")
