"""Protected names, in every spelling that a file system may treat as equal."""

from __future__ import annotations

import pytest

from mudroom._platform.protected_names import (
    PROTECTED_NAMES,
    find_protected_component,
    is_protected,
)

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
