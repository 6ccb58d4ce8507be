"""Lists the files below an open folder, without those that git ignores.

Ignore rules come from .git/info/exclude and all .gitignore files; the deepest file wins.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import cast

from ..._core.ports import FileInfo, SkippedPaths
from ..._platform.open_beneath import open_step_by_step
from ..._platform.paths import path_to_text
from ..._platform.patterns import compile_names, match_names
from ..._platform.protected_names import UNFINISHED_PREFIX

FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY

_MAX_PATTERN_BYTES = 1 << 20
MAX_DEPTH = 200  # levels of folders; each keeps a descriptor open while it is listed
_GIT_STATE = frozenset(
    ("HEAD", "config", "hooks", "index", "info", "packed-refs", "refs", "reftable")
)
"""Entries of `.git` that make up its state; a commit changes a ref, HEAD or the index."""

_SYSTEM_FOLDERS = ("dev", "proc", "sys")  # below "/"; their files are not on a disk


@contextmanager
def hold_open(descriptor: int) -> Generator[int]:
    """Close a descriptor at the end of the block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class Listing:
    """A walk through the folders of a workspace.

    Arguments:
        skipped: receives the paths that cannot be listed, except files removed meanwhile.
        all_entries: also yield links, folders and so on, and git's state; see `walk_entries`.
    """

    def __init__(self, root: str, skipped: list[str], *, all_entries: bool = False) -> None:
        self._left_out = _SYSTEM_FOLDERS if root == "/" else ()
        self._skipped = skipped
        self._all_entries = all_entries

    def walk(
        self, folder: int, path: str, rules: IgnoreRules | None, depth: int = 0
    ) -> Iterator[FileInfo]:
        """Yield the files below an open folder, then close it. Without rules, ignore none."""
        try:
            with os.scandir(folder) as scan:
                entries = sorted(scan, key=attrgetter("name"))
            if rules is not None and any(entry.name == ".gitignore" for entry in entries):
                rules = rules.extend(path, read_patterns(folder, ".gitignore"))
            prefix = f"{path}/" if path else ""
            if os.path.basename(path) == ".git":
                entries = [entry for entry in entries if entry.name in _GIT_STATE]
            for entry in entries:
                if self._is_listed(entry.name):
                    yield from self._walk_entry(folder, entry, prefix + entry.name, rules, depth)
        except OSError as error:
            self._skip(path, error)
        finally:
            os.close(folder)

    def _is_listed(self, name: str) -> bool:
        if name == ".git":
            return self._all_entries
        return not name.startswith(UNFINISHED_PREFIX)

    def _walk_entry(
        self,
        folder: int,
        entry: os.DirEntry[str],
        path: str,
        rules: IgnoreRules | None,
        depth: int,
    ) -> Iterator[FileInfo]:
        try:
            is_folder = entry.is_dir(follow_symlinks=False)
            if not is_folder and not self._all_entries and not entry.is_file(follow_symlinks=False):
                return
            if entry.name == ".git":
                rules = None
            is_ignored = rules is not None and rules(path + "/" if is_folder else path)
            if is_ignored and not self._all_entries:
                return
            if self._all_entries or not is_folder:
                yield describe_file(path, entry.stat(follow_symlinks=False), ignored=is_ignored)
            if is_ignored or not is_folder:
                return
            if depth == MAX_DEPTH:
                skipped = self._skipped
                deep = skipped.too_deep if isinstance(skipped, SkippedPaths) else skipped
                deep.append(path_to_text(path))
                return
            if path in self._left_out:
                self._skipped.append(path_to_text(path))
                return
            subfolder = os.open(
                entry.name, FOLDER_FLAGS | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder
            )
        except OSError as error:
            self._skip(path, error)
            return
        yield from self.walk(subfolder, path, rules, depth + 1)

    def _skip(self, path: str, error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            self._skipped.append(path_to_text(path) or ".")


def describe_file(path: str, facts: os.stat_result, *, ignored: bool = False) -> FileInfo:
    text = path_to_text(path)
    return FileInfo(text, facts.st_size, facts.st_mtime, facts.st_mode, facts.st_ctime, ignored)


def read_patterns(folder: int, path: str) -> bytes:
    """Read an ignore file; b"" if there is none. Like git, follow no link there."""
    try:
        descriptor = open_step_by_step(folder, path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return b""
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return b""
        return file.read(_MAX_PATTERN_BYTES)


def read_rules_above(root: str) -> IgnoreRules:
    """Read the ignore rules of the folders above the root, up to the top of its repository.

    There are none if the root is the top, is ignored, or is in no repository.
    """
    path = Path(root)
    tops = (top for top in (path, *path.parents) if os.path.lexists(top / ".git"))
    top = next(tops, path)
    names = path.relative_to(top).parts
    rules = IgnoreRules("".join(f"{name}/" for name in names))
    try:
        folder = os.open(top, FOLDER_FLAGS | os.O_CLOEXEC)
    except OSError:
        return IgnoreRules()
    with hold_open(folder):
        if names:
            rules = rules.extend_above("", read_patterns(folder, ".git/info/exclude"))
        for depth in range(len(names)):
            above = "".join(f"{name}/" for name in names[:depth])
            rules = rules.extend_above(above, read_patterns(folder, f"{above}.gitignore"))
    return IgnoreRules() if names and rules("") else rules


IgnoreVerdict = Callable[[str], bool | None]
"""Takes a path below the patterns' folder, with a final "/" for a folder.

Returns True for ignored, False for explicitly not ignored, None if no pattern matches.
"""

PathTest = Callable[[str], object]  # takes the same path; true if a pattern matches it
_MAX_PATTERN = 4_096  # characters; no path is longer, and longer patterns take seconds to compile
_MAX_STARS = 3  # in a pattern compiled to a regular expression: with five, one name takes 23 s


class IgnoreRules:
    """The rules that apply in one folder.

    `root` is its path in its repository, with a final "/"; "" for the top.
    """

    def __init__(self, root: str = "", layers: tuple[tuple[int, IgnoreVerdict], ...] = ()) -> None:
        self._root = root
        self._layers = layers

    def extend(self, folder: str, patterns: bytes) -> IgnoreRules:
        """Add an ignore file's patterns, with precedence. `folder` is relative to the root."""
        start = len(self._root) + (len(folder) + 1 if folder else 0)
        return self._add_layer(start, patterns)

    def extend_above(self, folder: str, patterns: bytes) -> IgnoreRules:
        """Add those of a folder above the root, relative to the top: "" or with a final "/"."""
        return self._add_layer(len(folder), patterns)

    def _add_layer(self, start: int, patterns: bytes) -> IgnoreRules:
        verdict = _compile(patterns)
        layer = () if verdict is None else ((start, verdict),)
        return IgnoreRules(self._root, (*layer, *self._layers))

    def __call__(self, path: str) -> bool:
        """Return whether git ignores a path relative to the root, with a final "/" for folders."""
        path = self._root + path
        for start, verdict in self._layers:
            is_ignored = verdict(path[start:])
            if is_ignored is not None:
                return is_ignored
        return False


def _compile(patterns: bytes) -> IgnoreVerdict | None:
    """Compile a file to few tests: one regular expression per run of patterns with the same sign.

    Matching each pattern, as pathspec's own `check_file` does, takes three times as long.
    """
    tests: list[tuple[bool, PathTest]] = []
    pairs = _compile_patterns(patterns)
    for (is_ignored, _), run in groupby(pairs, lambda pair: (pair[0], isinstance(pair[1], str))):
        found = [pattern for _, pattern in run]
        tests += [(is_ignored, test) for test in found if not isinstance(test, str)]
        if texts := [f"(?:{text})" for text in found if isinstance(text, str)]:
            tests.append((is_ignored, re.compile("|".join(texts)).match))
    if not tests:
        return None
    tests.reverse()  # the last matching pattern decides

    def judge(path: str) -> bool | None:
        for is_ignored, matches in tests:
            if matches(path):
                return is_ignored
        return None

    return judge


def _compile_patterns(patterns: bytes) -> Iterator[tuple[bool, str | PathTest]]:
    """Yield a regular expression or test per pattern; True with it means a match is ignored."""
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
    """Compile a pattern to a linear-time test, for patterns whose expression backtracks."""
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
        names.append("*")  # the contents, not the folder itself
    tests = compile_names(names)

    def matches(path: str) -> bool:
        parts = path.removesuffix("/").split("/")
        # A matching folder takes everything below it along.
        last = len(parts) - (is_folder_only and not path.endswith("/"))
        return any(match_names(tests, parts[:count]) for count in range(1, last + 1))

    return matches


def _to_shell_pattern(name: str) -> str:
    if name == "**":
        return name
    name = re.sub(r"\\(.)", lambda match: f"[{match[1]}]", name)
    return re.sub(r"\*+", "*", name.replace("[^", "[!"))
