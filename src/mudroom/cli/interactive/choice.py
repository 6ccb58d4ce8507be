"""A question with a list of answers, and the answers that a user may type."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ...projections.safe_text import sanitize_line
from ..output.text import Glyphs, Line, truncate, wrap

_SHORT = {"y": "yes", "n": "no"}


def match_answer(items: Sequence[tuple[str, str]], text: str) -> str | None:
    """Return the value of the item that a typed line names: by number, value or label, y or n.

    None if it names no item.
    """
    text = text.strip().lower()
    if text.isdecimal() and 0 < int(text) <= len(items):
        return items[int(text) - 1][0]
    text = _SHORT.get(text, text)
    matches = (value for value, label in items if text in (value.lower(), label.lower()))
    return next(matches, None)


class Choice:
    """A question with a list of answers, one of them marked.

    Arguments:
        items: pairs of value and label.
        free_text: accept a typed line as the answer, too.

    `result` is set to the value of the chosen item, the typed line, or None.
    """

    def __init__(
        self, title: str, items: Sequence[tuple[str, str]], *, free_text: bool = False
    ) -> None:
        self.title = title
        self.items = items
        self.allows_free_text = free_text
        self.index = 0
        self.result: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    def resolve(self, value: str | None) -> None:
        """Set the result, unless it is set already."""
        if not self.result.done():
            self.result.set_result(value)

    def format_lines(self, columns: int, height: int, glyphs: Glyphs) -> list[Line]:
        """Return the question and as many answers as fit, the marked one among them."""
        first = max(0, min(self.index - height // 2, len(self.items) - height))
        lines: list[Line] = [
            [(part, "bold")] for part in wrap(sanitize_line(self.title, 2000), columns)
        ]
        end = first + max(1, height - len(lines))
        for n, (_, label) in list(enumerate(self.items))[first:end]:
            mark = glyphs.mark if n == self.index else " "
            text = truncate(f"{mark} {n + 1}. {sanitize_line(label)}", columns, glyphs.more)
            lines.append([(text, "cyan reverse" if n == self.index else "")])
        return lines
