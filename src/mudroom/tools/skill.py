"""skill: the instructions of an Agent Skill, loaded when they are needed; only names and descriptions are always in the context."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from .._core.ports import ToolContext
from .._core.tools import Effect, Tool, ToolResult
from ..errors import suggest_names
from ._schema import build_parser, build_schema, load_description
from ._text_files import error_result

CATALOG_CHARACTERS = 16_000
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
    def is_hidden(self) -> bool:
        """Whether a model is not told of it."""
        ...

    def list_files(self) -> list[str]:
        """Its other files, relative to the folder."""
        ...

    def load_text(self, arguments: str = "") -> str:
        """Its instructions, "" when they cannot be read."""
        ...


class Arguments(Struct, frozen=True):
    """What the model sends: `arguments` fill the places a skill may have for them."""

    name: str
    arguments: str = ""


def make_skill_tool(skills: Mapping[str, Skill]) -> Tool:
    """The tool that loads these skills, by name; its description is their catalogue, without the hidden ones."""
    shown = [skill for skill in skills.values() if not skill.is_hidden]
    share = CATALOG_CHARACTERS // max(1, len(shown))
    listed = "".join(f"\n- {skill.name}: {_cut(skill.description, share)}" for skill in shown)

    async def run(ctx: ToolContext, arguments: Arguments) -> ToolResult:
        skill = skills.get(arguments.name) or skills.get(arguments.name.lower().lstrip("/"))
        if skill is None:
            return error_result(
                f"There is no skill {arguments.name!r}. {suggest_names(arguments.name, [skill.name for skill in shown])}"
            )
        return await asyncio.to_thread(_loaded, ctx, skill, arguments.arguments)

    return Tool(
        name="skill",
        description=load_description(__file__) + listed,
        parameters=build_schema(Arguments),
        parse=build_parser(Arguments),
        run=run,
        effect=Effect.PURE,
        argument_aliases={"skill": "name", "skill_name": "name", "args": "arguments"},
    )


def _loaded(ctx: ToolContext, skill: Skill, arguments: str) -> ToolResult:
    text = skill.load_text(arguments)
    if not text:
        return error_result(
            f"The skill {skill.name} cannot be read from {skill.path}. Do without it."
        )
    files = "".join(f"\n- {path}" for path in skill.list_files())
    resources = f"\n\nIts files, in {skill.folder}:{files}" if files else ""
    content = f'<skill_content name="{skill.name}">\n{text}{resources}\n</skill_content>'
    return ToolResult(
        content, display=f"skill {skill.name}", reads=(ctx.workspace.locate(skill.path),)
    )


def _cut(text: str, characters: int) -> str:
    return text if len(text) <= characters else text[: max(0, characters - 1)] + "…"
