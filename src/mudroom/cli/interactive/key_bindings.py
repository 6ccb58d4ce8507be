"""Which key does what at the prompt."""

from __future__ import annotations

from collections.abc import Callable

from prompt_toolkit.filters import Condition, has_completions, has_focus
from prompt_toolkit.input.ansi_escape_sequences import ANSI_SEQUENCES
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys

from .key_actions import KeyActions

ANSI_SEQUENCES["\x1b[27;2;13~"] = ANSI_SEQUENCES["\x1b[13;2u"] = (Keys.Escape, Keys.ControlM)
"""Shift+Enter, where a terminal tells it from Enter, is Alt+Enter."""


def make_key_bindings(
    desk: KeyActions, *, edit: Callable[[], None], suspend: Callable[[], None]
) -> KeyBindings:
    """The keys of the input line, and of what is drawn above it. `edit` opens the person's editor, `suspend` gives the shell back."""
    keys = KeyBindings()
    typing = has_focus(desk.buffer)
    empty = Condition(lambda: not desk.buffer.text)
    _editing(keys, desk)
    for names, deed in (
        (("c-s",), desk.steer),
        (("escape",), desk.escape),
        (("c-c",), desk.interrupt),
        (("<sigint>",), desk.interrupt),
        (("c-o",), desk.show_full_result),
        (("c-t",), desk.select_tasks),
        (("c-g",), edit),
        (("c-z",), suspend),
        (("c-x", "c-k"), desk.stop_all),
    ):
        keys.add(*names, filter=typing)(_doing(deed))
    keys.add("escape", "p", filter=typing)(_doing(desk.choose_model))
    keys.add("c-b", filter=typing & Condition(lambda: desk.is_busy))(
        _doing(desk.explain_background)
    )
    keys.add("s-tab", filter=typing & ~has_completions)(_doing(desk.next_mode))
    keys.add("c-d", filter=typing & empty)(_doing(desk.leave))
    keys.add("?", filter=typing & empty)(_doing(desk.show_shortcuts))
    _above(keys, desk)
    return keys


def _editing(keys: KeyBindings, desk: KeyActions) -> None:
    where = has_focus(desk.buffer)

    @keys.add("enter", filter=where)
    def _(event: KeyPressEvent) -> None:
        if event.current_buffer.document.text_before_cursor.endswith("\\"):
            event.current_buffer.delete_before_cursor()
            event.current_buffer.insert_text("\n")
        else:
            desk.submit()

    @keys.add("c-j", filter=where)
    @keys.add("escape", "enter", filter=where)
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add(Keys.BracketedPaste, filter=where)
    def _(event: KeyPressEvent) -> None:
        desk.paste(event.data)


def _above(keys: KeyBindings, desk: KeyActions) -> None:
    """Keys for what is drawn above an empty input line."""
    empty = Condition(lambda: not desk.buffer.text) & has_focus(desk.buffer)
    movable = empty & Condition(lambda: desk.can_move)
    for name, step in (("up", -1), ("down", 1), ("pageup", -10), ("pagedown", 10)):
        keys.add(name, filter=movable)(_doing(lambda step=step: desk.move_selection(step)))
    keys.add("enter", filter=movable)(_doing(desk.accept_selection))
    for name in "mwx":
        keys.add(name, filter=empty & Condition(lambda: desk.is_child_selected))(
            _doing(lambda name=name: desk.act_on_child(name))
        )
    for n in range(1, 10):
        keys.add(str(n), filter=empty & Condition(lambda: desk.is_choosing))(
            _doing(lambda n=n: desk.pick_option(n))
        )


def _doing(deed: Callable[[], None]) -> Callable[[KeyPressEvent], None]:
    def handler(_: KeyPressEvent) -> None:
        deed()

    return handler
