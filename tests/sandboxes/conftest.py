"""Fixtures of the sandboxes."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def tmp_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder on the disk: sandboxes have a /dev of their own."""
    return tmp_path_factory.mktemp("test")
