"""Redrawing the prompt after the terminal re-wrapped its rows."""

from __future__ import annotations

import io

import pytest
from prompt_toolkit.application import Application
from prompt_toolkit.application.current import set_app
from prompt_toolkit.data_structures import Point, Size
from prompt_toolkit.input import DummyInput
from prompt_toolkit.layout import FormattedTextControl, Layout, Window
from prompt_toolkit.layout.screen import Char

from mudroom._cli.interactive.layout import (
    ReflowRenderer,
    StableOutput,
    count_wrapped_rows,
    terminal_rewraps,
)


@pytest.mark.parametrize(
    ("text", "columns", "rows"),
    [
        ("", 10, 1),
        ("a" * 10, 10, 1),
        ("a" * 11, 10, 2),
        ("a" * 30, 10, 3),
        ("看" * 5, 10, 1),
        ("a" + "看" * 5, 10, 2),
        ("看" * 5, 5, 3),
        ("看", 1, 1),
    ],
)
def test_wrapped_rows_are_counted_as_the_terminal_wraps_them(
    text: str, columns: int, rows: int
) -> None:
    cells: list[Char] = []
    for char in text:
        cells += [Char(char), *[Char("")] * (Char(char).width - 1)]
    assert count_wrapped_rows(dict(enumerate(cells)), len(cells), columns) == rows


@pytest.mark.parametrize(
    ("environ", "rewraps"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "xterm-256color", "XTERM_VERSION": "XTerm(379)"}, False),
        ({"TERM": "tmux", "XTERM_VERSION": "XTerm(379)", "TMUX": "/tmp/t,1,0"}, True),
        ({"TERM": "screen", "STY": "1.pts"}, False),
        ({"TERM": "linux"}, False),
    ],
)
def test_terminals_that_do_not_rewrap_are_known(environ: dict[str, str], rewraps: bool) -> None:
    assert terminal_rewraps(environ) is rewraps


class RecordedTerminal:
    """An application on a terminal whose output is recorded."""

    def __init__(self) -> None:
        self.text = ""
        self.cursor = Point(x=0, y=0)
        self.columns = 40
        self.columns_after_reading: int | None = None
        self.out = io.StringIO()
        output = StableOutput(self.out, self._read_size, enable_cpr=False)
        window = Window(
            FormattedTextControl(
                lambda: self.text, focusable=True, get_cursor_position=lambda: self.cursor
            ),
            dont_extend_height=True,
        )
        self.app: Application[None] = Application(Layout(window), input=DummyInput(), output=output)
        self.renderer = ReflowRenderer(self.app, output)

    def _read_size(self) -> Size:
        size = Size(rows=20, columns=self.columns)
        if self.columns_after_reading:
            self.columns = self.columns_after_reading
        return size

    def draw(self, text: str) -> str:
        self.text = text
        self.app.render_counter += 1
        before = len(self.out.getvalue())
        with set_app(self.app):
            self.renderer.render(self.app, self.app.layout)
        return self.out.getvalue()[before:]


async def test_a_row_that_becomes_shorter_is_erased_and_drawn_again() -> None:
    terminal = RecordedTerminal()
    terminal.draw("0123456789\nsecond")
    assert "\x1b[2K" not in terminal.draw("0123456780\nsecond")
    again = terminal.draw("01234\nsecond")
    assert "01234" in again[again.index("\x1b[2K") :] and "second" not in again


async def test_erase_removes_all_rows_that_the_terminal_wrapped() -> None:
    terminal = RecordedTerminal()
    terminal.draw("a" * 39 + "\n" + "看" * 15 + "\n")
    terminal.cursor = Point(x=0, y=2)
    terminal.draw("a" * 39 + "\n" + "看" * 15 + "\n" + "prompt")
    terminal.columns = 20
    before = len(terminal.out.getvalue())
    terminal.renderer.erase()
    assert "\r\x1b[4A\x1b[2K" in terminal.out.getvalue()[before:]
    assert terminal.renderer.reserved_rows == 2 and terminal.renderer.is_settling


async def test_at_the_same_width_nothing_settles() -> None:
    terminal = RecordedTerminal()
    terminal.draw("a" * 39)
    terminal.renderer.erase()
    assert terminal.renderer.reserved_rows == 0 and not terminal.renderer.is_settling


async def test_a_resize_during_a_drawing_is_handled_after_the_drawing() -> None:
    terminal = RecordedTerminal()
    rows = "a" * 39 + "\n" + "b" * 39 + "\n"
    terminal.cursor = Point(x=0, y=2)
    terminal.draw(rows + "prompt")
    terminal.columns_after_reading = 20
    terminal.draw(rows + "prompt 2")
    before = len(terminal.out.getvalue())
    terminal.renderer.erase()
    assert "\r\x1b[4A\x1b[2K" in terminal.out.getvalue()[before:]
