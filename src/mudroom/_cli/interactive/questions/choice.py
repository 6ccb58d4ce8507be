"""A question with a list of answers, and the answers a user may type."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from ...._projections.safe_text import sanitize_line
from ...output.text import Glyphs, Line, split_line, truncate, wrap

# Rows kept for a question's body before answers are left out.
MIN_BODY_ROWS = 3

_SHORT = {"y": "yes", "n": "no"}


def match_answer(items: Sequence[tuple[str, str]], text: str) -> str | None:
    """Match a typed line to an item's value: by number, value, label, y or n."""
    text = text.strip().lower()
    if text.isdecimal() and 0 < int(text) <= len(items):
        return items[int(text) - 1][0]
    text = _SHORT.get(text, text)
    matches = (value for value, label in items if text in (value.lower(), label.lower()))
    return next(matches, None)


class Choice:
    """A question with a list of answers, one of them marked.

    Items are pairs of value and label. The body scrolls if it does not fit. In a searchable list,
    typed text selects the items that contain all its words. `result` is the chosen item's value,
    the typed line, or None.
    """

    def __init__(
        self,
        title: str,
        items: Sequence[tuple[str, str]],
        *,
        free_text: bool = False,
        body: Sequence[Line] = (),
        is_searchable: bool = False,
        explains_keys: bool = False,
    ) -> None:
        self.title = title
        self.explains_keys = explains_keys
        self.is_searchable = is_searchable
        self._all_items = items
        self.items = items
        self.allows_free_text = free_text
        self.body = body
        self.index = 0
        self.first_row = 0
        self.hint = ""
        self.result: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()

    def find_key_answer(self, text: str) -> str | None:
        """Find the answer for the single key y or n, None if this question has none."""
        value = _SHORT.get(text.lower())
        return value if any(value == item for item, _ in self.items) else None

    def resolve(self, value: str | None) -> None:
        if not self.result.done():
            self.result.set_result(value)

    def search(self, text: str) -> None:
        words = text.lower().split()
        self.items = [
            item for item in self._all_items if all(word in item[1].lower() for word in words)
        ]
        self.index = 0

    def move(self, step: int) -> None:
        """Move the mark by one row; larger steps scroll the body, if any."""
        if self.body and abs(step) > 1:
            self.first_row += step
        elif self.items:
            self.index = (self.index + step) % len(self.items)

    def format_lines(self, columns: int, height: int, glyphs: Glyphs) -> list[Line]:
        title: list[Line] = [
            [(part, "bold")] for part in wrap(sanitize_line(self.title, 2000), columns)
        ]
        hint: list[Line] = (
            [[(part, "yellow")] for part in wrap(self.hint, columns)] if self.hint else []
        )
        height -= len(title) + len(hint)
        room = max(1, height - (MIN_BODY_ROWS if self.body else 0))
        answers = self._format_answers(columns, room, glyphs)
        body = self._format_body(columns, height - len(answers))
        if not answers:
            answers = [[("  nothing matches the typed text", "yellow")]]
        if self.explains_keys and not hint and len(body) + len(answers) < height:
            keys = f"Type 1-{len(self.items)}, or use the arrow keys and Enter"
            hint = [[(truncate(keys, columns, glyphs.more), "dim")]]
        return [*title, *body, *answers, *hint]

    def _format_answers(self, columns: int, height: int, glyphs: Glyphs) -> list[Line]:
        """Format the answers that fit, wrapped if there are rows for all."""
        # Keep the marked answer in the middle.
        first = max(0, min(self.index - height // 2, len(self.items) - height))
        answers: list[str] = []
        for n, (_, label) in enumerate(self.items):
            mark = glyphs.mark if n == self.index else " "
            answers.append(f"{mark} {n + 1}. {sanitize_line(label)}")
        rows = [list(wrap(answer, columns - 5)) for answer in answers]
        if sum(map(len, rows)) > height:
            rows = [[truncate(answer, columns, glyphs.more)] for answer in answers]
            rows = [row if first <= n < first + height else [] for n, row in enumerate(rows)]
        return [
            [(part if not at else f"     {part}", "cyan reverse" if n == self.index else "")]
            for n, parts in enumerate(rows)
            for at, part in enumerate(parts)
        ]

    def _format_body(self, columns: int, height: int) -> list[Line]:
        rows = [row for line in self.body for row in split_line(line, columns)]
        if len(rows) <= height:
            return rows
        room = max(1, height - 1)
        self.first_row = max(0, min(self.first_row, len(rows) - room))
        last = self.first_row + room
        note = f"  rows {self.first_row + 1}-{last} of {len(rows)}: page up, page down"
        return [*rows[self.first_row : last], [(truncate(note, columns), "yellow")]]
