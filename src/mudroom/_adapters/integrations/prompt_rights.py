"""Rights of a slash command or skill of a folder, which need the user's trust."""

from __future__ import annotations

from msgspec import Struct

from .config_files import make_digest

PROMPT_PREFIX = "prompt:"
"""Begins the digests of prompts in the list of trusted programs."""


class PromptRights(Struct, frozen=True, kw_only=True):
    """What the file of a slash command or skill does beyond sending a prompt.

    Shell commands in its text run when the user calls it; its `allowed-tools` let the model act
    without a question. Both come with the folder, so they need trust as its hooks do.

    Arguments:
        name: of the slash command, with the slash.
        origin: path of the file.
        place: folder that the file belongs to, or whose settings turned its plugin on.
        commands: shell commands as the file has them, before arguments are filled in.
        rules: permission rules of `allowed-tools`.
    """

    name: str
    origin: str
    place: str
    commands: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Identifies exactly these rights; the trust of a folder refers to it."""
        return PROMPT_PREFIX + make_digest(self.origin, self.commands, self.rules)

    @property
    def shown(self) -> str:
        """All commands and rules, for screens."""
        allowed = [f"allows: {', '.join(self.rules)}"] if self.rules else []
        return "\n".join([*(f"runs: {command}" for command in self.commands), *allowed])
