"""Streaming Markdown: complete blocks are split off and rendered once, so they can be printed."""

from __future__ import annotations

import io
import re

from ...projections.safe_text import sanitize

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^`]*)$")
_COLOR_SEQUENCE = re.compile(r"\x1b\[[\d;]*m")
_LIST_CONTINUATION = re.compile(r"\s+\S|[-*+] |\d+[.)] ")


class MarkdownBlocks:
    """Streaming Markdown, split into complete blocks: paragraphs, lists, tables, fenced code.

    `pending` is the text of the block that is not complete yet.
    """

    def __init__(self) -> None:
        self.pending = ""

    def feed(self, piece: str) -> str:
        """Add a piece of text; return the blocks that are complete now, "" for none."""
        self.pending += piece
        if "\n" not in piece:
            return ""
        end = _complete_length(self.pending)
        blocks = self.pending[:end]
        self.pending = self.pending[end:]
        return blocks

    def take_rest(self) -> str:
        """Remove and return the pending text, at the end of the answer."""
        rest = self.pending
        self.pending = ""
        return rest


def _complete_length(text: str) -> int:
    """Return the length of the leading blocks that later text cannot change.

    A block ends at a blank line outside code, unless a list may continue after it.
    """
    end = 0
    position = 0
    fence = ""
    after_blank = False
    for line in text.splitlines(keepends=True):
        match = _FENCE.match(line.rstrip("\n"))
        if fence:
            if match and match[1].startswith(fence) and not match[2].strip():
                fence = ""
        else:
            is_blank = not line.strip()
            if after_blank and not is_blank and not _LIST_CONTINUATION.match(line):
                end = position
            after_blank = is_blank
            fence = match[1] if match else ""
        position += len(line)
    return end


def render_markdown(text: str, *, columns: int, color: bool) -> str:
    """Render Markdown as lines for a terminal, with a blank line after it.

    Arguments:
        columns: width to wrap at.
        color: False to return the source text, only sanitized.
    """
    text = sanitize(text).strip("\n")
    if not text:
        return ""
    if not color:
        return f"{text}\n\n"
    # Imported here: not needed without colors, and slow to import.
    from rich.console import Console
    from rich.markdown import Markdown

    page = io.StringIO()
    console = Console(
        file=page, force_terminal=True, width=max(10, columns - 1), legacy_windows=False
    )
    console.print(Markdown(text, code_theme="ansi_dark"))
    lines = [_strip_line(line) for line in page.getvalue().split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n") + "\n\n"


def _strip_line(line: str) -> str:
    """Remove blanks at the end of a line; empty a line that has only color sequences."""
    return line.rstrip() if _COLOR_SEQUENCE.sub("", line).strip() else ""
