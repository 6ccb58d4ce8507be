"""Commands of files: prompts and skills that the user calls as `/name` with arguments."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from msgspec import Struct

from ....agent_files import load_commands, load_skills
from ....agent_files.commands import CommandFile, find_by_name
from ....agent_files.skills import Skill
from ....integrations.plugins.spec import Plugin


class PromptFile(Struct, frozen=True):
    """A command file or a skill that a slash command sends.

    Arguments:
        name: name of the slash command, the slash included.
        source: the command file or skill.
    """

    name: str
    source: CommandFile | Skill

    def format_prompt(self, arguments: str) -> str:
        """Return the prompt of a call with its shell commands as text; "" if the file is empty."""
        pieces = self.source.load_template().fill(arguments)
        text = "".join(piece if isinstance(piece, str) else piece.source for piece in pieces)
        return self.enclose(text) if text.strip() else ""

    def enclose(self, text: str) -> str:
        """Return a prompt; that of a skill names the skill and its folder."""
        if isinstance(self.source, CommandFile):
            return text
        return f'<skill name="{self.source.name}" folder="{self.source.folder}">\n{text}\n</skill>'


def load_prompt_files(folder: str, plugins: Iterable[Plugin] = ()) -> dict[str, PromptFile]:
    """Return the prompt files of a folder, of the user and of plugins by name.

    A command hides a skill. A file that only models use is left out.
    """
    user_home = os.environ.get("HOME", "")
    plugins = tuple(plugins)
    sources: dict[str, CommandFile | Skill] = {
        **load_skills(folder, user_home=user_home, plugins=plugins).by_name,
        **load_commands(folder, user_home=user_home, plugins=plugins),
    }
    return {
        f"/{name}": PromptFile(f"/{name}", source)
        for name, source in sources.items()
        if source.load_template().is_callable
    }


def find_prompt_file(files: Mapping[str, PromptFile], name: str) -> PromptFile | None:
    """Return the file of a slash command, which may lack the names of its plugin and folders."""
    by_name = {file.name.removeprefix("/"): file for file in files.values()}
    return by_name.get(find_by_name(by_name, name.removeprefix("/")))
