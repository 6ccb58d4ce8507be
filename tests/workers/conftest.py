"""The place of tests whose worker processes do not see the session's folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from .far_place import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)
