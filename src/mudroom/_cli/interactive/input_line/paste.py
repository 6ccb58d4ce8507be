"""Long pastes: a short placeholder in the input line, the whole text in the prompt that is sent."""

from __future__ import annotations

import re

# Line breaks and characters up to which a paste is inserted as it is.
MAX_LINES, MAX_CHARACTERS = 3, 800

_PLACEHOLDER = re.compile(r"\[Pasted text #(\d{1,9})(?!\d)[^\[\]\n]*+\]")


class PasteStore:
    def __init__(self) -> None:
        self._texts: list[str] = []

    def add(self, text: str) -> str:
        """Return what to insert for a paste: the text, or a placeholder if it is long."""
        # Terminals paste line breaks as carriage returns.
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        breaks = text.rstrip("\n").count("\n")
        if breaks < MAX_LINES and len(text) <= MAX_CHARACTERS:
            return text
        self._texts.append(text)
        size = f"+{breaks} lines" if breaks else f"{len(text):,} characters"
        return f"[Pasted text #{len(self._texts)} {size}]"

    def expand(self, line: str) -> str:
        return _PLACEHOLDER.sub(self._get_replacement, line)

    def _get_replacement(self, match: re.Match[str]) -> str:
        # The user may have typed a number that no paste has.
        number = int(match[1])
        return self._texts[number - 1] if 0 < number <= len(self._texts) else match[0]
