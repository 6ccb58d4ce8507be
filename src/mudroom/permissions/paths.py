"""Files and rules: which path a rule's pattern means, and whether a file is one of them, by its name or behind a link."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from msgspec import Struct

from ..errors import UsageError
from .rules import Rule

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec


class Place(Struct, frozen=True):
    """Where relative paths and ~ begin: the workspace and the person's home, absolute."""

    root: str
    home: str

    def absolute(self, path: str) -> str:
        """A path as a tool or command gives it, made absolute and without dots; links are not followed."""
        if path == "~" or path.startswith("~/"):
            path = self.home + path[1:]
        return os.path.normpath(os.path.join(self.root, path))

    def both(self, path: str) -> tuple[str, ...]:
        """The path, and where it leads when links are followed."""
        plain = self.absolute(path)
        return tuple(dict.fromkeys((plain, os.path.realpath(plain))))

    def inside(self, path: str, folders: Sequence[str] = ("",)) -> bool:
        """Whether the path, taken from any of these folders of the workspace, and what it leads to lie in the workspace."""
        if ".." in path.split("/"):
            return False
        spots = (path if path.startswith("~") else os.path.join(folder, path) for folder in folders)
        return all(_below(one, self.root) is not None for spot in spots for one in self.both(spot))

    def relative(self, path: str) -> str:
        """The path below the workspace, the absolute one when it is not."""
        plain = self.absolute(path)
        below = _below(plain, self.root)
        return plain if below is None else below


def matches(rule: Rule, path: str, place: Place, *, every: bool) -> bool:
    """Whether a rule about files is about this one. `every`: both its name and what it leads to must fit; else one of them."""
    if not rule.spec:
        return True
    base, pattern = _anchored(rule, place)
    results = [_fits(base, pattern, one) for one in place.both(path)]
    return all(results) if every else any(results)


def _anchored(rule: Rule, place: Place) -> tuple[str, str]:
    """Folder and gitignore pattern: // is the root of the disk, ~/ home, / the folder of the rule's file, the rest the workspace."""
    spec = rule.spec
    if spec.startswith("//"):
        return "/", spec[1:]
    if spec.startswith("~/"):
        return place.home, spec[1:]
    if spec.startswith("/"):
        return rule.base or place.root, spec
    if spec.startswith("./"):
        return place.root, spec[1:]
    if spec.startswith("../"):
        folder, name = os.path.split(os.path.normpath(os.path.join(place.root, spec)))
        return folder, f"/{name}"
    return place.root, spec


def _fits(base: str, pattern: str, path: str) -> bool:
    below = _below(path, os.path.realpath(base))
    if below is None:
        below = _below(path, os.path.normpath(base))
    return below is not None and below != "." and _spec(pattern).match_file(below)


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
        return GitIgnoreSpec.from_lines([pattern.replace("\\", "\\\\") if pattern.endswith("\\") else pattern])
    except Exception as error:
        raise UsageError(f"not a pattern of paths: {pattern!r}", remedy="Patterns are those of .gitignore.") from error
