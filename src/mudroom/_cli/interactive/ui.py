"""The prompt's user interface, as the conversation and its questions use it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Protocol

from ..._core.events import AnyEvent
from ..output.scrollback import Scrollback
from ..output.text import Line


class QuestionUI(Protocol):
    @property
    def scrollback(self) -> Scrollback: ...

    async def choose(
        self,
        title: str,
        items: Sequence[tuple[str, str]],
        *,
        free_text: bool = False,
        body: Sequence[Line] = (),
        is_searchable: bool = False,
    ) -> str | None:
        """Ask the user to choose one item; return its value, or None if the user cancels.

        Items are pairs of value and label. With `free_text`, text is also an answer. A searchable
        list is narrowed by typed text, if the UI supports that.
        """
        ...


class UI(QuestionUI, AbstractAsyncContextManager["UI"], Protocol):
    @property
    def exit_code(self) -> int:
        """Exit code requested when the UI was closed, for example by a signal."""
        ...

    @property
    def prints_child_lines(self) -> bool:
        """True if the UI prints a line per child run; the scrollback then shows none."""
        ...

    def apply(self, event: AnyEvent) -> None:
        """Handle an event that the conversation has already applied."""
        ...

    async def read_line(self) -> str:
        """Read the next line of input. Raises EOFError at the end of input."""
        ...

    def begin_line(self, line: str, *, is_shown: bool) -> str:
        """Show a line about to be executed, if `is_shown`; return it with its pastes."""
        ...

    def return_lines(self, lines: Sequence[str]) -> None:
        """Take back lines the conversation has not executed, for the next one."""
        ...

    def add_early_input(self, text: str) -> None:
        """Add keys pressed before the UI was created; called before the UI is entered."""
        ...

    def prefill(self, text: str) -> None: ...

    def during_run(self) -> AbstractContextManager[object]: ...

    def use_theme(self, name: str) -> bool:
        """Use a theme from now on; return False if the UI has no colors of its own."""
        ...

    def toggle_vi_keys(self) -> bool | None:
        """Turn vi keys on or off; return whether they are on, None if there are none."""
        ...
