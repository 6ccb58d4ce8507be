"""Texts of hooks for the model."""

from __future__ import annotations

from ..._platform.private_files import make_spill_file

MAX_CONTEXT = 10_000
"""Characters of a text for the model; the whole text is in a file."""


def cut_hook_text(text: str, spill_folder: str) -> str:
    """Return a text with at most MAX_CONTEXT characters; a file has the whole text."""
    if len(text) <= MAX_CONTEXT:
        return text
    path = make_spill_file(spill_folder, "hook")
    with open(path, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
    return f"{text[: MAX_CONTEXT - 200]}\n[… the whole text is in {path}]"
