"""Where a pattern begins: the folder that its first names spell out, and the rest of it."""

from __future__ import annotations

import stat

from ..._core.ports import Workspace
from ..._platform.paths import read_path_argument
from ...errors import WorkspaceError
from ._glob_match import has_wildcard, unescape


def locate_pattern(workspace: Workspace, pattern: str, path: str | None) -> tuple[str, str]:
    """Return the folder to search and the pattern below it.

    The first names of a pattern that are folders, links to folders included, belong to the folder:
    nothing beside it is listed. An absolute pattern holds both.

    Arguments:
        path: the folder that a relative pattern is below; None for the root.

    Raises WorkspaceError for a folder outside the workspace.
    """
    folder = workspace.locate(path or ".")
    pattern = _expand(workspace, folder, pattern)
    if pattern.startswith("/"):
        folder, pattern = _split_absolute(workspace, pattern)
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    # An escaped name may mean two folders: `[` and, taken as it stands, `\[`.
    while len(names) > 1 and not has_wildcard(names[0]) and "\\" not in names[0]:
        found = find_named(workspace, folder, names[0])
        if found is None or not stat.S_ISDIR(workspace.stat(found).mode):
            break
        folder = found
        del names[0]
    end = "/" if pattern.endswith("/") else ""
    return folder, "/".join(names) + end


def read_pattern(workspace: Workspace, folder: str, pattern: str) -> str:
    """Return a pattern below a folder; one that is absolute, or below another, becomes relative.

    Raises WorkspaceError for a folder outside the one that is searched.
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
    """Return the path that a pattern names without wildcards, as it is or without escapes."""
    for spelling in dict.fromkeys((name, unescape(name))):
        path = spelling if folder == "." else f"{folder}/{spelling}"
        try:
            workspace.stat(path)
        except WorkspaceError:
            continue
        return path
    return None


def _expand(workspace: Workspace, folder: str, pattern: str) -> str:
    """Expand the start of a pattern as that of a path, and drop line breaks around it.

    Raises WorkspaceError if it is refused.
    """
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
    """Return a folder that an absolute pattern is below, and the rest of the pattern.

    Raises WorkspaceError for a folder outside the workspace.
    """
    root = workspace.root.rstrip("/") + "/"
    if pattern.startswith(root):  # whose own name may have brackets
        return ".", pattern[len(root) :].lstrip("/")
    names = pattern.split("/")
    literal = 1
    while literal < len(names) - 1 and not has_wildcard(names[literal]):
        literal += 1
    folder = workspace.locate(unescape("/".join(names[:literal])) or "/")
    return folder, "/".join(names[literal:])
