"""Interface between a conversation and the user interface that shows it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Protocol

from ..._core.events import AnyEvent
from ..output.scrollback import Scrollback

if TYPE_CHECKING:
    from .conversation import Conversation


class QuestionUI(Protocol):
    """The part of a UI that asks questions."""

    @property
    def scrollback(self) -> Scrollback:
        """Destination of text that stays on the screen."""
        ...

    async def choose(
        self, title: str, items: Sequence[tuple[str, str]], *, free_text: bool = False
    ) -> str | None:
        """Ask the user to choose one item; return its value, or None if the user cancels.

        Arguments:
            items: pairs of value and label.
            free_text: return typed text as the answer, too.
        """
        ...


class UI(QuestionUI, AbstractAsyncContextManager["UI"], Protocol):
    """Input and output of a conversation; `async with` opens it.

    Implemented by `PromptUI` (drawn on a terminal) and `PlainUI` (lines in, lines out).
    """

    @property
    def exit_code(self) -> int:
        """Exit code requested when the UI was closed, for example by a signal."""
        ...

    @property
    def prints_child_lines(self) -> bool:
        """True if the UI prints a line for each child run, so that the writer must not."""
        ...

    def attach(self, conversation: Conversation) -> None:
        """Show this conversation from now on."""
        ...

    def apply(self, event: AnyEvent) -> None:
        """Handle an event that the conversation has already applied."""
        ...

    async def read_line(self) -> str:
        """Return the next line of input. Raises EOFError at the end of the input."""
        ...

    def add_early_input(self, text: str) -> None:
        """Add text that was typed before the UI was open."""
        ...

    def prefill(self, text: str) -> None:
        """Put text into the input line for the user to edit."""
        ...

    def during_run(self) -> AbstractContextManager[object]:
        """Return a context manager for the time of one run."""
        ...
