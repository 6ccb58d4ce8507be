"""Key bindings of the drawn prompt."""

from __future__ import annotations

from collections.abc import Callable

from prompt_toolkit.filters import (
    Condition,
    has_completions,
    has_focus,
    vi_insert_mode,
    vi_navigation_mode,
)
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.keys import Keys

from .key_actions import KeyActions

# Terminals that report Shift+Enter as a key of its own: treat it as Alt+Enter.
ANSI_SEQUENCES["\x1b[27;2;13~"] = (Keys.Escape, Keys.ControlM)
ANSI_SEQUENCES["\x1b[13;2u"] = (Keys.Escape, Keys.ControlM)


def make_key_bindings(
    actions: KeyActions, *, edit: Callable[[], None], suspend: Callable[[], None]
) -> KeyBindings:
    """Make the key bindings.

    Arguments:
        edit: opens the input line in the user's editor.
        suspend: suspends the program and returns to the shell.
    """
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
    # With vi keys, Esc on a line with text only leaves the insert mode.
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
        # A backslash before Enter makes a new line where the terminal cannot report Shift+Enter.
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
    """Bind the keys that act on the panel: those of a question, and those of the tree."""
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
