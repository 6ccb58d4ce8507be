"""An answer as it streams: cut into whole blocks, each rendered once and never touched again, so it can stay in the scrollback."""

from __future__ import annotations

import io
import re

from ...projections.safe_text import sanitize

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^`]*)$")
_SGR = re.compile(r"\x1b\[[\d;]*m")
_ITEM = re.compile(r"\s+\S|[-*+] |\d+[.)] ")


class MarkdownBlocks:
    """Markdown in pieces -> whole blocks: paragraphs, lists, tables, fenced code. `pending` is what is not whole yet."""

    def __init__(self) -> None:
        self.pending = ""

    def feed(self, piece: str) -> str:
        """Take in a piece; the blocks that are whole now, "" for none."""
        self.pending += piece
        end = _whole(self.pending) if "\n" in piece else 0
        whole, self.pending = self.pending[:end], self.pending[end:]
        return whole

    def take_rest(self) -> str:
        """What is left at the end."""
        rest, self.pending = self.pending, ""
        return rest


def _whole(text: str) -> int:
    """Where the last block ends that no further text can change: at a blank line outside code, before what is no item of a list."""
    end = at = 0
    fence, blank = "", False
    for line in text.splitlines(keepends=True):
        found = _FENCE.match(line.rstrip("\n"))
        if fence:
            if found and found[1].startswith(fence) and not found[2].strip():
                fence = ""
        else:
            if blank and line.strip() and not _ITEM.match(line):
                end = at
            blank = not line.strip()
            fence = found[1] if found else ""
        at += len(line)
    return end


def render_markdown(text: str, *, columns: int, color: bool) -> str:
    """Markdown as lines for a terminal, a blank line after it.

    Arguments:
        columns: width to break at. color: whether to style it; without, the text stays as it was written.
    """
    text = sanitize(text).strip("\n")
    if not text:
        return ""
    if not color:
        return f"{text}\n\n"
    from rich.console import Console
    from rich.markdown import Markdown

    page = io.StringIO()
    Console(file=page, force_terminal=True, width=max(10, columns - 1), legacy_windows=False).print(
        Markdown(text, code_theme="ansi_dark")
    )
    lines = "\n".join(
        line.rstrip() if _SGR.sub("", line).strip() else "" for line in page.getvalue().split("\n")
    )
    return re.sub(r"\n{3,}", "\n\n", lines).strip("\n") + "\n\n"
