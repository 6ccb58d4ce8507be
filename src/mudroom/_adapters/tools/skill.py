"""The skill tool: loads a skill's instructions. Only the catalog is always in the context."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from ..._core.listings import find_entries, format_entries
from ..._core.ports import ToolContext
from ..._core.tools import Effect, Tool, ToolCategory, ToolResult
from ..._projections.engine_text import format_value, quote, wrap
from ...errors import suggest_names
from ._schema import build_parser, build_schema, load_description
from ._text_files import make_error_result

_FIND = "\nWords in place of a name list the skills that fit, with whole descriptions."


class Skill(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def path(self) -> str: ...

    @property
    def folder(self) -> str: ...

    @property
    def is_hidden(self) -> bool: ...

    def list_files(self) -> list[str]:
        """List its other files, relative to the folder."""
        ...

    def load_text(self, arguments: str = "") -> str:
        """Load its instructions; "" if they cannot be read."""
        ...


class Arguments(Struct, frozen=True):
    """`arguments` replace placeholders in the skill's text."""

    name: str
    arguments: str = ""


def make_skill_tool(skills: Mapping[str, Skill], *, length: int | None = None) -> Tool:
    """Make the tool that loads these skills; its description lists those not hidden.

    `length` is the most characters per description; None for all, 0 for names only.
    """
    visible = [
        (skill.name, quote(skill.description)) for skill in skills.values() if not skill.is_hidden
    ]
    catalog = format_entries(visible, length) + ("" if length is None else _FIND)

    async def run(ctx: ToolContext, arguments: Arguments) -> ToolResult:
        skill = skills.get(arguments.name) or skills.get(arguments.name.lower().lstrip("/"))
        if skill is None:
            matching = find_entries(arguments.name, visible)
            hint = suggest_names(arguments.name, [name for name, _ in visible])
            hint = f"These fit:\n{matching}" if matching else hint
            return make_error_result(f"There is no skill {arguments.name!r}. {hint}")
        return await asyncio.to_thread(_load, ctx, skill, arguments.arguments)

    return Tool(
        name="skill",
        description=f"{load_description(__file__)}\n{catalog}",
        parameters=build_schema(Arguments),
        parse=build_parser(Arguments),
        run=run,
        effect=Effect.PURE,
        category=ToolCategory.READ,
        rule_argument="name",
        keeps_results=True,
        argument_aliases={"skill": "name", "skill_name": "name", "args": "arguments"},
    )


def _load(ctx: ToolContext, skill: Skill, arguments: str) -> ToolResult:
    text = skill.load_text(arguments)
    if not text:
        return make_error_result(
            f"The skill {skill.name} cannot be read from {skill.path}. Do without it."
        )
    files = "".join(f"\n- {format_value(path)}" for path in skill.list_files())
    listing = f"\n\nIts files, in {skill.folder}:{files}" if files else ""
    content = wrap("skill_content", f"{text}{listing}", name=skill.name)
    path = ctx.workspace.locate(skill.path)
    return ToolResult(content, display=f"skill {skill.name}", reads=(path,))
