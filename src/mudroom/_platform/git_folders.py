"""Strangers' git folders, read as data: git itself never looks at them here.

Whoever can write a folder decides what its `.git` says, and mudroom shows git folders to sandboxed
commands. So a folder outside is believed only if it also names the folder inside.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from .open_beneath import find_real_path
from .patterns import compile_later
from .regular_files import read_regular_file

# Bytes; a pointer holds one path.
_MAX_POINTER = 4096

_SECTION = compile_later(r'\[\s*([A-Za-z0-9.-]+)(?:[ \t]+"((?:[^"\\\n]|\\.)*)")?\s*\]')
_QUOTED = r'"(?:[^"\\\n]|\\[ntb"\\\n])*+"'
_SETTING = compile_later(
    rf"([A-Za-z][A-Za-z0-9-]*+)[ \t]*+"
    rf'(?:=[ \t]*+((?:{_QUOTED}|\\[ntb"\\\n]|[^"\\\n#;])*+))?(?=[\n#;]|$)'
)
_PARTS = compile_later(rf"({_QUOTED})|(\\.|.)", re.DOTALL)
_ESCAPE = compile_later(r"\\(.)", re.DOTALL)
_ESCAPES = {"\n": "", "n": "\n", "t": "\t", "b": "\b", "\\": "\\", '"': '"'}


class GitFolders(NamedTuple):
    """The git folder of a working tree, and the one with objects and branches.

    Linked worktrees share the common folder; elsewhere both are the same.
    """

    directory: str
    common: str


def find_git_folders(top: str) -> GitFolders | None:
    """Find the git folder of a working tree, given by absolute path without links; None if none.

    - `.git` must be a real folder, not a symbolic link.
    - A linked worktree must be the one its git folder names, and this git folder must be
      `worktrees/NAME` in the common one.
    - The git folder of a submodule must name the submodule in `core.worktree`.
    """
    path = os.path.join(top, ".git")
    if os.path.islink(path):
        return None
    if os.path.isdir(path):
        return None if _read_name(path, "commondir") else _check(GitFolders(path, path))
    pointer = read_first_line(path)
    if not pointer.startswith("gitdir:"):
        return None
    directory = os.path.realpath(os.path.join(top, pointer.removeprefix("gitdir:").strip()))
    common = _read_name(directory, "commondir")
    back_pointer = _read_name(directory, "gitdir")
    if not common and not back_pointer:  # a submodule
        config = read_git_config(os.path.join(directory, "config"))
        worktree = config.get("core.worktree", "")
        is_own = worktree and os.path.realpath(os.path.join(directory, worktree)) == top
        return _check(GitFolders(directory, directory)) if is_own else None
    common = os.path.realpath(os.path.join(directory, common))
    is_known = directory == os.path.join(common, "worktrees", os.path.basename(directory))
    if not is_known or os.path.realpath(os.path.join(directory, back_pointer)) != path:
        return None
    return _check(GitFolders(directory, common))


def _check(folders: GitFolders) -> GitFolders | None:
    has_head = all(os.path.lexists(os.path.join(folder, "HEAD")) for folder in folders)
    is_own = folders.common == folders.directory
    is_whole = has_head and (is_own or os.path.isdir(os.path.join(folders.common, "objects")))
    return folders if is_whole else None


def read_first_line(path: str) -> str:
    """Read the first line of a small regular file, "" if there is none."""
    try:
        data = read_regular_file(path, max_bytes=_MAX_POINTER, follow_link=False)
    except (OSError, ValueError):  # ValueError: a NUL in a path taken from a file
        return ""
    return os.fsdecode(data).partition("\n")[0].strip()


def _read_name(directory: str, name: str) -> str:
    line = read_first_line(os.path.join(directory, name))
    return "" if "\0" in line else line


def read_git_config(path: str) -> dict[str, str]:
    """Read the settings of a configuration file by name; {} if it cannot be read.

    Includes are not followed. If a name occurs several times, its last value counts.
    """
    try:
        data = read_regular_file(path, follow_link=False)
    except (OSError, ValueError):
        return {}
    return parse_git_config(os.fsdecode(data))


def parse_git_config(text: str) -> dict[str, str]:
    """Parse the settings of a configuration by name: "core.bare", "remote.Origin.url".

    Names are in lower case except for quoted parts. A name without a value is "true". Everything
    after a syntax error is left out; git itself would reject the whole text.
    """
    settings: dict[str, str] = {}
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    section = ""
    place = 0
    while place < len(text):
        if text[place].isspace():
            place += 1
        elif text[place] in "#;":
            end = text.find("\n", place)
            place = len(text) if end < 0 else end
        elif match := _SECTION.match(text, place):
            name, part = match.groups()
            section = name.lower()
            if part is not None:
                section += "." + re.sub(r"\\(.)", r"\1", part)
            place = match.end()
        elif section and (match := _SETTING.match(text, place)):
            name, value = match.groups()
            settings[f"{section}.{name.lower()}"] = "true" if value is None else _unquote(value)
            place = match.end()
        else:
            break
    return settings


def _unquote(value: str) -> str:
    parts: list[str] = []
    end = 0  # only blanks follow
    for quoted, letter in _PARTS.findall(value):
        text = quoted[1:-1] if quoted else letter
        parts.append(_ESCAPE.sub(lambda match: _ESCAPES[match[1]], text))
        if quoted or not letter.isspace():
            end = len(parts)
    return "".join(parts[:end])


def list_project_folders(folder: str) -> list[str]:
    """List the real paths from a folder up to its git root, or only its own without one."""
    start = find_real_path(folder)
    folders = [start]
    while not os.path.exists(os.path.join(folders[-1], ".git")):
        parent = os.path.dirname(folders[-1])
        if parent == folders[-1]:
            return [start]
        folders.append(parent)
    return folders
