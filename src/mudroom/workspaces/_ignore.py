"""What git ignores: the patterns of .git/info/exclude and of every .gitignore on the way down, the deepest one first."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

Verdict = Callable[[str], bool | None]
"""Path below the patterns' folder, "/" at its end for a folder -> ignored, wanted again, or None: says nothing."""


class Ignored:
    """The patterns in force in one folder. `below` gives those of a folder further down."""

    def __init__(self, layers: tuple[tuple[int, Verdict], ...] = ()) -> None:
        self._layers = layers

    def below(self, folder: str, patterns: bytes) -> Ignored:
        """These patterns, and those of a file in `folder` (relative to the root, "" for the root), which come first."""
        start = len(folder) + 1 if folder else 0
        return Ignored(((start, _verdict(patterns)), *self._layers))

    def __call__(self, path: str) -> bool:
        """Whether git ignores the path (relative to the root, "/" at its end for a folder)."""
        for start, verdict in self._layers:
            said = verdict(path[start:])
            if said is not None:
                return said
        return False


def _verdict(patterns: bytes) -> Verdict:
    """One regex for each run of patterns of one sign, the last run first: a few matches a path, however many the patterns."""
    runs: list[tuple[bool, list[str]]] = []
    for sign, regex in _regexes(patterns):
        if not runs or runs[-1][0] is not sign:
            runs.append((sign, []))
        runs[-1][1].append(regex)
    compiled = [(sign, re.compile("|".join(f"(?:{regex})" for regex in regexes)).match) for sign, regexes in reversed(runs)]

    def verdict(path: str) -> bool | None:
        for sign, match in compiled:
            if match(path):
                return sign
        return None

    return verdict


def _regexes(patterns: bytes) -> list[tuple[bool, str]]:
    from pathspec import GitIgnoreSpec

    lines = patterns.decode("utf-8", "replace").splitlines()
    found: list[tuple[bool, str]] = []
    for line in lines:
        try:
            spec: Any = GitIgnoreSpec.from_lines([line])
        except ValueError:
            continue  # git skips a pattern it cannot read, too
        for pattern in spec.patterns:
            if pattern.include is not None:
                found.append((pattern.include, re.sub(r"\(\?P<\w+>", "(?:", pattern.regex.pattern)))
    return found
