"""Texts of hooks for the model."""

from __future__ import annotations

import os
from uuid import uuid4

MAX_CONTEXT = 10_000
"""Characters of a text for the model; the whole text is in a file."""


def cut_hook_text(text: str, spill_folder: str) -> str:
    """Return a text with at most MAX_CONTEXT characters; a file has the whole text."""
    if len(text) <= MAX_CONTEXT:
        return text
    path = os.path.join(spill_folder, f"hook-{uuid4().hex[:12]}.txt")
    os.makedirs(spill_folder, mode=0o700, exist_ok=True)
    with open(path, "w", encoding="utf-8", errors="replace") as file:
        file.write(text)
    return f"{text[: MAX_CONTEXT - 200]}\n[… the whole text is in {path}]"
