"""The question whether to trust a folder that contains agent files."""

from __future__ import annotations

import os

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


async def ask_for_trust(ui: QuestionUI, settings: Settings, cwd: str) -> Settings:
    """Ask whether to trust a folder that contains agent files; return the updated settings.

    The user is not asked if there are no such files, or if the folder is trusted already.
    """
    names = [name for name in _AGENT_PATHS if os.path.exists(os.path.join(cwd, name))]
    if not names or is_trusted(settings, cwd):
        return settings
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
