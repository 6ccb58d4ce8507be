"""Trust in a folder's declarations: the user's answer, for each folder and set."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec
from msgspec import Struct

from ..._platform.private_files import replace_private_file
from ..._platform.regular_files import is_missing, read_regular_file
from ...errors import UsageError
from .config_files import make_digest

TRUST_FILE = "trusted-programs.json"


def load_trusted_programs(home: str) -> dict[str, frozenset[str]]:
    """Load digests by folder. Raises UsageError for a broken file, so that nothing starts."""
    path = Path(home, TRUST_FILE)
    try:
        return msgspec.json.decode(read_regular_file(path), type=dict[str, frozenset[str]])
    except (OSError, ValueError) as error:
        if is_missing(path, error):
            return {}
        reason = getattr(error, "strerror", None) or error
        raise UsageError(
            f"the list of trusted programs cannot be read: {reason}",
            where=str(path),
            remedy="Repair or remove the file.",
        ) from None


def trust_programs(home: str, place: str, digests: Iterable[str]) -> None:
    """Trust exactly these programs of a real path; an empty set removes the path's entry."""
    trusted = load_trusted_programs(home)
    trusted.pop(place, None)
    if chosen := frozenset(digests):
        trusted[place] = chosen
    table = {place: sorted(trusted[place]) for place in sorted(trusted)}
    data = msgspec.json.format(msgspec.json.encode(table)) + b"\n"
    replace_private_file(Path(home, TRUST_FILE), data)


def untrust_programs(home: str, folder: str) -> bool:
    """Stop trusting a folder's programs. Return False if they were not trusted."""
    place = os.path.realpath(folder)
    is_listed = place in load_trusted_programs(home)
    if is_listed:
        trust_programs(home, place, ())
    return is_listed


# Prefix of prompts' digests in the list of trusted programs.
PROMPT_PREFIX = "prompt:"


class PromptRights(Struct, frozen=True, kw_only=True):
    """The rights a slash command's or skill's file uses beyond sending a prompt.

    Shell commands in its text run when the user calls it; its `allowed-tools` let the model act
    without asking. Both come with the folder, so they need trust as its hooks do.
    """

    name: str  # with the slash
    origin: str  # path of the file
    place: str  # folder the file belongs to, or whose settings turned on its plugin
    commands: tuple[str, ...] = ()  # before arguments are filled in
    rules: tuple[str, ...] = ()  # permission rules

    @property
    def digest(self) -> str:
        return PROMPT_PREFIX + make_digest(self.origin, self.commands, self.rules)

    @property
    def shown(self) -> str:
        allowed = [f"allows: {', '.join(self.rules)}"] if self.rules else []
        return "\n".join([*(f"runs: {command}" for command in self.commands), *allowed])
