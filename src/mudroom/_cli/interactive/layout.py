"""Layout of the drawn prompt: free rows, panel, input line, search, completions, status line."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from functools import partial

from prompt_toolkit.application import Application, get_app
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.cursor_shapes import (
    CursorShapeConfig,
    DynamicCursorShapeConfig,
    ModalCursorShapeConfig,
)
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
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.styles import Attrs, Style, StyleTransformation
from prompt_toolkit.widgets import SearchToolbar

from ..output.text import Line
from ..output.theme import LIGHT_COLORS, is_light
from .resize import ReflowRenderer, StableOutput

MENU_ROWS = 8

# Returns a window's text; called before each drawing.
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
    """Replaces ANSI colors by the theme's."""

    def transform_attrs(self, attrs: Attrs) -> Attrs:
        name = (attrs.color or "").removeprefix("ansi").removeprefix("bright")
        if is_light() and name in LIGHT_COLORS:
            return attrs._replace(color=LIGHT_COLORS[name][1])
        return attrs

    def invalidation_hash(self) -> bool:
        # prompt_toolkit keeps the drawn styles until this value changes.
        return is_light()


def _choose_cursor() -> CursorShapeConfig | None:
    """Return the cursor shapes of the vi modes; without vi keys the terminal keeps its cursor."""
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
    """Create the application and its renderer.

    Arguments:
        buffer: the input line.
        gap: returns the number of free rows above everything.
        panel, prompt, status: texts above, before and below the input line.
        vi_keys: edit the input line with the keys of vi.
    """
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
        # Seconds. Streamed text would otherwise redraw the screen for each part.
        min_redraw_interval=0.03,
        output=output,
    )
    renderer = ReflowRenderer(app, output)
    app.renderer = renderer
    return app, renderer


def _make_line_prefix(prompt: FragmentSource, line: int, wrap_count: int) -> StyleAndTextTuples:
    """Return the prompt for the first row of the input line, and as many blanks for the others."""
    text = prompt()
    if line == wrap_count == 0:
        return text
    return [("", " " * sum(len(part[1]) for part in text))]


def _open_output() -> StableOutput:
    """Open the terminal for output."""
    output = StableOutput.from_pty(sys.stdout, term=os.environ.get("TERM"))
    assert isinstance(output, StableOutput)  # The base class is declared to return itself.
    # No requests of the cursor's position: the reply is wrong if text was printed above the prompt
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
