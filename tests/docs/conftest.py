"""Fixture with `scripts/site` as a module."""

from __future__ import annotations

from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def site() -> ModuleType:
    """Its functions: lay_out, build, faults, documented, example."""
    loader = SourceFileLoader(
        "site_of_mudroom", str(Path(__file__).parents[2] / "scripts" / "site")
    )
    spec = spec_from_loader(loader.name, loader)
    assert spec
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module
