"""`@file` and `@agent` in a prompt: what they become for the model, and what they may be completed to."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice

_MENTION = re.compile(r"(?<![\w@/.])@([^\s,;!?()\"'`<>]+)")
_AT_END = re.compile(_MENTION.pattern.removesuffix("+)") + r"*)\Z")

AGENT_PREFIX = "agent-"
"""What an agent's name may have before it, to tell it from a file."""

MAX_FILES = 20_000
"""Files of a folder that are offered."""

CACHE_SECONDS = 10.0
"""Seconds for which the list of files is kept."""


def expand_mentions(prompt: str, *, folder: str, agents: Collection[str]) -> str:
    """The prompt for the model: a mentioned file as its path, a mentioned agent as a wish at the end.

    Arguments:
        folder: where paths begin. agents: names of those there are. What is neither stays as it was.
    """
    asked: dict[str, None] = {}

    def told(found: re.Match[str]) -> str:
        word = found[1].rstrip(".:")
        name = word.removeprefix(AGENT_PREFIX)
        if os.path.lexists(os.path.join(folder, word)):
            return found[1]
        if name in agents:
            asked[name] = None
        return found[0]

    text = _MENTION.sub(told, prompt)
    wishes = "".join(f"\n\nGive this to the agent {name} with the task tool." for name in asked)
    return text + wishes


def mention_before(text: str) -> str | None:
    """The mention that is being typed at the end of `text`, without its @; None if there is none."""
    found = _AT_END.search(text)
    return found[1] if found else None


class MentionOffers:
    """What a mention may be completed to.

    Arguments:
        files: walks the paths there are. agents: names of agents. Both are asked again when what is known is old.
    """

    def __init__(
        self, files: Callable[[], Iterable[str]], agents: Callable[[], Iterable[str]]
    ) -> None:
        self._files, self._agents = files, agents
        self._known, self._since = list[str](), -CACHE_SECONDS

    def matching(self, typed: str, limit: int = 50) -> Iterator[tuple[str, str]]:
        """(word, what it is) for what has been typed; best first. Walks the folder: call it off the event loop."""
        low = typed.lower()
        for name in self._agents():
            if f"{AGENT_PREFIX}{name}".startswith(low) or name.lower().startswith(low):
                yield f"{AGENT_PREFIX}{name}", "agent"
        for path in islice(_best(self._paths(), low), limit):
            yield path, "file"

    def _paths(self) -> list[str]:
        if time.monotonic() - self._since > CACHE_SECONDS:
            self._known = list(islice(self._files(), MAX_FILES))
            self._since = time.monotonic()
        return self._known


def _best(paths: Iterable[str], low: str) -> Iterator[str]:
    """Paths that begin so, then those whose name does, then those that hold it."""
    ranked: list[tuple[int, int, str]] = []
    for path in paths:
        known = path.lower()
        if known.startswith(low):
            ranked.append((0, len(path), path))
        elif known.rpartition("/")[2].startswith(low):
            ranked.append((1, len(path), path))
        elif low in known:
            ranked.append((2, len(path), path))
    return (path for _, _, path in sorted(ranked))
