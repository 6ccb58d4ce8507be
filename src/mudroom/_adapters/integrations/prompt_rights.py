"""What a folder's slash command or skill may do, which needs the user's trust."""

from __future__ import annotations

from msgspec import Struct

from .config_files import make_digest

# Digests of prompts begin so in the list of trusted programs.
PROMPT_PREFIX = "prompt:"


class PromptRights(Struct, frozen=True, kw_only=True):
    """What the file of a slash command or skill does beyond sending a prompt.

    Shell commands in its text run when the user calls it; its `allowed-tools` let the model act
    without a question. Both come with the folder, so they need trust as its hooks do.

    Arguments:
        name: of the slash command, with the slash.
        origin: path of the file.
        place: folder that the file belongs to, or whose settings turned its plugin on.
        commands: shell commands as the file has them, before arguments are filled in.
        rules: permission rules from `allowed-tools`.
    """

    name: str
    origin: str
    place: str
    commands: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """Identifies exactly these rights; the trust in a folder refers to it."""
        return PROMPT_PREFIX + make_digest(self.origin, self.commands, self.rules)

    @property
    def shown(self) -> str:
        """All commands and rules, for screens."""
        allowed = [f"allows: {', '.join(self.rules)}"] if self.rules else []
        return "\n".join([*(f"runs: {command}" for command in self.commands), *allowed])
