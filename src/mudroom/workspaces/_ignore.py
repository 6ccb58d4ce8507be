"""Ignore rules of git: .git/info/exclude and all .gitignore files, the deepest file first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import cast

IgnoreVerdict = Callable[[str], bool | None]
"""Takes a path below the folder of the patterns, "/" at the end for a folder.

Returns True for ignored, False for explicitly not ignored, None when no pattern matches.
"""


class IgnoreRules:
    """The rules that apply in one folder.

    Arguments:
        root: path of the root in its repository, "/" at the end; "" when it is the top.
    """

    def __init__(self, root: str = "", layers: tuple[tuple[int, IgnoreVerdict], ...] = ()) -> None:
        self._root = root
        self._layers = layers

    def extend(self, folder: str, patterns: bytes) -> IgnoreRules:
        """Return these rules and those of a file in `folder`, which take precedence.

        Arguments:
            folder: relative to the root, "" for the root. patterns: content of the file.
        """
        start = len(self._root) + (len(folder) + 1 if folder else 0)
        return self._add_layer(start, patterns)

    def extend_above(self, folder: str, patterns: bytes) -> IgnoreRules:
        """Return these rules and those of a file in a folder above the root.

        Arguments:
            folder: relative to the top of the repository, "" or with "/" at the end.
        """
        return self._add_layer(len(folder), patterns)

    def _add_layer(self, start: int, patterns: bytes) -> IgnoreRules:
        verdict = _compile(patterns)
        layer = () if verdict is None else ((start, verdict),)
        return IgnoreRules(self._root, (*layer, *self._layers))

    def __call__(self, path: str) -> bool:
        """Return whether git ignores a path, relative to the root, "/" at the end for a folder."""
        path = self._root + path
        for start, verdict in self._layers:
            is_ignored = verdict(path[start:])
            if is_ignored is not None:
                return is_ignored
        return False


def _compile(patterns: bytes) -> IgnoreVerdict | None:
    """Compile a file to few regular expressions: one per run of patterns of the same sign.

    One match per pattern, as in pathspec's own `check_file`, takes three times as long.
    """
    runs: list[tuple[bool, list[str]]] = []
    for is_ignored, expression in _compile_patterns(patterns):
        if not runs or runs[-1][0] is not is_ignored:
            runs.append((is_ignored, []))
        runs[-1][1].append(f"(?:{expression})")
    if not runs:
        return None
    compiled = [
        (is_ignored, re.compile("|".join(expressions)).match)
        for is_ignored, expressions in reversed(runs)
    ]

    def judge(path: str) -> bool | None:
        for is_ignored, matches in compiled:
            if matches(path):
                return is_ignored
        return None

    return judge


def _compile_patterns(patterns: bytes) -> Iterator[tuple[bool, str]]:
    """Yield the regular expression of each pattern, with True when a match is ignored."""
    lines = patterns.decode("utf-8", "replace").splitlines()
    lines = [line for line in lines if line.strip() and not line.startswith("#")]
    if not lines:
        return
    from pathspec import GitIgnoreSpec

    for line in lines:
        try:
            spec = GitIgnoreSpec.from_lines([line])
        except ValueError:
            continue  # git also skips an invalid pattern
        for pattern in spec.patterns:
            regex = cast("re.Pattern[str] | None", pattern.regex)
            if pattern.include is not None and regex is not None:
                # A group name must not appear twice in one expression.
                yield pattern.include, re.sub(r"\(\?P<\w+>", "(?:", regex.pattern)
