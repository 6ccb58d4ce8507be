"""The screen of the drawn prompt: draws panel and input line, and prints output above them."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input.base import Input
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyBindingsBase
from prompt_toolkit.key_binding.vi_state import InputMode

from ..output.live_tree import DRAW_PERIOD, MAX_CPU_SHARE
from ..output.scrollback import Scrollback
from ..output.text import Glyphs, measure_width, truncate
from .layout import MENU_ROWS, count_newlines, make_application, to_fragments
from .panel import Panel
from .typeahead import format_eraser, queue_keys

PROMPT = "mudroom >> "
# The prompt on terminals narrower than MIN_PROMPT_COLUMNS.
SHORT_PROMPT = ">> "
MIN_PROMPT_COLUMNS = 40
# The prompt while the keys act on the tree.
STEERING_PROMPT = "steer >> "

# Rows below the panel: input line, status line, one free row.
_FIXED_ROWS = 3


class PromptScreen:
    """The drawn part of the terminal, and the output printed above it."""

    def __init__(
        self, buffer: Buffer, panel: Panel, glyphs: Glyphs, *, color: bool, vi_keys: bool = False
    ) -> None:
        self._buffer = buffer
        self._panel = panel
        self._glyphs = glyphs
        self.scrollback = Scrollback(
            write=self._write, columns=lambda: self._get_size()[0], color=color, glyphs=glyphs
        )
        self._app, self._renderer = make_application(
            buffer=buffer,
            gap=self._count_free_rows,
            panel=self._draw_panel,
            prompt=lambda: [("class:prompt", self._get_current_prompt())],
            status=self._draw_status,
            color=color,
            vi_keys=vi_keys,
        )
        # Seconds to wait for the rest of an escape or key sequence.
        self._app.ttimeoutlen = 0.05
        self._app.timeoutlen = 0.25
        self._app.before_render += self._measure_drawing
        self._app.after_render += self._measure_drawing
        # Returns the user's own status line, "" for the built-in one.
        self.custom_status: Callable[[], str] = str
        self._measured_at = 0.0
        self._draw_seconds = 0.0
        self._output: list[str] = []
        self._has_output = asyncio.Event()
        self._is_run_working = asyncio.Event()
        self._is_editor_open = False
        self._drawn: tuple[float, tuple[int, int], StyleAndTextTuples] = (0.0, (0, 0), [])

    def set_key_bindings(self, keys: KeyBindingsBase) -> None:
        self._app.key_bindings = keys

    @property
    def uses_vi_keys(self) -> bool:
        return self._app.editing_mode is EditingMode.VI

    @uses_vi_keys.setter
    def uses_vi_keys(self, uses_vi: bool) -> None:
        self._app.editing_mode = EditingMode.VI if uses_vi else EditingMode.EMACS
        self.start_typing()

    def start_typing(self) -> None:
        """Make the next keys text, even after a vi command."""
        self._app.vi_state.input_mode = InputMode.INSERT

    def add_early_keys(self, text: str) -> None:
        """Read keys pressed before the prompt was drawn, and erase their echo."""
        if text:
            queue_keys(self._app.input, text)
            self.write_control(format_eraser(text, self._get_size()[0]))

    def write_control(self, sequence: str) -> None:
        self._app.output.write_raw(sequence)
        self._app.output.flush()

    def query_background(self, on_reply: Callable[[bool], object]) -> None:
        """Ask the terminal whether its background is light; it replies later, or never."""
        watch_background(self._app.input, on_reply)
        self.write_control(BACKGROUND_QUERY)

    async def run(self) -> None:
        """Draw until `stop` is called or the terminal is closed."""
        with suppress(EOFError):  # The terminal was closed.
            await self._app.run_async(handle_sigint=False)

    def stop(self) -> None:
        if self._app.is_running:
            self._app.exit()

    def suspend(self) -> None:
        self._app.suspend_to_background()

    def open_editor(self) -> None:
        """Open the input line in the user's editor; output waits until the editor is closed."""
        self._is_editor_open = True

        def on_close(_: object) -> None:
            self._is_editor_open = False
            self._has_output.set()

        self._buffer.open_in_editor().add_done_callback(on_close)

    def invalidate(self) -> None:
        """Draw again soon; the panel may be slightly out of date."""
        self._app.invalidate()

    def redraw(self) -> None:
        """Draw again soon, with an up-to-date panel."""
        self._drawn = (0.0, (0, 0), [])
        self._switch_screen()
        if self._panel.is_steering:
            self._is_run_working.set()
        self._app.invalidate()

    @contextmanager
    def during_run(self) -> Generator[None]:
        self._is_run_working.set()
        try:
            yield
        finally:
            self.redraw()

    async def follow_run(self) -> None:
        """Draw regularly during a run, within the share of CPU time allowed for drawing.

        After an interrupt, draw background work as long as it continues.
        """
        while True:
            await self._is_run_working.wait()
            await asyncio.sleep(max(DRAW_PERIOD, self._draw_seconds / MAX_CPU_SHARE))
            self._app.invalidate()
            if not (self._panel.is_working or self._panel.is_steering):
                self._is_run_working.clear()

    async def print_output(self) -> None:
        """Print written text above the prompt. Text waits while an editor or pager is open."""
        while True:
            await self._has_output.wait()
            self._has_output.clear()
            if not (self._is_editor_open or self._renderer.full_screen):
                self.flush()
            # Collect text that follows shortly: each printing redraws the prompt.
            await asyncio.sleep(DRAW_PERIOD / 2)

    def flush(self) -> None:
        """Print the written text: erase the prompt, print, redraw the prompt below."""
        text = "".join(self._output)
        self._output.clear()
        if not text:
            return
        app = self._app
        if not app.is_running:
            app.output.write_raw(text)
            app.output.flush()
            return
        self._renderer.erase()
        self._renderer.reserved_rows = 0
        # The terminal is in raw mode, where a line feed does not return to the left edge.
        app.output.write_raw(text.replace("\n", "\r\n"))
        self._renderer.reset()
        app.render_counter += 1  # Texts are cached per drawing.
        self._renderer.render(app, app.layout)

    @property
    def prompt_text(self) -> str:
        return PROMPT if self._get_size()[0] >= MIN_PROMPT_COLUMNS else SHORT_PROMPT

    def _get_current_prompt(self) -> str:
        if self._panel.target_name:
            return f"to {self._panel.target_name} >> "
        return STEERING_PROMPT if self._panel.is_steering else self.prompt_text

    def _write(self, text: str) -> None:
        if text:
            self._output.append(text)
            self._has_output.set()

    def _switch_screen(self) -> None:
        """Draw open transcripts on the alternate screen, so that closing restores this one.

        Questions are drawn on the normal screen.
        """
        full_screen = self._panel.pager is not None and self._panel.choice is None
        if full_screen != self._renderer.full_screen and self._app.is_running:
            self._renderer.erase()
            self._renderer.full_screen = full_screen
            self._has_output.set()

    def _measure_drawing(self, _: object) -> None:
        """Measure a drawing's CPU time; called before and after it."""
        now = time.thread_time()
        self._draw_seconds = now - self._measured_at
        self._measured_at = now

    def _get_size(self) -> tuple[int, int]:
        size = self._app.output.get_size()
        return size.columns, size.rows

    def _count_free_rows(self) -> int:
        """Count the reserved rows above the panel, as far as they fit."""
        panel_rows = count_newlines(self._draw_panel()) + _FIXED_ROWS
        menu_rows = MENU_ROWS if self._buffer.complete_state else 0
        used = panel_rows + 2 + self._buffer.text.count("\n") + menu_rows
        return max(0, min(self._renderer.reserved_rows, panel_rows, self._get_size()[1] - used))

    def _draw_panel(self) -> StyleAndTextTuples:
        size = self._get_size()
        now = time.monotonic()
        drawn_at, drawn_size, fragments = self._drawn
        if self._renderer.is_settling:
            # Keep the height but show nothing: long rows would wrap into the scrollback.
            return [("", "\n" * count_newlines(fragments))] if fragments else []
        if drawn_size != size or now - drawn_at >= DRAW_PERIOD / 2:
            columns, height = size
            free = height - _FIXED_ROWS - 1 - self._buffer.text.count("\n")
            # Leave one column free: some terminals wrap once the last is written.
            fragments = to_fragments(self._panel.format_lines(max(1, columns - 1), max(1, free)))
            self._drawn = (now, size, fragments)
        return fragments

    def _draw_status(self) -> StyleAndTextTuples:
        conversation = self._panel.conversation
        if self._renderer.is_settling or not conversation:
            return []
        columns = self._get_size()[0] - 1
        hint = self._panel.key_hint
        if self.uses_vi_keys and self._app.vi_state.input_mode is InputMode.NAVIGATION:
            hint = hint or "vi: normal mode"
        line = self.custom_status()
        if line:
            hint = f"{self._glyphs.dot}{hint}" if hint else ""
            room = max(0, columns - measure_width(hint))
            return [("", truncate(line, room, self._glyphs.more)), ("", hint)]
        model, figures = conversation.status.format_line(columns, self._glyphs, hint=hint)
        return [("", model), ("", figures)]


