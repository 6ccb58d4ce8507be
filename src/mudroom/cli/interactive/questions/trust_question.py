"""The question whether to trust a folder that contains agent files."""

from __future__ import annotations

import os
from collections.abc import Sequence

from msgspec.structs import replace

from ....config import Settings
from ....permissions import trust
from ...actions.load_permissions import is_trusted
from ..ui import QuestionUI

_AGENT_PATHS = (
    ".agents",
    ".claude",
    ".codex",
    ".gemini",
    ".opencode",
    ".qwen",
    ".goose",
    ".mcp.json",
)
"""Files and folders of a project that can configure agents."""


def find_untrusted_files(settings: Settings, cwd: str) -> list[str]:
    """Return the agent files of a folder, none if the folder is trusted."""
    names = [name for name in _AGENT_PATHS if os.path.exists(os.path.join(cwd, name))]
    return [] if names and is_trusted(settings, cwd) else names


async def ask_for_trust(
    ui: QuestionUI, settings: Settings, cwd: str, names: Sequence[str]
) -> Settings:
    """Ask whether to trust a folder; return the updated settings.

    Arguments:
        names: the agent files that the folder contains.
    """
    title = (
        f"{os.path.realpath(cwd)} contains {', '.join(names)}. Do you trust this folder? "
        "Until you do, its agents are read-only."
    )
    items = [
        ("always", "yes, always trust this folder"),
        ("yes", "yes, this time only"),
        ("no", "no"),
    ]
    choice = await ui.choose(title, items)
    if choice == "always":
        trust.trust_folder(settings.home, cwd)
    return replace(settings, trust=choice in ("always", "yes"))
