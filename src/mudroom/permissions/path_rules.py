"""Files and rules: which path a rule's pattern means, and whether a file is one of them, by its name or behind a link."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from ..errors import UsageError
from .rules import Rule

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec


_PROC_LINK = re.compile(r"/proc/(?:self|thread-self|\d+)/(?:task/\d+/)?(cwd|root)(?=/|$)")
"""Where procfs shows a process its own folder, and the root of the disk."""


class PathContext(Struct, frozen=True):
    """Where relative paths and ~ begin: the workspace and the person's home, absolute."""

    workspace: str
    user_home: str

    def absolute(self, path: str, folder: str = "") -> str:
        """A path as a tool or command gives it, made absolute and without dots; links are not followed.

        Arguments:
            folder: of the workspace, where a relative path begins.
        """
        path = path if path.startswith("~") else os.path.join(folder, path)
        if path == "~" or path.startswith("~/"):
            path = self.user_home + path[1:]
        if path.startswith("/"):
            path = _PROC_LINK.sub(
                lambda found: self.workspace if found[1] == "cwd" else "", "/" + path.lstrip("/")
            )
        return os.path.normpath(os.path.join(self.workspace, path))

    def path_and_target(self, path: str, folder: str = "") -> tuple[str, ...]:
        """The path, and where it leads when links are followed."""
        plain = self.absolute(path, folder)
        return tuple(dict.fromkeys((plain, os.path.realpath(plain))))

    def is_inside(self, path: str, folders: Sequence[str] = ("",)) -> bool:
        """Whether the path, taken from any of these folders of the workspace, and what it leads to lie in the workspace."""
        if ".." in path.split("/"):
            return False
        return all(
            _relative_to(one, self.workspace) is not None
            for folder in folders
            for one in self.path_and_target(path, folder)
        )

    def relative(self, path: str, folder: str = "") -> str:
        """The path below the workspace, the absolute one when it is not."""
        plain = self.absolute(path, folder)
        below = _relative_to(plain, self.workspace)
        return plain if below is None else below


def matches_file(
    rule: Rule, paths: Collection[str], place: PathContext, *, match_all: bool
) -> bool:
    """Whether a rule about files is about this one.

    Arguments:
        spots: where the file may be, absolute: what it is called, what that leads to.
        every: all of these must fit; else one is enough, in any case of letters.
    """
    results = (covers_path(rule, spot, place, ignore_case=not match_all) for spot in paths)
    return not rule.spec or (all(results) if match_all else any(results))


def covers_path(rule: Rule, path: str, place: PathContext, *, ignore_case: bool) -> bool:
    """Whether a rule's pattern is about an absolute path as it stands; links are not looked at.

    Arguments:
        loose: whether names are the same that differ in case or Unicode form, as some file systems have it.
    """
    bases, pattern = _resolve_pattern(rule.spec, rule.base, place)
    if ignore_case:
        bases, pattern, path = tuple(map(_fold_case, bases)), _fold_case(pattern), _fold_case(path)
    below = next(filter(None, (_relative_to(path, base) for base in bases)), ".")
    return below != "." and _compile_pattern(pattern).match_file(below)


@lru_cache(maxsize=1024)
def _resolve_pattern(spec: str, source: str, place: PathContext) -> tuple[tuple[str, ...], str]:
    """Folder, as it is and as it is called, and gitignore pattern: // is the root of the disk, ~/ home, / the rule's file's folder."""
    base, pattern = place.workspace, spec
    if spec.startswith("//"):
        base, pattern = "/", spec[1:]
    elif spec.startswith("~/"):
        base, pattern = place.user_home, spec[1:]
    elif spec.startswith("/"):
        base = source or place.workspace
    elif spec.startswith("./"):
        pattern = spec[1:]
    elif spec.startswith("../"):
        base, name = os.path.split(os.path.normpath(os.path.join(place.workspace, spec)))
        pattern = f"/{name}"
    return (os.path.realpath(base), os.path.normpath(base)), pattern


def _fold_case(text: str) -> str:
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def _relative_to(path: str, folder: str) -> str | None:
    """The path relative to a folder it lies in."""
    if path == folder:
        return "."
    start = folder if folder.endswith("/") else folder + "/"
    return path[len(start) :] if path.startswith(start) else None


@lru_cache(maxsize=1024)
def _compile_pattern(pattern: str) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(
            [pattern.replace("\\", "\\\\") if pattern.endswith("\\") else pattern]
        )
    except Exception as error:
        raise UsageError(
            f"not a pattern of paths: {pattern!r}", remedy="Patterns are those of .gitignore."
        ) from error
