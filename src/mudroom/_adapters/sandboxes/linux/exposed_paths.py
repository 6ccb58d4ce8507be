"""Paths that commands see or must not change: /etc, secrets, git folders, protected files."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator

from ...._platform.git_folders import find_git_folders
from ...._platform.open_beneath import is_beneath
from ...._platform.patterns import compile_later
from ...._platform.protected_names import is_protected
from ...._platform.regular_files import read_regular_file
from .daemon.protected_files import GIT_SETTINGS

ETC_DIRS = [
    "alternatives",
    "ssl/certs",
    "ca-certificates/extracted",
    "pki/tls/certs",
    "pki/ca-trust",
    "crypto-policies",
    "java-17-openjdk",
    "java-21-openjdk",
    "fonts",
]
ETC_FILES = [
    "ld.so.cache",
    "localtime",
    "timezone",
    "ssl/openssl.cnf",
    "mime.types",
    "protocols",
    "services",
    "os-release",
    "debian_version",
    "locale.alias",
]
"""Entries of /etc that commands see, besides ETC_DIRS: programs need them to start. They reveal
nothing about accounts, other hosts or this machine's services."""

_SECRET_DIRS = [
    ".ssh",
    ".aws",
    ".gnupg",
    ".netrc",
    ".pgpass",
    ".docker",
    ".kube",
    ".config",
    ".local/share/keyrings",
    ".password-store",
    ".npmrc",
    ".pypirc",
    ".git-credentials",
]
_GAP = r"[^\S\n]*+"
_PATH_SETTING = compile_later(
    rf"^{_GAP}(?:hooksPath|path|excludesFile|attributesFile){_GAP}={_GAP}\"?([^\"\n#;]+)",
    re.I | re.M,
)
_USER_SECTION = compile_later(rf"^{_GAP}\[user\]([^\[]*)", re.M)
_USER_SETTING = compile_later(
    rf"^{_GAP}(name|email){_GAP}={_GAP}\"?([^\"\\\n#;]++)\"?{_GAP}$", re.M
)


def make_git_config(user_home: str) -> str:
    """Write the git configuration for commands: only the user's name and email."""
    user = {"name": "user", "email": "user@sandbox"}
    for name in (".config/git/config", ".gitconfig"):
        section = _USER_SECTION.search(_read_text(os.path.join(user_home, name)))
        if section:
            user |= {name: value.strip() for name, value in _USER_SETTING.findall(section[1])}
    return (
        f'[safe]\n\tdirectory = *\n[user]\n\tname = "{user["name"]}"\n\temail = "{user["email"]}"\n'
    )


def find_secret_dirs(workspace: str, user_home: str) -> list[str]:
    """Find folders with keys, if the home folder is in the workspace."""
    if not is_beneath(user_home, workspace):
        return []
    paths = [os.path.join(user_home, name) for name in _SECRET_DIRS]
    return [path for path in paths if os.path.isdir(path)]


def find_protected(workspace: str) -> Iterator[tuple[str, bool]]:
    """Yield absolute paths in a workspace that commands may read but not change.

    The flag is True for a git folder: its content may change, but it must stay in its place.
    Links are left out; they are restored after a command that changes them.
    """
    for name in sorted(filter(is_protected, os.listdir(workspace))):
        path = os.path.join(workspace, name)
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            continue
        if name == ".git" and stat.S_ISDIR(mode):
            yield path, True
            for inner in _find_git_settings(path, workspace):
                yield inner, False
        else:
            yield path, False
    if sys.prefix.startswith(workspace.rstrip("/") + "/"):
        yield sys.prefix, False  # the environment this program runs from


def _find_git_settings(git_dir: str, workspace: str) -> Iterator[str]:
    """Yield hooks and settings of a git folder and its submodules, and the files they name."""
    for name in GIT_SETTINGS:
        path = os.path.join(git_dir, name)
        if os.path.exists(path) and not os.path.islink(path):
            yield path
    for folder, subfolders, files in os.walk(os.path.join(git_dir, "modules")):
        if "config" not in files:
            continue
        for name in GIT_SETTINGS:
            if name in files or name in subfolders:
                yield os.path.join(folder, name)
        subfolders[:] = [name for name in subfolders if name == "modules"]
    config = _read_text(os.path.join(git_dir, "config"))
    for value in _PATH_SETTING.findall(config):
        for base in (workspace, git_dir):
            path = os.path.normpath(os.path.join(base, value.strip()))
            is_inside = path.startswith(workspace + "/")
            if is_inside and os.path.exists(path) and os.path.realpath(path) == path:
                yield path


def find_linked_git(workspace: str) -> list[str]:
    """Find the common git folder of a workspace that is a linked worktree."""
    folders = find_git_folders(workspace)
    return [folders.common] if folders and folders.common != folders.directory else []


def check_no_links(folders: Iterable[str]) -> None:
    """Raise OSError if a folder is reached through a symbolic link.

    They were folders of the workspace when chosen. A command may since have put a link to any other
    folder there.
    """
    for folder in folders:
        if os.path.realpath(folder) != folder:
            raise OSError(errno.ELOOP, f"{folder} is or has become a symbolic link", folder)


def _read_text(path: str) -> str:
    try:
        return read_regular_file(path).decode("utf-8", "replace")
    except OSError:
        return ""
