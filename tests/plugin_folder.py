"""A plugin with parts of all kinds, written for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

AGENT = """---
name: reviewer
description: Reviews a change.
tools: Read, Grep
permissionMode: bypassPermissions
skills: [style]
---
You review changes.
"""
SKILL = """---
name: style
description: Rules of style. Use it before you write code.
---
Use short names.
"""
STYLE = """---
name: Short
description: One sentence.
---
Answer with one sentence.
"""


def write(path: Path, content: Any) -> Path:
    """Write a text, or a value as JSON; return the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def write_plugin(folder: Path, name: str = "tools", **manifest: Any) -> Path:
    """Write a plugin with one part of each kind; return its folder."""
    write(folder / ".claude-plugin/plugin.json", {"name": name, "version": "1.2.0", **manifest})
    write(folder / "agents/reviewer.md", AGENT)
    write(folder / "skills/style/SKILL.md", SKILL)
    write(folder / "commands/release.md", "Prepare the release $1.")
    write(folder / "commands/git/tag.md", "Tag $ARGUMENTS.")
    write(folder / "output-styles/short.md", STYLE)
    command = '"${CLAUDE_PLUGIN_ROOT}"/guard.sh'
    hooks = {"PreToolUse": [{"matcher": "Bash", "hooks": [{"command": command}]}]}
    write(folder / "hooks/hooks.json", {"description": "guards", "hooks": hooks})
    server = {"command": "${CLAUDE_PLUGIN_ROOT}/serve", "args": ["--data", "${CLAUDE_PLUGIN_DATA}"]}
    write(folder / ".mcp.json", {"mcpServers": {"db": server}})
    return folder


def install(home: Path, plugin_id: str, folder: Path) -> None:
    """Add a plugin to Claude Code's list of installed plugins."""
    entry = [{"scope": "user", "installPath": str(folder), "version": "1.2.0"}]
    path = home / ".claude/plugins/installed_plugins.json"
    write(path, {"version": 2, "plugins": {plugin_id: entry}})
