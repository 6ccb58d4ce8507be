"""Completion in the input line: commands after "/", files and agents after "@"."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from ..._projections.safe_text import sanitize, sanitize_line
from ...errors import UsageError
from .mentions import MentionCompletions, find_mention


class PromptCompleter(Completer):
    """Completes the word before the cursor.

    Arguments:
        get_mentions: returns the completions of mentions; None before a session is open.
    """

    def __init__(self, get_mentions: Callable[[], MentionCompletions | None]) -> None:
        self._get_mentions = get_mentions

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        # Raised by a session that was closed meanwhile.
        with suppress(UsageError):
            yield from self._find_completions(document.text_before_cursor)

    def _find_completions(self, before: str) -> Iterator[Completion]:
        mentions = self._get_mentions()
        if before.startswith("/") and " " not in before:
            for name, description in _list_commands(mentions):
                # A name that cannot be shown as it is would insert something else than it shows.
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
    """Yield names and descriptions: first mudroom's own, then those of files."""
    # Imported here: the prompt is drawn before the commands are loaded.
    from .slash_commands.registry import SLASH_COMMANDS

    for command in SLASH_COMMANDS:
        yield command.name, command.description
    if mentions:
        yield from mentions.list_commands()
