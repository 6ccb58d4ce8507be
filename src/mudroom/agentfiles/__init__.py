"""Agent files: a Markdown file with a head of `key: value` lines becomes an Agent. The built-in ones lie beside this."""

from __future__ import annotations

from importlib import resources

from .._core.agents import Agent


def builtin(name: str) -> Agent:
    """The built-in agent of that name: "main", "general" or "explore"."""
    text = resources.files(__name__).joinpath(f"{name}.md").read_text(encoding="utf-8")
    _, head, body = text.split("---\n", 2)
    keys = dict(line.split(": ", 1) for line in head.splitlines())
    tools = keys.get("tools")
    return Agent(
        name=keys["name"],
        description=keys["description"],
        instructions=body.strip(),
        tools=tuple(tools.split(", ")) if tools else None,
    )
