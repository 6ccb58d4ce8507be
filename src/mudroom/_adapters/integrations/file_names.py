"""Files that can declare MCP servers and hooks.

They are looked for when a session starts, so this module is quick to import.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Literal

from ..._platform.git_folders import list_project_folders

# The program whose tool names and input and output formats a hook expects.
Dialect = Literal["claude", "codex", "gemini"]
# Highest precedence first, each with its reader.
PROJECT_SERVERS = (
    (".mcp.json", "claude"),
    (".cursor/mcp.json", "cursor"),
    (".vscode/mcp.json", "vscode"),
    (".gemini/settings.json", "gemini"),
    (".codex/config.toml", "codex"),
    ("opencode.json", "opencode"),
    ("opencode.jsonc", "opencode"),
    (".opencode/opencode.json", "opencode"),
    (".opencode/opencode.jsonc", "opencode"),
)
CLAUDE_STATE = ".claude.json"
# These are in the user's home folder, besides CLAUDE_STATE.
USER_SERVERS = (
    (".cursor/mcp.json", "cursor"),
    (
        "Library/Application Support/Code/User/mcp.json"
        if sys.platform == "darwin"
        else ".config/Code/User/mcp.json",
        "vscode",
    ),
    (".gemini/settings.json", "gemini"),
    (".codex/config.toml", "codex"),
    (".config/opencode/opencode.json", "opencode"),
    (".config/opencode/opencode.jsonc", "opencode"),
)
CURSOR_HOOKS = ".cursor/hooks.json"
# In a project; the user's have the same names below the home folder.
HOOK_FILES: tuple[tuple[str, Dialect], ...] = (
    (".claude/settings.local.json", "claude"),
    (".claude/settings.json", "claude"),
    (".codex/hooks.json", "codex"),
    (".codex/config.toml", "codex"),
    (".gemini/settings.json", "gemini"),
    (CURSOR_HOOKS, "claude"),
)


def has_program_files(folder: str, user_home: str, own_file: str) -> bool:
    return any(map(os.path.lexists, _list_files(folder, user_home, own_file)))


def _list_files(folder: str, user_home: str, own_file: str) -> Iterator[str]:
    for place in list_project_folders(folder):
        names = (*PROJECT_SERVERS, *HOOK_FILES)
        yield from (os.path.join(place, name) for name, _ in names)
    if user_home:
        yield os.path.join(user_home, CLAUDE_STATE)
        names = (*USER_SERVERS, *HOOK_FILES)
        yield from (os.path.join(user_home, name) for name, _ in names)
    if own_file:
        yield own_file
