"""skill: the instructions of an Agent Skill, loaded when they are needed; only names and descriptions are always in the context."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from .._core.ports import ToolContext
from .._core.tools import Effect, Tool, ToolResult
from ..errors import suggest
from ._schema import described, parser, schema
from ._text_files import failed

CATALOGUE = 16_000
"""Characters that the descriptions of all skills have together in the tool's text."""


class Skill(Protocol):
    """What the tool needs of a skill."""

    @property
    def name(self) -> str:
        """What it is called by."""
        ...

    @property
    def description(self) -> str:
        """When to use it."""
        ...

    @property
    def path(self) -> str:
        """Of its SKILL.md, absolute."""
        ...

    @property
    def folder(self) -> str:
        """That the file is in."""
        ...

    @property
    def hidden(self) -> bool:
        """Whether a model is not told of it."""
        ...

    def files(self) -> list[str]:
        """Its other files, relative to the folder."""
        ...

    def text(self, arguments: str = "") -> str:
        """Its instructions, "" when they cannot be read."""
        ...


class Arguments(Struct, frozen=True):
    """What the model sends: `arguments` fill the places a skill may have for them."""

    name: str
    arguments: str = ""


def skill_tool(skills: Mapping[str, Skill]) -> Tool:
    """The tool that loads these skills, by name; its description is their catalogue, without the hidden ones."""
    shown = [skill for skill in skills.values() if not skill.hidden]
    share = CATALOGUE // max(1, len(shown))
    listed = "".join(f"\n- {skill.name}: {_cut(skill.description, share)}" for skill in shown)

    async def run(ctx: ToolContext, arguments: Arguments) -> ToolResult:
        skill = skills.get(arguments.name) or skills.get(arguments.name.lower().lstrip("/"))
        if skill is None:
            return failed(
                f"There is no skill {arguments.name!r}. {suggest(arguments.name, [skill.name for skill in shown])}"
            )
        return await asyncio.to_thread(_loaded, ctx, skill, arguments.arguments)

    return Tool(
        name="skill",
        description=described(__file__) + listed,
        parameters=schema(Arguments),
        parse=parser(Arguments),
        run=run,
        effect=Effect.PURE,
        spellings={"skill": "name", "skill_name": "name", "args": "arguments"},
    )


def _loaded(ctx: ToolContext, skill: Skill, arguments: str) -> ToolResult:
    text = skill.text(arguments)
    if not text:
        return failed(f"The skill {skill.name} cannot be read from {skill.path}. Do without it.")
    files = "".join(f"\n- {path}" for path in skill.files())
    resources = f"\n\nIts files, in {skill.folder}:{files}" if files else ""
    content = f'<skill_content name="{skill.name}">\n{text}{resources}\n</skill_content>'
    return ToolResult(
        content, display=f"skill {skill.name}", reads=(ctx.workspace.locate(skill.path),)
    )


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: max(0, characters - 1)] + "…"
