"""The names nobody but the user may write: each of them, in every spelling that a file system may take for the same."""

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
def test_it_is_protected_in_any_case_and_depth(name: str) -> None:
    wide = "".join(chr(ord(c) + 0xFEE0) if c.isalpha() else c for c in name)
    for spelled in (name, name.upper(), name.title(), wide, name[:2] + "\u200d" + name[2:]):
        assert is_protected(spelled), spelled
        assert find_protected_component(f"a/{spelled}/b") == spelled


def test_there_is_no_other() -> None:
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
def test_what_an_agent_may_write_is_not(name: str) -> None:
    assert not is_protected(name) and find_protected_component(f"a/{name}") == ""
