"""Agents that a Codex `config.toml` declares: `[agents.NAME]`, `description`, `config_file`."""

from __future__ import annotations

import os
from typing import cast

from ..._core.json_values import JsonValue
from .diagnostics import FileDiagnostics
from .frontmatter import Entry
from .safe_read import read_text
from .toml_document import parse_toml

CONFIG_NAME = "config.toml"


def read_declared_agents(
    path: str, boundary: str, diagnostics: FileDiagnostics
) -> dict[str, dict[str, Entry]]:
    """Return the name and description of each agent that has a file, by that file's path.

    Arguments:
        boundary: see `safe_read.read_text`.
    """
    text = read_text(path, boundary, diagnostics)
    entries = parse_toml(text, diagnostics) if text is not None else None
    agents = entries.get("agents") if entries else None
    if agents is None or not isinstance(agents.value, dict):
        return {}
    declared: dict[str, dict[str, Entry]] = {}
    for name, value in agents.value.items():
        # The same table holds settings of all agents, such as `max_threads`.
        if not isinstance(value, dict):
            continue
        file = value.get("config_file")
        if not isinstance(file, str) or not file:
            diagnostics.add_warning(agents.line, f"agents.{name} has no config_file; not used")
            continue
        agent_path = os.path.normpath(os.path.join(os.path.dirname(path), file))
        keys: dict[str, JsonValue] = {"name": name, "description": value.get("description")}
        declared[agent_path] = {
            key: Entry(cast("JsonValue", text), 1) for key, text in keys.items() if text
        }
    return declared
