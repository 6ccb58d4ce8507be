"""Glob patterns for paths: *, ?, [a-z] and {a,b} within a name, ** for any number of folders.

A name in a pattern also matches a file with exactly that name: `app/[id]/*.tsx` finds files in the
folder `[id]`, as well as those matching the class `[id]`. A backslash makes a special character
literal.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterator

from ..._core.ports import Workspace
from ..._platform.paths import read_path_argument
from ..._platform.patterns import NameMatcher, compile_later, compile_names, match_names
from ...errors import WorkspaceError

MAX_ALTERNATIVES = 200
_BRACES = compile_later(r"(?<!\\)\{((?:[^{}\\]|\\.)*)\}", re.DOTALL)
_COMMA = compile_later(r"(?<!\\),")
_SPECIAL = "*?[]{},!"
# A letter or digit after a backslash is not an escape: \xe9 writes a byte of a name.
_ESCAPE = compile_later(r"\\([^0-9A-Za-z])", re.DOTALL)

PathMatcher = Callable[[str], bool]


def compile_glob(pattern: str) -> PathMatcher:
    """Compile a pattern into a test for relative paths.

    Raises ValueError if the pattern has more than MAX_ALTERNATIVES alternatives in braces.
    """
    alternatives = _list_alternatives(pattern, literally=True)
    if alternatives is None:
        alternatives = _list_alternatives(pattern, literally=False)
    if alternatives is None:
        raise ValueError(
            f"pattern: has more than {MAX_ALTERNATIVES} alternatives in braces; use a simpler one"
        )
    matchers = [_compile_alternative(alternative) for alternative in alternatives]
    if len(matchers) == 1:
        return matchers[0]
    plain = "/".join(name for name in pattern.split("/") if name not in ("", "."))
    return lambda path: path == plain or any(matches(path) for matches in matchers)


def list_names(pattern: str) -> set[str]:
    """List the names a pattern spells out: files and folders the caller means."""
    alternatives = _list_alternatives(pattern, literally=True) or [pattern]
    names = {name for alternative in alternatives for name in alternative.split("/")}
    return names | set(map(unescape, names))


def has_wildcard(name: str) -> bool:
    """Return whether a name in a pattern can match anything but itself."""
    return any(c in "*?[{" for c in _ESCAPE.sub("", name))


def unescape(pattern: str) -> str:
    return _ESCAPE.sub(r"\1", pattern)


def _list_alternatives(pattern: str, *, literally: bool) -> list[str] | None:
    """Expand the braces; None if that makes too many patterns.

    `literally` also keeps each group unexpanded, for names that contain braces.
    """
    alternatives: list[str] = []
    for alternative in _expand_braces(pattern, literally=literally):
        alternatives.append(alternative)
        if len(alternatives) > MAX_ALTERNATIVES:
            return None
    return alternatives


def _expand_braces(pattern: str, *, literally: bool) -> Iterator[str]:
    groups = (group for group in _BRACES.finditer(pattern) if _COMMA.search(group[1]))
    first = next(groups, None)
    if first is None:
        yield pattern
        return
    choices = _COMMA.split(first[1])
    if literally:
        choices.append("\\{" + _COMMA.sub(r"\\,", first[1]) + "\\}")
    for choice in choices:
        expanded = pattern[: first.start()] + choice + pattern[first.end() :]
        yield from _expand_braces(expanded, literally=literally)


def _compile_alternative(pattern: str) -> PathMatcher:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    if names and pattern.endswith("/**"):
        names.append("*")
    tests = [_compile_name(name) for name in names]
    match tests:
        case [only] if only is not None:
            return lambda path: "/" not in path and bool(only(path))
        case [None, last] if last is not None:
            return lambda path: bool(last(path.rpartition("/")[2]))
        case _:
            return lambda path: match_names(tests, path.split("/"))


def _compile_name(name: str) -> NameMatcher | None:
    """Compile a name into a test, or None for `**`, which matches any number of names."""
    plain = unescape(name)
    if not has_wildcard(name):
        return lambda other: other in (name, plain)
    [matches] = compile_names([_ESCAPE.sub(_quote, name)])
    if matches is None or not any(c in name for c in "[\\"):
        return matches
    return lambda other: other in (name, plain) or matches(other)


def _quote(escape: re.Match[str]) -> str:
    """Rewrite an escaped character so that `fnmatch` takes it literally."""
    return f"[{escape[1]}]" if escape[1] in "*?[" else escape[1]


def locate_pattern(workspace: Workspace, pattern: str, path: str | None) -> tuple[str, str]:
    """Split a pattern into the folder to search and the pattern below it.

    Leading names that are folders, or links to folders, become part of the folder, so that nothing
    beside it is listed. An absolute pattern contains both; a relative one is below `path`.
    Raises WorkspaceError for a folder outside the workspace.
    """
    folder = workspace.locate(path or ".")
    pattern = _expand(workspace, folder, pattern)
    if pattern.startswith("/"):
        folder, pattern = _split_absolute(workspace, pattern)
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    # An escaped name may mean two folders: `[` and, taken literally, `\[`.
    while len(names) > 1 and not has_wildcard(names[0]) and "\\" not in names[0]:
        found = find_named(workspace, folder, names[0])
        if found is None or not stat.S_ISDIR(workspace.stat(found).mode):
            break
        folder = found
        del names[0]
    end = "/" if pattern.endswith("/") else ""
    return folder, "/".join(names) + end


def read_pattern(workspace: Workspace, folder: str, pattern: str) -> str:
    """Make an absolute pattern, or one below another folder, relative to a folder.

    Raises WorkspaceError for a folder outside the searched one.
    """
    pattern = _expand(workspace, folder, pattern)
    if not pattern.startswith("/"):
        return pattern
    above, rest = _split_absolute(workspace, pattern)
    path = rest if above == "." else f"{above}/{rest}"
    if folder == ".":
        return path
    if path.startswith(f"{folder}/"):
        return path[len(folder) + 1 :]
    raise WorkspaceError(
        f"glob: {pattern} is not below {folder}", remedy="Name that folder in path instead."
    )


def find_named(workspace: Workspace, folder: str, name: str) -> str | None:
    """Find the path that a pattern without wildcards names, with or without its escapes."""
    for spelling in dict.fromkeys((name, unescape(name))):
        path = spelling if folder == "." else f"{folder}/{spelling}"
        try:
            workspace.stat(path)
        except WorkspaceError:
            continue
        return path
    return None


def _expand(workspace: Workspace, folder: str, pattern: str) -> str:
    """Expand the start of a pattern like a path's, and drop surrounding line breaks."""
    trimmed = pattern.strip("\t\r\n")
    if trimmed != pattern and not find_named(workspace, folder, pattern):
        pattern = trimmed
    head, slash, rest = pattern.partition("/")
    is_address = head.endswith(":") and slash
    if not is_address and not head.startswith(("~", "$", "%")):
        return pattern
    if find_named(workspace, folder, head):
        return pattern
    try:
        if is_address:
            return read_path_argument(pattern, lambda _: False)
        return read_path_argument(head, lambda _: False) + slash + rest
    except ValueError as error:
        raise WorkspaceError(str(error)) from None


def _split_absolute(workspace: Workspace, pattern: str) -> tuple[str, str]:
    """Split an absolute pattern into a folder it is below, and the rest."""
    root = workspace.root.rstrip("/") + "/"
    if pattern.startswith(root):  # the root's own name may contain brackets
        return ".", pattern[len(root) :].lstrip("/")
    names = pattern.split("/")
    literal = 1
    while literal < len(names) - 1 and not has_wildcard(names[literal]):
        literal += 1
    folder = workspace.locate(unescape("/".join(names[:literal])) or "/")
    return folder, "/".join(names[literal:])
