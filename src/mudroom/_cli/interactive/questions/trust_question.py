"""Asks whether to trust a folder that contains agent files or programs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from ...._projections.safe_text import escape_hidden, escape_line
from ...._session.config import Settings
from ....permissions import trust
from ...actions.load_permissions import is_trusted
from ...output.text import Line
from ..ui import QuestionUI

if TYPE_CHECKING:
    from ...._adapters.integrations.usable_programs import UsablePrograms

# A project's files and folders that can configure agents.
_AGENT_PATHS = (
    ".agents",
    ".mudroom",
    ".claude",
    ".codex",
    ".gemini",
    ".opencode",
    ".qwen",
    ".goose",
)


class TrustAnswer(NamedTuple):
    """Settings and programs after the question; None for no programs."""

    settings: Settings
    programs: UsablePrograms | None

    @property
    def trusted_prompts(self) -> frozenset[str]:
        return self.programs.trusted_prompts if self.programs else frozenset()


def find_untrusted_files(settings: Settings, cwd: str) -> list[str]:
    """Find a folder's agent files; none if the folder is trusted."""
    names = [name for name in _AGENT_PATHS if os.path.exists(os.path.join(cwd, name))]
    return [] if names and is_trusted(settings, cwd) else names


async def ask_for_trust(
    ui: QuestionUI,
    settings: Settings,
    cwd: str,
    names: Sequence[str],
    programs: UsablePrograms | None = None,
) -> TrustAnswer:
    """Ask whether to trust a folder, showing all commands it would start.

    `names` are the folder's agent files, if it is untrusted; of the programs, only untrusted ones
    matter.
    """
    needs_programs = programs is not None and bool(programs.untrusted)
    what = "this folder" if names else "these programs"
    items = [
        ("always", f"yes, always trust {what}"),
        ("yes", "yes, this time only"),
        ("no", "no"),
    ]
    # A home folder, for example, must not be trusted forever with everything below it.
    if names and trust.is_too_wide(cwd):
        items = items[1:]
    if needs_programs:
        items.reverse()  # Pressing Enter without reading starts nothing.
    title = _format_title(cwd, names, programs)
    body = list(_format_body(programs)) if programs else []
    choice = await ui.choose(title, items, body=body)
    is_trusted_now = choice in ("always", "yes")
    if choice == "always" and names:
        trust.trust_folder(settings.home, cwd)
    if names:
        settings = replace(settings, trust=is_trusted_now)
    if programs and needs_programs and is_trusted_now:
        if choice == "always":
            programs.remember_trust(settings.home)
        programs = programs.trust_all()
    return TrustAnswer(settings, programs)


def _format_title(cwd: str, names: Sequence[str], programs: UsablePrograms | None) -> str:
    folder = escape_line(os.path.realpath(cwd))
    untrusted = programs.untrusted if programs else ()
    if not untrusted:
        return (
            f"{folder} contains {', '.join(names)}. Do you trust this folder? "
            "Until you do, its agents are read-only."
        )
    from ...._adapters.integrations.program_trust import PromptRights
    from ...._adapters.integrations.usable_programs import describe_count

    count = describe_count(untrusted)
    where = "They run outside the sandbox."
    if any(isinstance(program, PromptRights) for program in untrusted):
        where = "MCP servers and hooks run outside the sandbox; slash commands when you call them."
    if not names:
        return (
            f"{folder} declares {count} that you have not trusted, or that have changed. "
            f"Do you trust these programs? {where}"
        )
    return (
        f"{folder} contains {', '.join(names)}, and declares {count}. Do you trust this folder? "
        "Until you do, its agents are read-only, and none of these programs starts. "
        f"{where}"
    )


def _format_body(programs: UsablePrograms) -> Iterator[Line]:
    from ...._adapters.integrations.usable_programs import describe_program

    origin = ""
    for program in programs.untrusted:
        if program.origin != origin:
            origin = program.origin
            yield [(f"  {escape_line(origin)}", "dim")]
        yield [(f"    {escape_line(describe_program(program))}: ", "")]
        for line in escape_hidden(program.shown).split("\n"):
            yield [(f"      {line}", "bold")]
