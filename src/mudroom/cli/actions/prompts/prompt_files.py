"""Commands of files: prompts and skills that the user calls as `/name` with arguments."""

from __future__ import annotations

import os

from msgspec import Struct

from ....agent_files import load_commands, load_skills
from ....agent_files.commands import CommandFile
from ....agent_files.skills import Skill


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


def load_prompt_files(folder: str) -> dict[str, PromptFile]:
    """Return the prompt files of a folder and of the user by name; a command hides a skill."""
    user_home = os.environ.get("HOME", "")
    sources = {
        **load_skills(folder, user_home=user_home).by_name,
        **load_commands(folder, user_home=user_home),
    }
    return {f"/{name}": PromptFile(f"/{name}", source) for name, source in sources.items()}
