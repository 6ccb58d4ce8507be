"""Atomic writes: what a failure after the rename says."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from mudroom.workspaces._atomic_write import write_atomically


def test_a_folder_that_cannot_be_made_durable_is_the_error(tmp_path: Path) -> None:
    # A descriptor of this kind allows the rename, but no fsync.
    folder = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    try:
        with pytest.raises(OSError) as raised:
            write_atomically(folder, "file", b"text", None, None)
    finally:
        os.close(folder)
    assert raised.value.errno == errno.EBADF
    assert (tmp_path / "file").read_bytes() == b"text"
    assert os.listdir(tmp_path) == ["file"]
