"""The drawn prompt on a terminal: connects the screen, the input line and the conversation.

`PromptScreen` owns the screen, `KeyActions` the input line, `Conversation` the session and its
queue. `PromptUI` creates the first two and is the conversation's `UI`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, ThreadedCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import (
    Condition,
    has_completions,
    has_focus,
    vi_insert_mode,
    vi_navigation_mode,
)
from prompt_toolkit.history import FileHistory
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.keys import Keys

from ..._core.events import AnyEvent, RunFinished, RunStarted, TurnFinished
from ..._projections.safe_text import sanitize, sanitize_line
from ..._session.config import Settings
from ...errors import UsageError
from ..output.progress import should_color
from ..output.text import Line, choose_glyphs
from ..output.theme import use_theme
from .key_actions import NEXT_MODE_COMMAND, KeyActions
from .mentions import MentionCompletions, find_mention
from .panel import Panel
from .prompt_screen import PromptScreen
from .questions.choice import Choice
from .terminal.attention import Attention, choose_channel
from .terminal.status_command import StatusCommand

if TYPE_CHECKING:
    from .conversation import Conversation

# How long y or n must stand alone to answer a question, because text may begin with either.
KEY_ANSWER_SECONDS = 0.3

_CLOSING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class PromptUI:
    prints_child_lines = False

    def __init__(self, settings: Settings, cwd: str) -> None:
        self.exit_code = 0
        self._conversation: Conversation | None = None
        # None ends the input.
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._is_closed = False
        glyphs = choose_glyphs(sys.stdout.encoding)
        self._panel = Panel(glyphs)
        self._buffer = Buffer(
            multiline=True,
            history=FileHistory(_create_history_file(settings.home, cwd)),
            completer=ThreadedCompleter(PromptCompleter(self._get_mentions)),
            complete_while_typing=Condition(self._should_complete),
            # Editors choose highlighting by suffix.
            tempfile_suffix=".md",
            on_text_changed=self._apply_text_to_choice,
        )
        color = should_color(sys.stdout, settings.color)
        self._screen = PromptScreen(
            self._buffer, self._panel, glyphs, color=color, vi_keys=settings.vi_keys
        )
        self._asks_background = color and settings.theme == "auto"
        self._attention = Attention(
            self._screen.write_control,
            choose_channel(settings.notifications, os.environ),
            notify_after=settings.notify_after,
            has_title=settings.terminal_title,
        )
        self._status_command = StatusCommand(settings.status_line, self._screen.invalidate)
        self._screen.custom_status = lambda: self._status_command.line
        self.scrollback = self._screen.scrollback
        self._group = asyncio.TaskGroup()
        self._tasks: list[asyncio.Task[None]] = []
        self._actions = KeyActions(
            self._buffer,
            self._panel,
            self.scrollback,
            put=self._lines.put_nowait,
            close=self._close,
            redraw=self._screen.redraw,
            start_task=self._group.create_task,
        )
        self._screen.set_key_bindings(
            make_key_bindings(
                self._actions, edit=self._screen.open_editor, suspend=self._screen.suspend
            )
        )
        self._choice_lock = asyncio.Lock()

    async def __aenter__(self) -> PromptUI:
        self._screen.flush()
        await self._group.__aenter__()
        loop = asyncio.get_running_loop()
        for number in _CLOSING_SIGNALS:
            loop.add_signal_handler(number, self._close_by_signal, number)
        self._tasks = [
            self._group.create_task(self._run_screen()),
            self._group.create_task(self._screen.print_output()),
            self._group.create_task(self._screen.follow_run()),
            self._group.create_task(self._status_command.run()),
        ]
        await asyncio.sleep(0)  # Draw the prompt before the session opens.
        self.use_theme("auto" if self._asks_background else "")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._close(self.exit_code)
        self._screen.stop()
        screen, *others = self._tasks
        await screen
        for task in others:
            task.cancel()
        await self._group.__aexit__(None, None, None)
        self._screen.flush()
        self._attention.close()
        for number in _CLOSING_SIGNALS:
            asyncio.get_running_loop().remove_signal_handler(number)

    async def _run_screen(self) -> None:
        await self._screen.run()
        self._close(self.exit_code)

    def attach(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._panel.conversation = conversation
        self._actions.conversation = conversation
        self._attention.open(conversation.session.cwd)
        self._status_command.attach(conversation)
        self._screen.invalidate()

    def apply(self, event: AnyEvent) -> None:
        self._panel.apply(event)
        if isinstance(event, TurnFinished | RunStarted | RunFinished):
            self._status_command.refresh()

    async def read_line(self) -> str:
        """Return the next input line. Raises EOFError when the prompt is closed."""
        # An earlier conversation may have read the end of the input.
        line = None if self._is_closed and self._lines.empty() else await self._lines.get()
        if line is None:
            raise EOFError
        return line

    def begin_line(self, line: str, *, is_shown: bool) -> str:
        """Print a line about to be executed; return it with its pastes."""
        self._screen.redraw()
        if is_shown and line != NEXT_MODE_COMMAND:
            prompt = self._screen.prompt_text
            indent = " " * len(prompt)
            echo: list[Line] = [
                [(indent if n else prompt, "bold cyan"), (part, "bold")]
                for n, part in enumerate(sanitize(line).split("\n"))
            ]
            self.scrollback.write_lines(*echo)
        return self._actions.pastes.expand(line)

    def return_lines(self, lines: Sequence[str]) -> None:
        """Put lines back, ahead of those typed since."""
        later = [self._lines.get_nowait() for _ in range(self._lines.qsize())]
        for line in (*lines, *later):
            self._lines.put_nowait(line)

    def add_early_input(self, text: str) -> None:
        self._screen.add_early_keys(text)

    def prefill(self, text: str) -> None:
        self._buffer.text = text
        self._buffer.cursor_position = len(text)

    async def choose(
        self,
        title: str,
        items: Sequence[tuple[str, str]],
        *,
        free_text: bool = False,
        body: Sequence[Line] = (),
        is_searchable: bool = False,
    ) -> str | None:
        """Ask the user to choose in the panel. Questions wait for one another."""
        async with self._choice_lock:
            if self._is_closed:
                return None
            choice = Choice(
                title,
                items,
                free_text=free_text,
                body=body,
                is_searchable=is_searchable,
                explains_keys=not (free_text or is_searchable or self._panel.is_working),
            )
            self._panel.choice = choice
            self._screen.start_typing()
            self._attention.ask(title)
            if is_searchable:
                self._buffer.reset()
            self._screen.redraw()
            try:
                return await choice.result
            finally:
                self._panel.choice = None
                self._attention.start_work()
                self._screen.redraw()

    @contextmanager
    def during_run(self) -> Generator[None]:
        self._attention.start_work()
        try:
            with self._screen.during_run():
                yield
        finally:
            self._attention.finish_work()

    def use_theme(self, name: str) -> bool:
        """Use a theme from now on; "auto" asks the terminal, "" changes nothing."""
        if name == "auto":
            self._screen.query_background(self._use_background)
        elif name:
            use_theme(name)
        self._screen.redraw()
        return True

    def _use_background(self, is_light: bool) -> None:
        self.use_theme("light" if is_light else "dark")

    def toggle_vi_keys(self) -> bool | None:
        self._screen.uses_vi_keys = not self._screen.uses_vi_keys
        return self._screen.uses_vi_keys

    def _close_by_signal(self, number: int) -> None:
        """Pause the session, so that a later process continues its work, and close the prompt."""
        if self._conversation:
            self._conversation.driver.pause()
        self._close(128 + number)

    def _close(self, code: int = 0) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self.exit_code = code
        self._lines.put_nowait(None)
        if self._conversation:
            self._conversation.lines.take_back()
            self._conversation.interrupt()
        self._panel.answer_choice(None)

    def _apply_text_to_choice(self, buffer: Buffer) -> None:
        choice = self._panel.choice
        if choice and choice.is_searchable:
            choice.search(buffer.text)
            self._screen.redraw()
        elif choice and choice.find_key_answer(buffer.text):
            loop = asyncio.get_running_loop()
            loop.call_later(KEY_ANSWER_SECONDS, self._answer_by_key, choice, buffer.text)

    def _answer_by_key(self, choice: Choice, key: str) -> None:
        """Answer a question with y or n, unless more keys followed."""
        if self._panel.choice is choice and self._buffer.text == key:
            self._buffer.reset()
            self._panel.answer_choice(choice.find_key_answer(key))

    def _get_mentions(self) -> MentionCompletions | None:
        return self._conversation.mentions if self._conversation else None

    def _should_complete(self) -> bool:
        before = self._buffer.document.text_before_cursor
        return (before.startswith("/") and " " not in before) or find_mention(before) is not None


def _create_history_file(home: str, cwd: str) -> str:
    """Create the history file, readable only by the user; return its path."""
    # Paths may contain bytes that are not UTF-8.
    folder = os.path.realpath(cwd).encode("utf-8", "surrogateescape")
    path = Path(home, "history", hashlib.sha256(folder).hexdigest()[:16])
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_CREAT | os.O_APPEND, 0o600))
    return str(path)


class PromptCompleter(Completer):
    def __init__(self, get_mentions: Callable[[], MentionCompletions | None]) -> None:
        self._get_mentions = get_mentions

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        # Raised if the session was closed meanwhile.
        with suppress(UsageError):
            yield from self._find_completions(document.text_before_cursor)

    def _find_completions(self, before: str) -> Iterator[Completion]:
        mentions = self._get_mentions()
        if before.startswith("/") and " " not in before:
            for name, description in _list_commands(mentions):
                # Skip names that cannot be shown as they are: they would insert other text than
                # shown.
                if name.startswith(before) and name == sanitize_line(name):
                    meta = sanitize_line(description)
                    yield Completion(name, -len(before), display_meta=meta)
        mention = find_mention(before)
        if mention is None or mentions is None:
            return
        for word, kind in mentions.find_matches(mention):
            if word == sanitize(word) == sanitize_line(word):
                yield Completion(word, -len(mention), display_meta=kind)


def _list_commands(mentions: MentionCompletions | None) -> Iterator[tuple[str, str]]:
    """Yield names and descriptions, mudroom's own first, then those from files."""
    # Imported here: the prompt is drawn before the commands are loaded.
    from .slash_commands.registry import SLASH_COMMANDS

    for command in SLASH_COMMANDS:
        yield command.name, command.description
    if mentions:
        yield from mentions.list_commands()


