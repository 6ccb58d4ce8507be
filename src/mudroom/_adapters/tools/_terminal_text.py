r"""The text a terminal would show at the end of a command's output.

Programs redraw their progress with carriage returns, backspaces and escape sequences. Like a
terminal, this stream shows the last state of each line. Text without such characters passes byte
for byte, except that the line end `\r\n` becomes `\n`.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from functools import lru_cache

from ..._platform.patterns import compile_later

_ROWS = 100  # that can still change; progress displays of many downloads are at most this high
_ROW_CELLS = 8_192  # of a row that can still change; earlier ones in a longer line stay
_COLUMNS = 200
_LINES = 24
"""Farthest column and row an escape sequence moves to, unless the text itself goes further.
Programs looking for the edge of the screen move to 999."""
_TAB = 8

_CONTROL_BYTES = bytes(n for n in (*range(32), 127) if n not in b"\t\n")
_STRING = r"[\]PX^_][^\x07\x1b]{0,4096}"
_CONTROL = compile_later(
    r"([\r\x08])|\x1b\[([0-9;]{0,64})([@-~])|\x1b([78])"
    rf"|\x1b(?:\[[0-?]{{0,64}}[ -/]{{0,8}}[@-~]|{_STRING}(?:\x07|\x1b\\)|[ -/]{{0,8}}[0-~])?"
    r"|[\0-\x07\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f]+"
)
_UNFINISHED = compile_later(rf"\x1b(?:\[[0-?]{{0,64}}[ -/]{{0,8}}|{_STRING}\x1b?|[ -/]{{0,8}})?\Z")
_LONGEST_SEQUENCE = 4_100
_NARROW = compile_later(r"[ -~\xa1-\xac\xae-\u02ff\u2500-\u25fc\u2800-\u28ff\udc80-\udcff]*")
"""Characters that take one cell each; others are measured one by one."""


class TerminalText:
    """Filters byte chunks, however divided; its time and memory do not depend on their content.

    The last 100 rows can still change, and escape sequences move no higher. Erasing the screen
    starts a new one below the rows so far, to keep everything a terminal would have in its
    scrollback. Bytes that are not UTF-8 pass unchanged.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._pending = ""
        self._rows: list[str | list[str]] = [""]
        """A row is a text, or a list of cells once something has been written inside it."""
        self._row = 0
        self._column: int | None = None
        """None means the end of the row; its number is only cheap to tell for a row of cells."""
        self._saved = (0, 0)
        self._done: list[str] = []

    def feed(self, chunk: bytes) -> bytes:
        """Add a chunk; return the bytes that no later chunk can change."""
        text = self._decoder.decode(chunk)
        if self._pending or len(chunk.translate(None, _CONTROL_BYTES)) < len(chunk):
            text = self._pending + text
            end = _find_unfinished(text)
            self._pending = text[end:]
            self._read(text[:end])
        elif text:
            self._write(text)
        return self._take_done()

    def flush(self) -> bytes:
        """Return the rest at the end of the output."""
        self._read(self._pending + self._decoder.decode(b"", final=True))
        self._pending = ""
        self._finish_rows(len(self._rows) - 1)
        self._done.append(_join(self._rows[0]))
        self._rows[0] = ""
        return self._take_done()

    def read_rows(self) -> str:
        """Return the present state of rows that later chunks can still change."""
        return "\n".join(map(_join, self._rows))

    def _take_done(self) -> bytes:
        done = "".join(self._done)
        self._done.clear()
        return done.encode("utf-8", "surrogateescape")

    def _read(self, text: str) -> None:
        if "\r\n" in text:
            text = text.replace("\r\n", "\n")
        pieces: list[str] = []  # of text, separated only by sequences without effect
        position = 0
        for control in _CONTROL.finditer(text):
            if control.start() > position:
                pieces.append(text[position : control.start()])
            position = control.end()
            kind = control[1] or control[3] or control[4]
            if not kind or kind == "m":
                continue
            if pieces:
                self._write("".join(pieces))
                pieces.clear()
            if kind == "\r":
                self._column = 0
            elif kind == "\b":
                self._column = max(0, self._find_column() - 1)
            else:
                self._move(kind, control[2] or "")
        pieces.append(text[position:])
        if rest := "".join(pieces):
            self._write(rest)

    def _move(self, kind: str, parameters: str) -> None:
        """Execute an escape sequence that moves the cursor or changes text; ignore any other."""
        first, _, second = parameters.partition(";")
        count = _read_number(first)
        if kind in "AF":
            self._go_to(self._row - (count or 1), 0 if kind == "F" else self._find_column())
        elif kind in "BE":
            self._go_to(self._row + (count or 1), 0 if kind == "E" else self._find_column())
        elif kind in "CD":
            step = (count or 1) if kind == "C" else -(count or 1)
            self._go_to(self._row, self._find_column() + step)
        elif kind in "G`":
            self._go_to(self._row, (count or 1) - 1)
        elif kind in "Hf":
            self._go_to((count or 1) - 1, (_read_number(second) or 1) - 1)
        elif kind == "d":
            self._go_to((count or 1) - 1, self._find_column())
        elif kind in "JKLMPX@":
            self._change(kind, count)
        elif kind in "7s" and not parameters:
            self._saved = (self._row, self._find_column())
        elif kind in "8u" and not parameters:
            self._go_to(*self._saved)

    def _change(self, kind: str, count: int) -> None:
        if kind == "J":
            self._erase_below(count)
        elif kind == "K":
            self._erase_in_row(count)
        elif kind in "LM":
            self._change_rows(kind, count or 1)
        else:
            self._change_cells(kind, count or 1)

    def _go_to(self, row: int, column: int) -> None:
        last = max(_LINES, len(self._rows)) - 1
        self._row = min(max(row, 0), last)
        while len(self._rows) <= self._row:
            self._rows.append("")
        farthest = max(_COLUMNS - 1, len(self._rows[self._row]))
        self._column = min(max(column, 0), farthest)

    def _find_column(self) -> int:
        return len(self._get_cells()) if self._column is None else self._column

    def _get_cells(self) -> list[str]:
        """Return the current row's cells; changing them changes the row."""
        cells = self._rows[self._row]
        if isinstance(cells, str):
            cells = _measure(cells)
            self._rows[self._row] = cells
        return cells

    def _erase_in_row(self, part: int) -> None:
        if part == 0 and self._column is None:
            return
        column = self._find_column()
        cells = self._get_cells()
        if part == 0:
            _split_wide(cells, column)
            del cells[column:]
        elif part == 1:
            _split_wide(cells, column + 1)
            erased = min(column + 1, len(cells))
            cells[:erased] = " " * erased
        elif part == 2:
            cells.clear()
        self._column = column

    def _erase_below(self, part: int) -> None:
        if part == 0:
            del self._rows[self._row + 1 :]
            self._erase_in_row(0)
        elif part == 2:
            column = self._find_column()
            while len(self._rows) > 1 and not self._rows[-1]:
                self._rows.pop()
            if any(self._rows):
                self._rows.append("")
                self._finish_rows(len(self._rows) - 1)
            self._row = 0
            self._column = column

    def _change_cells(self, kind: str, count: int) -> None:
        """Delete (P), erase (X) or insert (@) `count` cells at the cursor."""
        if self._column is None:
            return
        column, cells = self._column, self._get_cells()
        length = len(cells)
        if column >= length:
            return
        end = column if kind == "@" else min(column + count, length)
        _split_wide(cells, column)
        _split_wide(cells, end)
        if kind != "X" and length <= _COLUMNS:
            _expand_tabs(cells, column)
        new = [] if kind == "P" else [" "] * (min(count, _COLUMNS) if kind == "@" else end - column)
        cells[column:end] = new
        # Cells moved over the right edge are lost. If the text goes further, its end is the edge.
        edge = max(_COLUMNS, length)
        _split_wide(cells, edge)
        del cells[edge:]

    def _change_rows(self, kind: str, count: int) -> None:
        """Insert (L) or delete (M) `count` rows at the cursor."""
        self._column = 0
        if kind == "M":
            del self._rows[self._row : self._row + count]
            if self._row == len(self._rows):
                self._rows.append("")
            return
        last = max(_LINES, len(self._rows))
        self._rows[self._row : self._row] = [""] * min(count, _LINES)
        while len(self._rows) > last and not self._rows[-1]:
            self._rows.pop()
        self._finish_rows(len(self._rows) - _ROWS)

    def _write(self, text: str) -> None:
        """Write text at the cursor, over the cells there or at the end."""
        while self._column is not None or self._row < len(self._rows) - 1:
            line, end, text = text.partition("\n")
            self._write_in_row(line)
            if not end:
                return
            self._row += 1
            self._column = 0 if self._row < len(self._rows) else None
            if self._column is None:
                self._rows.append("")
                self._finish_rows(len(self._rows) - _ROWS)
            elif not self._rows[self._row]:
                self._column = None
        first, *lines = text.split("\n")
        self._append(first)
        self._rows += lines
        self._row = len(self._rows) - 1
        self._finish_rows(len(self._rows) - _ROWS)
        if len(text) >= _ROW_CELLS:
            self._finish_long_row(lines)

    def _append(self, text: str) -> None:
        row = self._rows[self._row]
        if isinstance(row, str):
            row += text
            self._rows[self._row] = row
        else:
            _put(row, len(row), text)
        self._finish_start(self._row)

    def _write_in_row(self, text: str) -> None:
        if not text:
            return
        column = self._column
        if column is None:
            self._append(text)
            return
        row = self._rows[self._row]
        if column == 0 and len(text) >= len(row) and _NARROW.fullmatch(text) and _is_narrow(row):
            self._rows[self._row] = text  # usually the next state of a progress bar
            column = len(text)
        else:
            column = _put(self._get_cells(), column, text)
        if column < len(self._rows[self._row]):
            self._column = column
        else:
            self._column = None if column == len(self._rows[self._row]) else column
            self._finish_start(self._row)

    def _finish_long_row(self, lines: list[str]) -> None:
        """Release everything up to the last new row that is too long to change."""
        for number in range(len(self._rows) - 1, max(-1, len(self._rows) - len(lines) - 1), -1):
            if len(self._rows[number]) >= _ROW_CELLS:
                self._finish_start(number)
                return

    def _finish_start(self, number: int) -> None:
        """Release the start of a row that is too long to change, and all rows above it."""
        row = self._rows[number]
        if (surplus := len(row) // _ROW_CELLS * _ROW_CELLS) == 0:
            return
        self._finish_rows(number)
        self._done.append(_join(row[:surplus]))
        self._rows[0] = row[surplus:]
        if self._row == 0 and self._column is not None:
            self._column = max(0, self._column - surplus)

    def _finish_rows(self, count: int) -> None:
        if count <= 0:
            return
        self._done.append("\n".join(map(_join, self._rows[:count])) + "\n")
        del self._rows[:count]
        self._row = max(0, self._row - count)
        self._saved = (max(0, self._saved[0] - count), self._saved[1])


def _find_unfinished(text: str) -> int:
    """Find the start of a sequence that the next chunk may continue; else the length."""
    start = text.rfind("\x1b", max(0, len(text) - _LONGEST_SEQUENCE), len(text) - 1)
    for place in (start, len(text) - 1):
        if place >= 0 and _UNFINISHED.match(text, place):
            return place
    return len(text) - text.endswith("\r")


def _read_number(digits: str) -> int:
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) < 9 else 0


