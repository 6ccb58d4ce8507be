"""Files that only the user can read: a write that fails leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from mudroom._platform.private_files import replace_private_file


def test_a_replacement_that_fails_leaves_no_file(tmp_path: Path) -> None:
    target = tmp_path / "state"
    target.mkdir()
    with pytest.raises(OSError):
        replace_private_file(target, b"x")
    assert list(tmp_path.iterdir()) == [target]
