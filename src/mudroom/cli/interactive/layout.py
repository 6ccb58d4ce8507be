"""The windows of the drawn prompt, from top to bottom: free rows, panel, input line, search, room for completions, status."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from typing import Any

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings
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
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from ..output.text import Line
from .resize import ReflowRenderer, ScrollbackSafeOutput

MENU_ROWS = 8
"""Lines of completions."""

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


def make_application(
    *,
    buffer: Buffer,
    gap: Callable[[], int],
    panel: FragmentSource,
    prompt: FragmentSource,
    status: FragmentSource,
    keys: KeyBindings,
    color: bool,
    **terminal: Any,
) -> tuple[Application[None], ReflowRenderer]:
    """The application that draws them, and its renderer.

    Arguments:
        buffer: of the input line. gap: free rows above all.
        panel, prompt, status: texts, asked before each drawing. terminal: input and output, for tests.
    """
    search = SearchToolbar(ignore_case=True)
    control = BufferControl(buffer, search_buffer_control=search.control, preview_search=True)

    def prefix(line: int, wrap: int) -> StyleAndTextTuples:
        text = prompt()
        return text if line == wrap == 0 else [("", " " * sum(len(part[1]) for part in text))]

    rows = HSplit(
        [
            Window(height=gap),
            ConditionalContainer(
                Window(FormattedTextControl(panel), dont_extend_height=True),
                Condition(lambda: bool(panel())),
            ),
            Window(control, wrap_lines=True, dont_extend_height=True, get_line_prefix=prefix),
            search,
            Window(height=lambda: MENU_ROWS if buffer.complete_state else 0),
            Window(FormattedTextControl(status), height=1, style="class:status"),
        ],
        align=VerticalAlign.TOP,
    )
    if "output" not in terminal:
        terminal["output"] = _output()
    menu = Float(CompletionsMenu(max_height=MENU_ROWS), xcursor=True, ycursor=True)
    app: Application[None] = Application(
        layout=Layout(FloatContainer(rows, [menu]), control),
        key_bindings=keys,
        style=_STYLE,
        color_depth=None if color else ColorDepth.DEPTH_1_BIT,
        erase_when_done=True,
        min_redraw_interval=0.03,
        **terminal,
    )
    app.renderer = renderer = ReflowRenderer(app)
    return app, renderer


def _output() -> Vt100_Output:
    """The terminal, never asked where its cursor is: an answer that comes after something was written above would be wrong."""
    output = ScrollbackSafeOutput.from_pty(sys.stdout, term=os.environ.get("TERM"))
    output.enable_cpr = False
    return output


def to_fragments(lines: Iterable[Line]) -> StyleAndTextTuples:
    """Our lines in the library's words."""
    text: StyleAndTextTuples = []
    for n, line in enumerate(lines):
        if n:
            text.append(("", "\n"))
        text.extend(
            (" ".join(f"ansi{name}" if name in _COLORS else name for name in style.split()), words)
            for words, style in line
        )
    return text


def count_newlines(text: StyleAndTextTuples) -> int:
    """How many lines there are but one."""
    return sum(part[1].count("\n") for part in text)
