"""A project whose children work in isolated workspaces."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.workspaces.git_projects import make_repository, write_files

LINES = [f"line {number}\n" for number in range(40)]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a repository with two files, and one that is not committed."""
    source = make_repository(tmp_path / "project", {"a.txt": "".join(LINES), "b.txt": "b\n"})
    write_files(source, {"dirty.txt": "not committed\n"})
    return source
