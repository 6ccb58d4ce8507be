"""What git ignores: the patterns of .git/info/exclude and of every .gitignore on the way down, the deepest one first."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

IgnoreVerdict = Callable[[str], bool | None]
"""Path below the patterns' folder, "/" at its end for a folder -> ignored, wanted again, or None: says nothing."""

_ANYWHERE = "^(?:.+/)?"  # how pathspec begins what may stand in any folder


class IgnoreRules:
    """The patterns in force in one folder. `below` gives those of a folder further down."""

    def __init__(self, layers: tuple[tuple[int, IgnoreVerdict], ...] = ()) -> None:
        self._layers = layers

    def extend(self, folder: str, patterns: bytes) -> IgnoreRules:
        """These patterns, and those of a file in `folder` (relative to the root, "" for the root), which come first."""
        start = len(folder) + 1 if folder else 0
        return IgnoreRules(((start, _verdict(patterns)), *self._layers))

    def __call__(self, path: str) -> bool:
        """Whether git ignores the path (relative to the root, "/" at its end for a folder)."""
        for start, verdict in self._layers:
            said = verdict(path[start:])
            if said is not None:
                return said
        return False


def _verdict(patterns: bytes) -> IgnoreVerdict:
    """A few matches a path, however many the patterns: one for each run of patterns of one sign, the last run first."""
    runs: list[tuple[bool, list[str], list[str]]] = []
    for sign, regex in _regexes(patterns):
        if not runs or runs[-1][0] is not sign:
            runs.append((sign, [], []))
        _, names, paths = runs[-1]
        if name := _of_name(regex):
            names.append(name)
        else:
            paths.append(regex)
    compiled = [(sign, _any(names), _any(paths)) for sign, names, paths in reversed(runs)]

    def verdict(path: str) -> bool | None:
        name = path[path.rfind("/", 0, -1) + 1 :]
        for sign, by_name, by_path in compiled:
            if (by_name and by_name(name)) or (by_path and by_path(path)):
                return sign
        return None

    return verdict


def _any(regexes: list[str]) -> Callable[[str], object] | None:
    return re.compile("|".join(f"(?:{regex})" for regex in regexes)).match if regexes else None


def _of_name(regex: str) -> str:
    """The part of a regex that judges the last name of a path, "" when the folders before it matter, too.

    Whoever asks has asked about every folder above before, so a pattern without a slash need not look there again.
    """
    name = regex.removeprefix(_ANYWHERE)
    body = name.removesuffix("(?:(?:/)|$)").removesuffix("(?:/)").replace("[^/]", "")
    return "" if name == regex or "/" in body else name


def _regexes(patterns: bytes) -> list[tuple[bool, str]]:
    """The patterns as pathspec reads them, each with its sign: True ignores."""
    lines = [
        line
        for line in patterns.decode("utf-8", "replace").splitlines()
        if line.strip() and not line.startswith("#")
    ]
    if not lines:
        return []
    from pathspec import GitIgnoreSpec

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
