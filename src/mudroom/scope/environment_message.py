"""Environment message of a scope: date, platform, folder and a tree of its files."""

from __future__ import annotations

import platform
import time
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice

from .._core.messages import AssistantMessage, Message, TextBlock, user_message
from .._core.ports import Workspace
from ..projections.safe_text import sanitize_line

MAX_ITEMS = 200
"""Maximum number of files and folders in the tree."""

MAX_WALKED_FILES = 5_000
"""Maximum number of files that the tree is made from; they are found in about 0.1 seconds."""

_MAX_NAME_LENGTH = 255
"""Maximum characters of a file name."""

Tree = dict[str, "Tree | None"]
"""Entries of a folder by name; None for a file."""


def make_environment_messages(workspace: Workspace) -> tuple[Message, Message]:
    """Return the first message of a scope and the model's reply. Blocks while it reads folders."""
    paths = [file.path for file in islice(workspace.walk(), MAX_WALKED_FILES + 1)]
    title = f"Files (at most {MAX_ITEMS} files and folders; ... marks what is left out):"
    if len(paths) > MAX_WALKED_FILES:
        del paths[MAX_WALKED_FILES:]
        title = f"{title} only the first {MAX_WALKED_FILES:,} files were looked at."
    lines = [
        "This is the context of your work.",
        f"Date: {time.strftime('%Y-%m-%d')}",
        f"Platform: {platform.system()}",
        f"Working folder: {workspace.root}",
        title,
        f"{workspace.root.rstrip('/')}/",
        *draw_tree(paths, MAX_ITEMS),
    ]
    reply = AssistantMessage((TextBlock("Got it. Thanks for the context!"),))
    return user_message("\n".join(lines)), reply


def draw_tree(paths: Iterable[str], max_items: int) -> Iterator[str]:
    """Yield the lines of a tree of files: in each folder first its folders, then its files.

    When there are more than `max_items`, the upper levels are shown.
    """
    tree: Tree = {}
    for path in paths:
        _add_path(tree, path)
    shown = _select_items(tree, max_items)
    return _draw_folder(tree, shown, "")


def _add_path(tree: Tree, path: str) -> None:
    *folders, name = path.split("/")
    for folder in folders:
        inner = tree.get(folder)
        if inner is None:
            inner = {}
            tree[folder] = inner
        tree = inner
    tree[name] = None


def _select_items(tree: Tree, max_items: int) -> dict[int, list[str]]:
    """Return the shown names of each shown folder, by the id of its entries; level by level."""
    shown: dict[int, list[str]] = {}
    waiting = deque([tree])
    while waiting and max_items > 0:
        folder = waiting.popleft()
        names = sorted(folder, key=lambda name: (folder[name] is None, name))[:max_items]
        shown[id(folder)] = names
        max_items -= len(names)
        waiting.extend(inner for name in names if (inner := folder[name]) is not None)
    return shown


def _draw_folder(folder: Tree, shown: dict[int, list[str]], indent: str) -> Iterator[str]:
    names = shown.get(id(folder), [])
    is_cut = len(names) < len(folder)
    for position, name in enumerate(names, 1):
        is_last = position == len(names) and not is_cut
        branch = "└───" if is_last else "├───"
        label = sanitize_line(name, _MAX_NAME_LENGTH)
        inner = folder[name]
        if inner is None:
            yield f"{indent}{branch}{label}"
        elif id(inner) not in shown:
            yield f"{indent}{branch}{label}/..."
        else:
            yield f"{indent}{branch}{label}/"
            yield from _draw_folder(inner, shown, indent + ("    " if is_last else "│   "))
    if is_cut:
        yield f"{indent}└───..."