# Asks for the background color (OSC 11). Terminals without support stay silent.
BACKGROUND_QUERY = "\x1b]11;?\x1b\\"

_REPLY = re.compile(
    r"\x1b\]11;rgba?:([0-9a-f]{1,4})/([0-9a-f]{1,4})/([0-9a-f]{1,4})"
    r"(?:/[0-9a-f]{1,4})?(?:\x07|\x1b\\)",
    re.I,
)
# Characters; a longer sequence is something else and not held back.
_MAX_REPLY_LENGTH = 64
# Perceived brightness of red, green and blue (ITU-R BT.601).
_WEIGHTS = (0.299, 0.587, 0.114)


class ReplyFilter:
    """Removes replies to the query from the input."""

    def __init__(self, feed: Callable[[str], object], on_reply: Callable[[bool], object]) -> None:
        self._feed = feed
        self._on_reply = on_reply
        self._incomplete = ""

    def __call__(self, data: str) -> None:
        """Accept input as the terminal sent it; a reply may come in several pieces."""
        data = self._incomplete + data
        self._incomplete = ""
        for match in _REPLY.finditer(data):
            self._on_reply(_is_light(match[1], match[2], match[3]))
        data = _REPLY.sub("", data)
        start = data.rfind("\x1b]")
        if start >= 0 and len(data) - start < _MAX_REPLY_LENGTH:
            self._incomplete = data[start:]
            data = data[:start]
        if data:
            self._feed(data)


def watch_background(source: Input, on_reply: Callable[[bool], object]) -> None:
    if isinstance(source, Vt100Input):
        parser = source.vt100_parser
        parser.feed = ReplyFilter(parser.feed, on_reply)


def _is_light(*channels: str) -> bool:
    # Terminals reply with one to four digits per channel.
    shares = [int(channel, 16) / (16 ** len(channel) - 1) for channel in channels]
    return sum(weight * share for weight, share in zip(_WEIGHTS, shares, strict=True)) > 0.5
