"""Ignore rules of git: .git/info/exclude and all .gitignore files, the deepest file first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import cast

from ..._platform.name_patterns import compile_names, match_names

IgnoreVerdict = Callable[[str], bool | None]
"""Takes a path below the folder of the patterns, "/" at the end for a folder.

Returns True for ignored, False for explicitly not ignored, None when no pattern matches.
"""

PathTest = Callable[[str], object]
"""Takes a path as a verdict does; the result is true if a pattern matches it."""

_MAX_PATTERN = 4_096
"""Characters of a pattern. No path is longer, and a longer pattern takes seconds to compile."""
_MAX_STARS = 3
"""Stars of a pattern that becomes a regular expression: with five, one name takes 23 seconds."""


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
    """Compile a file to few tests: one regular expression per run of patterns of the same sign.

    One match per pattern, as in pathspec's own `check_file`, takes three times as long.
    """
    runs: list[tuple[bool, list[str]]] = []
    tests: list[tuple[bool, PathTest | None]] = []
    for is_ignored, pattern in _compile_patterns(patterns):
        if not isinstance(pattern, str):
            runs.append((is_ignored, []))
            tests.append((is_ignored, pattern))
            continue
        if not runs or runs[-1][0] is not is_ignored or tests[-1][1]:
            runs.append((is_ignored, []))
            tests.append((is_ignored, None))
        runs[-1][1].append(f"(?:{pattern})")
    if not runs:
        return None
    compiled = [
        (is_ignored, test or re.compile("|".join(run[1])).match)
        for run, (is_ignored, test) in zip(reversed(runs), reversed(tests), strict=True)
    ]

    def judge(path: str) -> bool | None:
        for is_ignored, matches in compiled:
            if matches(path):
                return is_ignored
        return None

    return judge


def _compile_patterns(patterns: bytes) -> Iterator[tuple[bool, str | PathTest]]:
    """Yield the regular expression, or a test, of each pattern; with True if a match is ignored."""
    lines = patterns.decode("utf-8", "replace").splitlines()
    lines = [line for line in lines if line.strip() and not line.startswith("#")]
    if not lines:
        return
    from pathspec import GitIgnoreSpec

    for line in lines:
        if len(line) > _MAX_PATTERN:
            continue
        try:
            spec = GitIgnoreSpec.from_lines([line])
        except ValueError:
            continue  # git also skips an invalid pattern
        for pattern in spec.patterns:
            regex = cast("re.Pattern[str] | None", pattern.regex)
            if pattern.include is None or regex is None:
                continue
            if line.count("*") > _MAX_STARS:
                yield pattern.include, compile_pattern(line)
            else:
                # A group name must not appear twice in one expression.
                yield pattern.include, re.sub(r"\(\?P<\w+>", "(?:", regex.pattern)


def compile_pattern(line: str) -> PathTest:
    """Compile one pattern to a test in linear time, for patterns whose expression backtracks."""
    text = line.removeprefix("!")
    stripped = text.rstrip(" ")
    if stripped.endswith("\\") and stripped != text:
        stripped += " "  # the first blank is escaped
    text = stripped
    is_folder_only = text.endswith("/")
    names = [_to_shell_pattern(name) for name in text.strip("/").split("/")]
    if "/" not in text.removesuffix("/"):
        names.insert(0, "**")
    if names[-1] == "**":
        names.append("*")  # what is inside, not the folder itself
    tests = compile_names(names)

    def matches(path: str) -> bool:
        parts = path.removesuffix("/").split("/")
        # A folder that matches takes everything below it along.
        last = len(parts) - (is_folder_only and not path.endswith("/"))
        return any(match_names(tests, parts[:count]) for count in range(1, last + 1))

    return matches


def _to_shell_pattern(name: str) -> str:
    """Return a name of an ignore pattern as `fnmatch` understands it."""
    if name == "**":
        return name
    name = re.sub(r"\\(.)", lambda match: f"[{match[1]}]", name)
    return re.sub(r"\*+", "*", name.replace("[^", "[!"))
