"""Slash commands for the terminal: its theme, and the keys of vi."""

from __future__ import annotations

import os

from ...._session.config import THEMES, find_user_file, write_setting
from ....errors import UsageError, suggest_names
from ..conversation import Conversation

_THEMES = {
    "auto": "ask the terminal for its background",
    "dark": "the palette of the terminal",
    "light": "darker colors for a light background",
}


async def theme(conversation: Conversation, name: str) -> None:
    """Use a theme, given by name or chosen from a list, and save it in the settings."""
    if not name:
        items = [(each, f"{each}: {text}") for each, text in _THEMES.items()]
        name = await conversation.ui.choose("Which theme?", items) or ""
    if not name:
        return
    if name not in THEMES:
        raise UsageError(f"no such theme: {name}", remedy=suggest_names(name, THEMES))
    if not conversation.ui.use_theme(name):
        conversation.print_text("Colors are off here: see the setting color and $NO_COLOR.", "dim")
    _save(conversation, "theme", name)


async def vim(conversation: Conversation, _: str) -> None:
    """Turn the keys of vi on or off, and save that in the settings."""
    is_on = conversation.ui.toggle_vi_keys()
    if is_on is None:
        conversation.print_text("Plain lines have no vi keys: the terminal edits the line.")
        return
    state = "on: Esc leaves the insert mode" if is_on else "off"
    conversation.print_text(f"The keys of vi are {state}.", "dim")
    _save(conversation, "vi_keys", "true" if is_on else "")


def _save(conversation: Conversation, name: str, value: str) -> None:
    path = find_user_file(os.environ)
    write_setting(path, name, value)
    conversation.print_text(f"Saved as {name} in {path}.", "dim")
