"""Streaming Markdown: splits off complete blocks and renders each once, for printing."""

from __future__ import annotations

import io
import re
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from ..._platform.patterns import compile_later
from ..._projections.safe_text import sanitize
from .text import BREAKS, STYLE_CODES, UNICODE, Glyphs, Line, truncate, wrap_last_lines
from .theme import apply_theme

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.markdown import Markdown

# Characters; longer unfinished blocks are shown unrendered.
MAX_RENDERED_CHARACTERS = 8_000

# A zero-width blank at which rich may break a line; sanitized text has none.
_BREAK = "\x1f"

_BREAKS_IN_TABLES = rf"{BREAKS}|(?<=\w/)(?=\w)"
_FENCE = compile_later(r" {0,3}(`{3,}|~{3,})([^`]*)$")
_COLOR_SEQUENCE = compile_later(r"\x1b\[[\d;]*m")
_STYLE_NAMES = {code: name for name, code in STYLE_CODES.items()}
_LIST_ITEM = compile_later(r"[-*+] |\d+[.)] ")
_LIST_CONTINUATION = compile_later(r"\s+\S|[-*+] |\d+[.)] ")


class MarkdownBlocks:
    """Splits streaming Markdown into blocks: paragraphs, list items, tables, fenced code.

    `is_in_list`: `pending`, the incomplete block, continues the previous block's list.
    """

    def __init__(self) -> None:
        self.pending = ""
        self.is_in_list = False

    def feed(self, piece: str) -> str:
        """Add a piece of text; return the blocks that are now complete."""
        self.pending += piece
        # Blocks can only end at the end of a line.
        if "\n" not in piece:
            return ""
        end = _complete_length(self.pending)
        blocks = self.pending[:end]
        self.pending = self.pending[end:]
        if blocks:
            is_item = _LIST_ITEM.match(blocks) and _LIST_ITEM.match(self.pending)
            self.is_in_list = is_item is not None
        return blocks

    def take_rest(self) -> str:
        rest = self.pending
        self.is_in_list = False
        self.pending = ""
        return rest


def _complete_length(text: str) -> int:
    """Measure the leading blocks that later text cannot change.

    A block ends at a blank line outside code, unless a list may continue after it, and before
    the next item of a list.
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
            if position > end and _LIST_ITEM.match(line) and _LIST_ITEM.match(text[end:]):
                end = position
            if after_blank and not is_blank and not _LIST_CONTINUATION.match(line):
                end = position
            after_blank = is_blank
            fence = match[1] if match else ""
        position += len(line)
    return end


def render_markdown(text: str, *, columns: int, color: bool, ends: bool = True) -> str:
    """Render Markdown in the theme's colors, or without color sanitize its source.

    A blank line follows unless the same list continues (`ends` is False).
    """
    return apply_theme(_render(text, columns=columns, color=color, ends=ends))


def _render(text: str, *, columns: int, color: bool, ends: bool = True) -> str:
    end = "\n\n" if ends else "\n"
    text = sanitize(text).strip("\n")
    if not text:
        return ""
    if not color:
        return f"{text}{end}"
    # Imported here, because it is slow and not needed without colors.
    from rich.console import Console
    from rich.theme import Theme

    page = io.StringIO()
    console = Console(
        file=page,
        force_terminal=True,
        width=max(10, columns - 1),
        legacy_windows=False,
        theme=Theme({"markdown.code": "bold cyan"}),  # readable on light and dark
    )
    console.print(_parse_markdown(text))
    lines = [_strip_line(line) for line in page.getvalue().replace(_BREAK, "").split("\n")]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n") + end


def _parse_markdown(text: str) -> Markdown:
    """Parse Markdown for a page that wraps Chinese between characters.

    Tables cut no text, and wrap paths after slashes. List numbers have a dot, headings are
    left-aligned, and links show their addresses.
    """
    page = _make_page_class()(text, code_theme="ansi_dark", hyperlinks=False)
    breaks = BREAKS
    for block in page.parsed:
        if block.type == "table_open":
            breaks = _BREAKS_IN_TABLES
        elif block.type == "table_close":
            breaks = BREAKS
        for token in block.children or ():
            if token.type in ("text", "code_inline"):
                token.content = re.sub(breaks, _BREAK, token.content)
    return page


@cache
def _make_page_class() -> type[Markdown]:
    # A function, because rich is slow to import.
    from rich.markdown import Heading, ListItem, Markdown, TableElement
    from rich.segment import Segment
    from rich.table import Table

    class WrappedTable(TableElement):
        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            for table in super().__rich_console__(console, options):
                if isinstance(table, Table):
                    for column in table.columns:
                        column.overflow = "fold"
                yield table

    class LeftHeading(Heading):
        LEVEL_ALIGN: ClassVar = {}

    class NumberedItem(ListItem):
        def render_number(
            self, console: Console, options: ConsoleOptions, number: int, last_number: int
        ) -> RenderResult:
            columns = len(f" {last_number}. ")
            room = options.update(width=options.max_width - columns)
            start = Segment(f"{number}. ".rjust(columns), console.get_style("markdown.item.number"))
            for line in console.render_lines(self.elements, room, style=self.style):
                yield start
                yield from line
                yield Segment.line()
                start = Segment(" " * columns)

    class Page(Markdown):
        elements: ClassVar = {
            **Markdown.elements,
            "heading_open": LeftHeading,
            "list_item_open": NumberedItem,
            "table_open": WrappedTable,
        }

    return Page


def _strip_line(line: str) -> str:
    return line.rstrip() if _COLOR_SEQUENCE.sub("", line).strip() else ""


def format_unfinished(
    text: str, *, columns: int, height: int, color: bool, glyphs: Glyphs = UNICODE
) -> list[Line]:
    """Format the end of an incomplete block as it will be printed, in at most `height` rows."""
    if not text.strip() or height < 1:
        return []
    if not color or len(text) > MAX_RENDERED_CHARACTERS:
        last = wrap_last_lines(sanitize(text), columns, height + 1)
        rows: list[Line] = [[(row, "")] for row in last]
    else:
        rendered = _render(text, columns=columns + 1, color=True)
        rows = [_parse_colors(row) for row in rendered.rstrip("\n").split("\n")]
    if len(rows) <= height or height == 1:
        return rows[-height:]
    note = truncate(f"{glyphs.more} earlier rows", columns, glyphs.more)
    return [[(note, "dim")], *rows[1 - height :]]


def _parse_colors(row: str) -> Line:
    """Parse a row with color sequences, leaving out unnamed colors."""
    line: list[tuple[str, str]] = []
    style = ""
    for piece in re.split(f"({_COLOR_SEQUENCE.pattern})", row):
        if _COLOR_SEQUENCE.fullmatch(piece):
            names = [_STYLE_NAMES.get(code, "") for code in piece[2:-1].split(";")]
            style = " ".join(filter(None, names))
        elif piece:
            line.append((piece, style))
    return line
