"""Commands of files: prompts and skills that the user calls as `/name` with arguments."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from ....agent_files import load_commands, load_skills
from ....agent_files.commands import CommandFile, find_by_name
from ....agent_files.skills import Skill

if TYPE_CHECKING:
    from ....session import Session


class PromptFile(Struct, frozen=True):
    """A command file or a skill that a slash command sends.

    Arguments:
        name: name of the slash command, the slash included.
        source: the command file or skill.
    """

    name: str
    source: CommandFile | Skill

    def format_prompt(self, arguments: str) -> str:
        """Return the prompt of a call, "" if the file is empty or cannot be read."""
        text = self.source.load_text(arguments)
        if not text or isinstance(self.source, CommandFile):
            return text
        return f'<skill name="{self.source.name}" folder="{self.source.folder}">\n{text}\n</skill>'


def load_prompt_files(session: Session) -> dict[str, PromptFile]:
    """Return the prompt files of a session by name; a command hides a skill."""
    folder = session.cwd
    user_home = os.environ.get("HOME", "")
    plugins = session.plugins
    sources = {
        **load_skills(folder, user_home=user_home, plugins=plugins).by_name,
        **load_commands(folder, user_home=user_home, plugins=plugins),
    }
    return {f"/{name}": PromptFile(f"/{name}", source) for name, source in sources.items()}


def find_prompt_file(files: Mapping[str, PromptFile], name: str) -> PromptFile | None:
    """Return the file of a slash command, which may lack the names of its plugin and folders."""
    by_name = {file.name.removeprefix("/"): file for file in files.values()}
    return by_name.get(find_by_name(by_name, name.removeprefix("/")))
