"""Paths of the file system as valid text."""

from __future__ import annotations

import itertools
import os

import pytest

from mudroom._platform.paths import path_from_text, path_to_text

PIECES = (b"\\", b"x", b"5c", b"e9", b"\xe9", b"\xc3", b"\xa9", b"\\x5c", b"/", b"\xc3\xa9")


def test_every_path_has_one_valid_text() -> None:
    for pieces in itertools.product(PIECES, repeat=4):
        path = os.fsdecode(b"".join(pieces))
        text = path_to_text(path)
        text.encode()
        assert path_from_text(text) == path


@pytest.mark.parametrize("text", [r"\xc3\xa9", r"a\x41", r"a\x2e\x2e\x2fb", r"a\x5cb", "ü"])
def test_a_text_that_stands_for_itself_is_not_changed(text: str) -> None:
    assert path_from_text(text) == text