# Where terminals report Shift+Enter as a separate key, treat it as Alt+Enter.
ANSI_SEQUENCES["\x1b[27;2;13~"] = (Keys.Escape, Keys.ControlM)
ANSI_SEQUENCES["\x1b[13;2u"] = (Keys.Escape, Keys.ControlM)


def make_key_bindings(
    actions: KeyActions, *, edit: Callable[[], None], suspend: Callable[[], None]
) -> KeyBindings:
    keys = KeyBindings()
    focused = has_focus(actions.buffer)
    empty = Condition(lambda: not actions.buffer.text)
    _bind_editing(keys, actions)
    for names, action in (
        (("c-s",), actions.steer),
        (("c-c",), actions.interrupt),
        (("<sigint>",), actions.interrupt),
        (("c-o",), actions.show_full_result),
        (("c-t",), actions.steer_children),
        (("c-g",), edit),
        (("c-z",), suspend),
        (("c-x", "c-k"), actions.stop_all),
        (("escape", "p"), actions.choose_model),
    ):
        keys.add(*names, filter=focused)(_make_handler(action))
    has_text = Condition(lambda: bool(actions.buffer.text) and not actions.is_choosing)
    # With vi keys, Esc on a line with text only leaves insert mode.
    ends_vi_input = vi_insert_mode & has_text
    keys.add("escape", filter=focused & ~ends_vi_input)(_make_handler(actions.escape))
    keys.add("c-v", filter=focused & ~vi_navigation_mode)(_make_handler(actions.paste_image))
    working = Condition(lambda: actions.is_working)
    keys.add("c-b", filter=focused & working)(_make_handler(actions.detach))
    # While completions are shown, Shift+Tab moves among them.
    keys.add("s-tab", filter=focused & ~has_completions)(_make_handler(actions.switch_mode))
    keys.add("c-d", filter=focused & empty)(_make_handler(actions.leave))
    keys.add("?", filter=focused & empty)(_make_handler(actions.show_shortcuts))
    _bind_panel(keys, actions)
    return keys


