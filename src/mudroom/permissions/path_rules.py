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


_OWN = re.compile(r"/proc/(?:self|thread-self|\d+)/(?:task/\d+/)?(cwd|root)(?=/|$)")
"""Where procfs shows a process its own folder, and the root of the disk."""


class Place(Struct, frozen=True):
    """Where relative paths and ~ begin: the workspace and the person's home, absolute."""

    root: str
    home: str

    def absolute(self, path: str, folder: str = "") -> str:
        """A path as a tool or command gives it, made absolute and without dots; links are not followed.

        Arguments:
            folder: of the workspace, where a relative path begins.
        """
        path = path if path.startswith("~") else os.path.join(folder, path)
        if path == "~" or path.startswith("~/"):
            path = self.home + path[1:]
        if path.startswith("/"):
            path = _OWN.sub(
                lambda found: self.root if found[1] == "cwd" else "", "/" + path.lstrip("/")
            )
        return os.path.normpath(os.path.join(self.root, path))

    def both(self, path: str, folder: str = "") -> tuple[str, ...]:
        """The path, and where it leads when links are followed."""
        plain = self.absolute(path, folder)
        return tuple(dict.fromkeys((plain, os.path.realpath(plain))))

    def inside(self, path: str, folders: Sequence[str] = ("",)) -> bool:
        """Whether the path, taken from any of these folders of the workspace, and what it leads to lie in the workspace."""
        if ".." in path.split("/"):
            return False
        return all(
            _below(one, self.root) is not None
            for folder in folders
            for one in self.both(path, folder)
        )

    def relative(self, path: str, folder: str = "") -> str:
        """The path below the workspace, the absolute one when it is not."""
        plain = self.absolute(path, folder)
        below = _below(plain, self.root)
        return plain if below is None else below


def matches(rule: Rule, spots: Collection[str], place: Place, *, every: bool) -> bool:
    """Whether a rule about files is about this one.

    Arguments:
        spots: where the file may be, absolute: what it is called, what that leads to.
        every: all of these must fit; else one is enough, in any case of letters.
    """
    results = (covers(rule, spot, place, loose=not every) for spot in spots)
    return not rule.spec or (all(results) if every else any(results))


def covers(rule: Rule, path: str, place: Place, *, loose: bool) -> bool:
    """Whether a rule's pattern is about an absolute path as it stands; links are not looked at.

    Arguments:
        loose: whether names are the same that differ in case or Unicode form, as some file systems have it.
    """
    bases, pattern = _anchored(rule.spec, rule.base, place)
    if loose:
        bases, pattern, path = tuple(map(_folded, bases)), _folded(pattern), _folded(path)
    below = next(filter(None, (_below(path, base) for base in bases)), ".")
    return below != "." and _spec(pattern).match_file(below)


@lru_cache(maxsize=1024)
def _anchored(spec: str, source: str, place: Place) -> tuple[tuple[str, ...], str]:
    """Folder, as it is and as it is called, and gitignore pattern: // is the root of the disk, ~/ home, / the rule's file's folder."""
    base, pattern = place.root, spec
    if spec.startswith("//"):
        base, pattern = "/", spec[1:]
    elif spec.startswith("~/"):
        base, pattern = place.home, spec[1:]
    elif spec.startswith("/"):
        base = source or place.root
    elif spec.startswith("./"):
        pattern = spec[1:]
    elif spec.startswith("../"):
        base, name = os.path.split(os.path.normpath(os.path.join(place.root, spec)))
        pattern = f"/{name}"
    return (os.path.realpath(base), os.path.normpath(base)), pattern


def _folded(text: str) -> str:
    return text.lower() if text.isascii() else unicodedata.normalize("NFKC", text).casefold()


def _below(path: str, folder: str) -> str | None:
    """The path relative to a folder it lies in."""
    if path == folder:
        return "."
    start = folder if folder.endswith("/") else folder + "/"
    return path[len(start) :] if path.startswith(start) else None


@lru_cache(maxsize=1024)
def _spec(pattern: str) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    try:
        return GitIgnoreSpec.from_lines(
            [pattern.replace("\\", "\\\\") if pattern.endswith("\\") else pattern]
        )
    except Exception as error:
        raise UsageError(
            f"not a pattern of paths: {pattern!r}", remedy="Patterns are those of .gitignore."
        ) from error
