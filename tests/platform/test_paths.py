"""Paths of the file system as text, names that are protected, files that are private."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from mudroom._platform.paths import path_from_text, path_to_text
from mudroom._platform.private_files import replace_private_file
from mudroom._platform.protected_names import (
    PROTECTED_NAMES,
    find_protected_component,
    is_protected,
)

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


def test_a_replacement_that_fails_leaves_no_file(tmp_path: Path) -> None:
    target = tmp_path / "state"
    target.mkdir()
    with pytest.raises(OSError):
        replace_private_file(target, b"x")
    assert list(tmp_path.iterdir()) == [target]


GIT = [".git", ".gitmodules", ".gitconfig", ".githooks", ".husky"]
SHELLS = [
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
]
AGENTS = [
    ".claude",
    ".agents",
    ".codex",
    ".gemini",
    ".cursor",
    ".windsurf",
    ".opencode",
    ".mcp.json",
]
EDITORS = [".vscode", ".idea", ".devcontainer", ".ripgreprc"]
ALL = [*GIT, *SHELLS, ".envrc", *AGENTS, *EDITORS]


@pytest.mark.parametrize("name", [*ALL, ".mudroom", ".mudroom.toml", ".mudroom-anything"])
def test_a_protected_name_is_recognized_in_any_spelling_and_depth(name: str) -> None:
    wide = "".join(chr(ord(c) + 0xFEE0) if c.isalpha() else c for c in name)
    for spelled in (name, name.upper(), name.title(), wide, name[:2] + "\u200d" + name[2:]):
        assert is_protected(spelled), spelled
        assert find_protected_component(f"a/{spelled}/b") == spelled


def test_exactly_these_names_are_protected() -> None:
    assert set(ALL) == PROTECTED_NAMES


@pytest.mark.parametrize(
    "name",
    [
        "AGENTS.md",
        "CLAUDE.md",
        ".gitignore",
        ".gitattributes",
        "git",
        ".github",
        ".mudroom-unfinished-1",
    ],
)
def test_other_names_are_not_protected(name: str) -> None:
    assert not is_protected(name) and find_protected_component(f"a/{name}") == ""