def _bind_editing(keys: KeyBindings, actions: KeyActions) -> None:
    focused = has_focus(actions.buffer)

    @keys.add("enter", filter=focused)
    def _(event: KeyPressEvent) -> None:
        # For terminals that cannot report Shift+Enter, a backslash before Enter makes a new line.
        if event.current_buffer.document.text_before_cursor.endswith("\\"):
            event.current_buffer.delete_before_cursor()
            event.current_buffer.insert_text("\n")
        else:
            event.app.vi_state.input_mode = InputMode.INSERT
            actions.submit()

    @keys.add("c-j", filter=focused)
    @keys.add("escape", "enter", filter=focused)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add(Keys.BracketedPaste, filter=focused)
    def _(event: KeyPressEvent) -> None:
        actions.paste(event.data)


def _bind_panel(keys: KeyBindings, actions: KeyActions) -> None:
    focused = has_focus(actions.buffer)
    empty = Condition(lambda: not actions.buffer.text) & focused
    searching = focused & Condition(lambda: actions.is_searching)
    steering = focused & Condition(lambda: actions.is_steering)
    movable = (empty & Condition(lambda: actions.can_move)) | searching | steering
    choosing = empty & Condition(lambda: actions.is_choosing)
    for name, step in (("up", -1), ("down", 1), ("pageup", -10), ("pagedown", 10)):
        keys.add(name, filter=movable)(
            _make_handler(lambda step=step: actions.move_selection(step))
        )
    keys.add("enter", filter=movable)(_make_handler(actions.accept_selection))
    keys.add(Keys.Any, filter=steering)(_make_handler(actions.ignore_key))
    for name in "mwx":
        # Bound as a default, because the loop variable changes.
        keys.add(name, filter=steering)(_make_handler(lambda name=name: actions.act_on_child(name)))
    for n in range(1, 10):
        keys.add(str(n), filter=choosing)(_make_handler(lambda n=n: actions.pick_option(n)))


def _make_handler(action: Callable[[], None]) -> Callable[[KeyPressEvent], None]:
    def handle(_: KeyPressEvent) -> None:
        action()

    return handle
