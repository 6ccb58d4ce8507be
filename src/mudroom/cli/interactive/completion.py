"""Completion at the prompt: commands after /, files and agents after @."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from ..output.text import sanitize, sanitize_line
from .mentions import mention_before

if TYPE_CHECKING:
    from .conversation import Conversation


class PromptCompleter(Completer):
    """Offers what the word before the cursor may become. `talk`: the conversation now."""

    def __init__(self, talk: Callable[[], Conversation | None]) -> None:
        self._talk = talk

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        """The offers."""
        before = document.text_before_cursor
        if before.startswith("/") and not before.count(" "):
            from .slash_commands import COMMAND_HELP

            for about in COMMAND_HELP:
                if about.name.startswith(before):
                    yield Completion(about.name, -len(before), display_meta=about.description)
        begun, talk = mention_before(before), self._talk()
        if begun is not None and talk:
            for word, kind in talk.mention_offers.matching(begun):
                if word == sanitize(word) == sanitize_line(word):
                    yield Completion(word, -len(begun), display_meta=kind)