def _join(row: str | list[str]) -> str:
    return row if isinstance(row, str) else "".join(row)


def _is_narrow(row: str | list[str]) -> bool:
    return isinstance(row, list) or _NARROW.fullmatch(row) is not None


def _measure(text: str) -> list[str]:
    """Split text into cells; a wide character or tab is in its first, and its others are empty."""
    cells: list[str] = []
    _put(cells, 0, text)
    return cells


def _put(cells: list[str], column: int, text: str) -> int:
    """Write text over the cells from a column on; return the column after it."""
    if column > len(cells):
        cells += " " * (column - len(cells))
    for piece in re.split("(\t)", text) if "\t" in text else (text,):
        if piece == "\t":
            stop = column - column % _TAB + _TAB
            if column == len(cells):
                cells += ["\t", *[""] * (stop - column - 1)]
            elif stop > len(cells):
                cells += " " * (stop - len(cells))
            column = stop
        elif piece:  # writing inside a wide character splits it
            column = _put_characters(cells, column, piece)
    return column


def _put_characters(cells: list[str], column: int, text: str) -> int:
    new = list(text) if _NARROW.fullmatch(text) else _measure_characters(text)
    marks = ""
    if new and new[0] and _count_cells(new[0][0]) == 0 and column > 0:
        marks = new.pop(0)
    if marks:
        owner = column - 1
        while owner > 0 and not cells[owner]:
            owner -= 1
        cells[owner] += marks
    end = column + len(new)
    _split_wide(cells, column)
    _split_wide(cells, end)
    cells[column:end] = new
    return end


def _measure_characters(text: str) -> list[str]:
    cells: list[str] = []
    for character in text:
        count = _count_cells(character)
        if count:
            cells.append(character)
            if count == 2:
                cells.append("")
        elif not cells:
            cells.append(character)
        else:
            cells[-1 if cells[-1] else -2] += character
    return cells


@lru_cache(4096)
def _count_cells(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _expand_tabs(cells: list[str], start: int) -> None:
    """Replace tabs with spaces, because cells that move reach other tab stops."""
    is_tab = False
    for column in range(start, len(cells)):
        is_tab = cells[column].startswith("\t") or (is_tab and not cells[column])
        if is_tab:
            cells[column] = " "


def _split_wide(cells: list[str], column: int) -> None:
    """Replace a character with spaces if a change begins or ends inside it."""
    if not 0 < column < len(cells) or cells[column]:
        return
    start = column
    while start > 0 and not cells[start]:
        start -= 1
    end = column
    while end < len(cells) and not cells[end]:
        end += 1
    cells[start:end] = " " * (end - start)
