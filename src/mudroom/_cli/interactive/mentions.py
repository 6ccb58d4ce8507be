"""Completions of mentions in a prompt: `@file`, `@agent` and `@teammate`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from ..actions.prompts import AGENT_PREFIX, MENTION

# MENTION requires a character after the "@"; while typing, there may be none yet.
_MENTION_AT_END = re.compile(MENTION.pattern.removesuffix("+)") + r"*)\Z")

# Files in a list of completions.
MAX_OFFERS = 50

# Files of a folder considered for completion.
MAX_FILES = 20_000

# How long to keep the list of files.
CACHE_SECONDS = 10.0


def find_mention(text: str) -> str | None:
    """Find the mention at the end of `text`, without its "@"."""
    match = _MENTION_AT_END.search(text)
    return match[1] if match else None


class MentionCompletions:
    def __init__(
        self,
        files: Callable[[], Iterable[str]],
        agents: Callable[[], Iterable[str]],
        commands: Callable[[], Iterable[tuple[str, str]]] = list,
        teammates: Callable[[], Iterable[str]] = list,
        resources: Callable[[], Iterable[str]] = list,
    ) -> None:
        self._files = files
        self._agents = agents
        self._teammates = teammates
        self._resources = resources
        self.list_commands = commands
        self._known: list[str] = []
        self._listed_at = -CACHE_SECONDS

    def find_matches(self, typed: str) -> Iterator[tuple[str, str]]:
        """Yield (word, kind) for an incomplete mention, best match first.

        This may walk the folder: do not call it on the event loop.
        """
        lower = typed.lower()
        for name in self._teammates():
            if name.startswith(lower):
                yield name, "teammate"
        for name in self._agents():
            if f"{AGENT_PREFIX}{name}".startswith(lower) or name.lower().startswith(lower):
                yield f"{AGENT_PREFIX}{name}", "agent"
        resources = (each for each in self._resources() if each.lower().startswith(lower))
        for resource in islice(resources, MAX_OFFERS):
            yield resource, "resource"
        for path in islice(_rank_paths(self._list_paths(), lower), MAX_OFFERS):
            yield path, "file"

    def _list_paths(self) -> list[str]:
        if time.monotonic() - self._listed_at > CACHE_SECONDS:
            self._known = list(islice(self._files(), MAX_FILES))
            self._listed_at = time.monotonic()
        return self._known


def _rank_paths(paths: Iterable[str], lower: str) -> Iterator[str]:
    """Rank matches: path prefix first, then prefix of the file name, then substring."""
    ranked: list[tuple[int, int, str]] = []
    for path in paths:
        candidate = path.lower()
        if candidate.startswith(lower):
            ranked.append((0, len(path), path))
        elif candidate.rpartition("/")[2].startswith(lower):
            ranked.append((1, len(path), path))
        elif lower in candidate:
            ranked.append((2, len(path), path))
    return (path for _, _, path in sorted(ranked))
