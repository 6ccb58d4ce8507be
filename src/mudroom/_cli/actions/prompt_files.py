"""Commands from files: prompts and skills the user calls as `/name` with arguments."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from ..._adapters.agent_files import load_commands, load_skills
from ..._adapters.agent_files.commands import CommandFile, find_by_name
from ..._adapters.agent_files.locations import SOURCES, Places, find_places
from ..._adapters.agent_files.prompt_template import PromptTemplate
from ..._adapters.agent_files.skills import Skill
from ..._adapters.integrations.plugins.spec import Plugin
from ..._adapters.integrations.program_trust import PromptRights
from ...permissions.rules import split_rules

if TYPE_CHECKING:
    from mudroom_hosts.file_prompts import FilePrompt

    from ..._session.session import Session


class PromptFile(Struct, frozen=True):
    """A command file or skill that a slash command sends. The name includes the slash."""

    name: str
    source: CommandFile | Skill

    def format_prompt(self, arguments: str) -> str:
        """Format a call's prompt with its shell commands as text; "" if the file is empty."""
        pieces = self.source.load_template().fill(arguments)
        text = "".join(piece if isinstance(piece, str) else piece.source for piece in pieces)
        return self.enclose(text) if text.strip() else ""

    def find_problem(self) -> str:
        return self.source.load_template().problem or "the prompt is empty"

    def enclose(self, text: str) -> str:
        """Wrap a skill's prompt with the skill's name and folder, which holds its material."""
        if isinstance(self.source, CommandFile):
            return text
        from ..._projections.engine_text import wrap

        return wrap("skill", text, name=self.source.name, folder=self.source.folder)


def find_rights(file: PromptFile, template: PromptTemplate) -> PromptRights:
    """Find what the file does beyond sending its prompt."""
    return PromptRights(
        name=file.name,
        origin=file.source.path,
        place=file.source.place,
        commands=template.list_commands(),
        rules=tuple(split_rules(template.allowed_tools)),
    )


def list_rights(places: Places, plugins: Iterable[Plugin]) -> list[PromptRights]:
    """List the rights of files the user has not written."""
    files = _load_prompt_files(places, plugins).values()
    found = [find_rights(file, file.source.load_template()) for file in files]
    return [each for each in found if each.place and (each.commands or each.rules)]


def load_prompt_files(
    folder: str, plugins: Iterable[Plugin] = (), *, trusts_folder: bool = True
) -> dict[str, PromptFile]:
    """Load the prompt files of a folder, the user and plugins by name.

    Commands hide skills. Files for models only are left out. The user's files win over
    those of an untrusted folder.
    """
    places = find_places(True, folder, os.environ.get("HOME", ""))
    return _load_prompt_files(places, plugins, trusts_folder=trusts_folder)


def _load_prompt_files(
    places: Places, plugins: Iterable[Plugin], *, trusts_folder: bool = True
) -> dict[str, PromptFile]:
    folder, user_home = places.folder, places.user_home
    plugins = tuple(plugins)
    skills = load_skills(folder, user_home=user_home, plugins=plugins, trusts_folder=trusts_folder)
    commands = load_commands(
        folder, user_home=user_home, plugins=plugins, trusts_folder=trusts_folder
    )
    sources: dict[str, CommandFile | Skill] = {**skills.by_name, **commands}
    if not trusts_folder:
        # A stranger's command must not hide the user's skill.
        own = {name: skill for name, skill in skills.by_name.items() if skill.is_personal}
        sources |= {name: skill for name, skill in own.items() if not sources[name].is_personal}
    return {
        f"/{name}": PromptFile(f"/{name}", source)
        for name, source in sources.items()
        if source.load_template().is_callable
    }


def list_file_prompts(session: Session, sources: Collection[str] = SOURCES) -> list[FilePrompt]:
    """List an open session's prompts from files, for the clients of servers."""
    from mudroom_hosts.file_prompts import FilePrompt

    from ..._projections.safe_text import sanitize_line

    places = find_places(sources, session.cwd, os.environ.get("HOME", ""))
    files = _load_prompt_files(places, session.plugins, trusts_folder=session.trusted)
    return [
        FilePrompt(
            name=file.name.removeprefix("/"),
            description=sanitize_line(file.source.description),
            hint=sanitize_line(file.source.load_template().argument_hint),
            format_prompt=file.format_prompt,
            find_problem=file.find_problem,
        )
        for file in files.values()
    ]


def find_prompt_file(
    files: Mapping[str, PromptFile], name: str, *, trusts_folder: bool = True
) -> PromptFile | None:
    """Find a slash command's file; the command may omit the names of plugin and folders.

    In an untrusted folder, a short name means the user's file first.
    """
    by_name = {file.name.removeprefix("/"): file for file in files.values()}
    typed = name.removeprefix("/")
    if not trusts_folder:
        own = [each for each, file in by_name.items() if file.source.is_personal]
        if found := find_by_name(own, typed):
            return by_name[found]
    return by_name.get(find_by_name(by_name, typed))
