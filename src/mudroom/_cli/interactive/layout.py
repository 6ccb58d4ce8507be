"""Layout of the drawn prompt: free rows, panel, input line, search, completions, status line."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from functools import partial

from prompt_toolkit.application import Application, get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.cursor_shapes import (
    CursorShapeConfig,
    DynamicCursorShapeConfig,
    ModalCursorShapeConfig,
)
from prompt_toolkit.data_structures import Point, Size
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.layout import (
    ConditionalContainer,
    Float,
    FloatContainer,
    HSplit,
    Layout,
    VerticalAlign,
    Window,
)
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.screen import Char, Screen
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.renderer import Renderer
from prompt_toolkit.styles import Attrs, Style, StyleTransformation
from prompt_toolkit.widgets import SearchToolbar

from ..output.text import ERASE_DOWN, Line
from ..output.theme import LIGHT_COLORS, is_light

MENU_ROWS = 8

# Makes a window's text; called before each drawing.
FragmentSource = Callable[[], StyleAndTextTuples]

_COLORS = {"red", "green", "yellow", "blue", "magenta", "cyan"}
_STYLE = Style.from_dict(
    {
        "completion-menu": "noinherit",
        "completion-menu.completion": "noinherit",
        "completion-menu.completion.current": "noinherit bold ansicyan",
        "completion-menu.meta.completion": "noinherit dim",
        "completion-menu.meta.completion.current": "noinherit ansicyan",
        "scrollbar.background": "noinherit",
        "scrollbar.button": "noinherit",
        "status": "dim",
        "prompt": "bold ansicyan",
    }
)


class _ThemeColors(StyleTransformation):
    def transform_attrs(self, attrs: Attrs) -> Attrs:
        name = (attrs.color or "").removeprefix("ansi").removeprefix("bright")
        if is_light() and name in LIGHT_COLORS:
            return attrs._replace(color=LIGHT_COLORS[name][1])
        return attrs

    def invalidation_hash(self) -> bool:
        # prompt_toolkit keeps the drawn styles until this value changes.
        return is_light()


def _choose_cursor() -> CursorShapeConfig | None:
    """Choose cursor shapes for the vi modes; otherwise the terminal keeps its cursor."""
    uses_vi = get_app().editing_mode is EditingMode.VI
    return ModalCursorShapeConfig() if uses_vi else None


def make_application(
    *,
    buffer: Buffer,
    gap: Callable[[], int],
    panel: FragmentSource,
    prompt: FragmentSource,
    status: FragmentSource,
    color: bool,
    vi_keys: bool,
) -> tuple[Application[None], ReflowRenderer]:
    search = SearchToolbar(ignore_case=True)
    control = BufferControl(buffer, search_buffer_control=search.control, preview_search=True)
    rows = HSplit(
        [
            Window(height=gap),
            ConditionalContainer(
                Window(FormattedTextControl(panel), dont_extend_height=True),
                Condition(lambda: bool(panel())),
            ),
            Window(
                control,
                wrap_lines=True,
                dont_extend_height=True,
                get_line_prefix=partial(_make_line_prefix, prompt),
            ),
            search,
            # Room for the menu, which floats over the rows below the cursor.
            Window(height=lambda: MENU_ROWS if buffer.complete_state else 0),
            Window(FormattedTextControl(status), height=1, style="class:status"),
        ],
        align=VerticalAlign.TOP,
    )
    menu = Float(CompletionsMenu(max_height=MENU_ROWS), xcursor=True, ycursor=True)
    output = _open_output()
    app: Application[None] = Application(
        layout=Layout(FloatContainer(rows, [menu]), control),
        style=_STYLE,
        color_depth=None if color else ColorDepth.DEPTH_1_BIT,
        style_transformation=_ThemeColors(),
        editing_mode=EditingMode.VI if vi_keys else EditingMode.EMACS,
        cursor=DynamicCursorShapeConfig(_choose_cursor),
        erase_when_done=True,
        # Seconds. Without it, each piece of streamed text would redraw the screen.
        min_redraw_interval=0.03,
        output=output,
    )
    renderer = ReflowRenderer(app, output)
    app.renderer = renderer
    return app, renderer


def _make_line_prefix(prompt: FragmentSource, line: int, wrap_count: int) -> StyleAndTextTuples:
    text = prompt()
    if line == wrap_count == 0:
        return text
    return [("", " " * sum(len(part[1]) for part in text))]


def _open_output() -> StableOutput:
    output = StableOutput.from_pty(sys.stdout, term=os.environ.get("TERM"))
    assert isinstance(output, StableOutput)  # The base class is declared to return itself.
    # Do not request the cursor's position: the reply is wrong if text was printed above the prompt
    # in the meantime.
    output.enable_cpr = False
    return output


def to_fragments(lines: Iterable[Line]) -> StyleAndTextTuples:
    fragments: StyleAndTextTuples = []
    for n, line in enumerate(lines):
        if n:
            fragments.append(("", "\n"))
        fragments.extend((_to_style(style), text) for text, style in line)
    return fragments


def _to_style(style: str) -> str:
    return " ".join(f"ansi{name}" if name in _COLORS else name for name in style.split())


def count_newlines(fragments: StyleAndTextTuples) -> int:
    return sum(part[1].count("\n") for part in fragments)


# A resize is over after this long without a new width. While a window is dragged, tmux reports a
# new width four times a second.
SETTLE_SECONDS = 0.4

# Cells of one drawn row by column.
Row = dict[int, Char]


class StableOutput(Vt100_Output):
    _held_size: Size | None = None

    @contextmanager
    def hold_size(self) -> Generator[Size]:
        # A window may be resized during the computation of a drawing.
        self._held_size = size = self.get_size()
        try:
            yield size
        finally:
            self._held_size = None

    def get_size(self) -> Size:
        return self._held_size or super().get_size()

    def erase_down(self) -> None:
        # Unlike the base class's sequence, this does not copy the erased rows into the scrollback.
        self.write_raw(ERASE_DOWN)


class ReflowRenderer(Renderer):
    """Renderer that finds its drawing again after the terminal has re-wrapped it.

    The base class assumes one screen row for each of its rows. A narrower terminal wraps a long row
    into several, and the cursor moves with its row. Some terminals still count the blanks of a row
    that used to be longer, so a row that becomes shorter is erased and drawn again.
    """

    # Blank rows reserved above the prompt because re-wrapping made it taller. They are released
    # when text is printed above the prompt. Without them the prompt would climb at each new width,
    # and the next width would push its first rows into the scrollback.
    reserved_rows = 0

    def __init__(self, app: Application[None], output: StableOutput) -> None:
        self._app = app
        self._stable_output = output
        self._settled_at = 0.0
        super().__init__(app.renderer.style, output)

    @property
    def is_settling(self) -> bool:
        """True shortly after the width has changed.

        Long rows should wait: if wrapped again, they would push rows into the scrollback.
        """
        return time.monotonic() < self._settled_at

    def render(self, app: Application[None], layout: Layout, is_done: bool = False) -> None:
        """Draw the changes, or everything if the width has changed."""
        with self._stable_output.hold_size() as size:
            self._follow_width(size)
            before = self._measure_rows() if self._last_size == size else []
            super().render(app, layout, is_done)
            after = self._measure_rows()
            rows = enumerate(zip(before, after, strict=False))
            shorter = [y for y, (old, new) in rows if new < old]
            if shorter:
                self._erase_rows(shorter)
                super().render(app, layout, is_done)

    def erase(self, leave_alternate_screen: bool = True) -> None:
        with self._stable_output.hold_size() as size:
            self._follow_width(size)
            super().erase(leave_alternate_screen)

    def _follow_width(self, size: Size) -> None:
        """Move the cursor to the left edge and count its row at the current width."""
        screen = self._last_screen
        drawn_size = self._last_size
        columns = size.columns
        if self.full_screen or not screen or not drawn_size or drawn_size.columns == columns:
            return
        if not terminal_rewraps(os.environ):
            return
        self._settled_at = time.monotonic() + SETTLE_SECONDS
        asyncio.get_running_loop().call_later(SETTLE_SECONDS, self._app.invalidate)
        cursor = self._cursor_pos
        rows = screen.data_buffer
        above = sum(
            count_wrapped_rows(rows[y], self._measure_row(screen, y), columns)
            for y in range(cursor.y)
        )
        own_width = min(cursor.x + 1, self._measure_row(screen, cursor.y), drawn_size.columns)
        own = count_wrapped_rows(rows[cursor.y], own_width, columns)
        self.output.write_raw("\r")
        self._cursor_pos = Point(x=0, y=above + own - 1)
        self.reserved_rows += self._cursor_pos.y - cursor.y

    def _erase_rows(self, rows: Iterable[int]) -> None:
        screen = self._last_screen
        if not screen:
            return
        for y in rows:
            self.output.cursor_up(max(0, self._cursor_pos.y - y))
            self.output.cursor_down(max(0, y - self._cursor_pos.y))
            self.output.write_raw("\r\x1b[2K")
            self._cursor_pos = Point(x=0, y=y)
            screen.data_buffer.pop(y, None)

    def _measure_rows(self) -> list[int]:
        screen = self._last_screen
        return [self._measure_row(screen, y) for y in range(screen.height)] if screen else []

    def _measure_row(self, screen: Screen, y: int) -> int:
        """Measure a row's columns, without unstyled blanks at its end."""
        row = screen.data_buffer[y]
        styled = self._style_string_has_style
        last = -1
        for x, cell in row.items():
            if cell.char != " " or (styled and styled[cell.style]):
                last = max(last, x)
        return last + (row[last].width or 1) if last >= 0 else 0


def count_wrapped_rows(row: Row, width: int, columns: int) -> int:
    """Count the screen rows of the first `width` columns of a drawn row."""
    rows = 1
    used = 0
    x = 0
    while x < width:
        cell = row[x].width or 1
        # A wide character is never split.
        if used and used + cell > columns:
            rows += 1
            used = 0
        used += cell
        x += cell
    return rows


def terminal_rewraps(environ: Mapping[str, str]) -> bool:
    # The Linux console, xterm and screen cut off long rows instead.
    if environ.get("TERM") == "linux":
        return False
    return "TMUX" in environ or not {"XTERM_VERSION", "STY"} & set(environ)
