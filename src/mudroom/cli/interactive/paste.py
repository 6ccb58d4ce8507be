"""Long pastes: a short mark in the input line, the whole text in the prompt that is sent."""

from __future__ import annotations

import re

MAX_LINES, MAX_CHARACTERS = 3, 800
"""The longest paste that stays as it is."""

_MARK = re.compile(r"\[Pasted text #(\d+)[^\]\n]*\]")


class PasteStore:
    """The pastes of one conversation."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def mark(self, text: str) -> str:
        """What to put into the input line for a paste."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        breaks = text.rstrip("\n").count("\n")
        if breaks < MAX_LINES and len(text) <= MAX_CHARACTERS:
            return text
        self._texts.append(text)
        size = f"+{breaks} lines" if breaks else f"{len(text):,} characters"
        return f"[Pasted text #{len(self._texts)} {size}]"

    def expand(self, line: str) -> str:
        """The line with every mark replaced by its text."""
        return _MARK.sub(
            lambda found: (
                self._texts[int(found[1]) - 1]
                if 0 < int(found[1]) <= len(self._texts)
                else found[0]
            ),
            line,
        )
