"""What both kinds of walls have in common: which folders hold tools, which protected things there are, a first try before all."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import stat
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping

from ..._core.ports import CommandResult
from ..._platform.protected_names import is_protected
from ..._platform.scratch_dirs import ScratchDir
from ...errors import WorkspaceError
from .daemon.protected_files import GIT_SETTINGS

SYSTEM_DIRS = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32", "/opt", "/nix/store")
"""Programs and libraries: all may read them."""

_FOLDERS = "alternatives ssl/certs ca-certificates/extracted pki/tls/certs pki/ca-trust crypto-policies java-17-openjdk java-21-openjdk fonts"
_COPIES = "ld.so.cache localtime timezone ssl/openssl.cnf mime.types protocols services os-release debian_version locale.alias"
ETC_DIRS, ETC_FILES = _FOLDERS.split(), _COPIES.split()
"""All of /etc that commands see, folders and files: what programs need to start. No accounts, nothing of hosts and services."""

SELF_TEST_TIMEOUT = 20.0
"""Seconds the first try may take."""

_HOMES = """
.pyenv .local/share/uv .local/share/pipx .local/bin .cargo/bin .rustup .nvm .volta .deno/bin .bun/bin .asdf .local/share/mise .rbenv .sdkman
.local/share/fnm .local/share/pnpm go/bin .dotnet .ghcup/bin miniconda3 anaconda3 miniforge3
"""
_SECRETS = ".ssh .aws .gnupg .netrc .pgpass .docker .kube .config .local/share/keyrings .password-store .npmrc .pypirc .git-credentials"
_PATHS = re.compile(
    r"^\s*(?:hooksPath|path|excludesFile|attributesFile)\s*=\s*\"?([^\"\n#;]+)", re.I | re.M
)


def find_toolchains(environment: Mapping[str, str], home: str) -> list[str]:
    """Folders outside the system's that tools are run from: the known ones in the home folder, and this Python's."""
    found = [os.path.join(home, name) for name in _HOMES.split()]
    found += [
        sys.base_prefix,
        sys.prefix,
        environment.get("VIRTUAL_ENV", ""),
        environment.get("CONDA_PREFIX", ""),
    ]
    system = tuple(f"{folder}/" for folder in SYSTEM_DIRS)
    kept: list[str] = []
    for folder in sorted({os.path.normpath(folder) for folder in found if folder}):
        within = (*system, *(f"{folder}/" for folder in kept))
        if (
            os.path.isdir(folder)
            and not folder.startswith(within)
            and folder not in ("/", "/usr", home)
        ):
            kept.append(folder)
    return kept


def make_git_config(home: str) -> str:
    """Git's settings for commands: who commits, as the user's own settings say, and nothing else of them."""
    who = {"name": "user", "email": "user@sandbox"}
    for path in (".config/git/config", ".gitconfig"):
        try:
            with open(os.path.join(home, path), encoding="utf-8", errors="replace") as file:
                section = re.search(r"^\s*\[user\]([^\[]*)", file.read(1 << 16), re.M)
        except OSError:
            continue
        who |= dict(
            re.findall(r"^\s*(name|email)\s*=\s*\"?([^\"\\\n#;]+?)\"?\s*$", section[1], re.M)
            if section
            else ()
        )
    return (
        f'[safe]\n\tdirectory = *\n[user]\n\tname = "{who["name"]}"\n\temail = "{who["email"]}"\n'
    )


def find_secret_dirs(root: str, home: str) -> list[str]:
    """Where the workspace holds the home folder: what in it holds keys."""
    if not (home == root or home.startswith(root.rstrip("/") + "/")):
        return []
    return [path for name in _SECRETS.split() if os.path.isdir(path := os.path.join(home, name))]


def find_protected(root: str) -> Iterator[tuple[str, bool]]:
    """Absolute paths in a workspace that commands may read, not change; True for a git folder, which must stay where it is.

    A link is none of them: it is put back when it was changed.
    """
    for name in sorted(filter(is_protected, os.listdir(root))):
        path = os.path.join(root, name)
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            continue
        if name == ".git" and stat.S_ISDIR(mode):
            yield path, True
            yield from ((inner, False) for inner in _git(path, root))
        else:
            yield path, False
    if sys.prefix.startswith(root.rstrip("/") + "/"):
        yield sys.prefix, False  # what this program itself runs from


def _git(folder: str, root: str) -> Iterator[str]:
    """Hooks and settings of a git folder, of its submodules, and files in the workspace that the settings name."""
    for name in GIT_SETTINGS:
        if os.path.exists(path := os.path.join(folder, name)) and not os.path.islink(path):
            yield path
    for below, folders, files in os.walk(os.path.join(folder, "modules")):
        if "config" in files:
            yield from (
                os.path.join(below, name)
                for name in GIT_SETTINGS
                if name in files or name in folders
            )
            folders[:] = [name for name in folders if name == "modules"]
    try:
        with open(os.path.join(folder, "config"), encoding="utf-8", errors="replace") as file:
            text = file.read(1 << 20)
    except OSError:
        return
    for named in _PATHS.findall(text):
        for start in (root, folder):
            path = os.path.normpath(os.path.join(start, named.strip()))
            if (
                path.startswith(root + "/")
                and os.path.exists(path)
                and os.path.realpath(path) == path
            ):
                yield path


def find_linked_git(root: str) -> list[str]:
    """Git folders outside a workspace that is a linked worktree: its own and the common one; only when they point back at it."""
    try:
        with open(os.path.join(root, ".git"), encoding="utf-8", errors="replace") as file:
            own = os.path.realpath(
                os.path.join(root, file.read(4096).removeprefix("gitdir:").strip())
            )
        with open(os.path.join(own, "gitdir"), encoding="utf-8", errors="replace") as file:
            back = os.path.realpath(file.read(4096).strip())
        with open(os.path.join(own, "commondir"), encoding="utf-8", errors="replace") as file:
            common = os.path.realpath(os.path.join(own, file.read(4096).strip()))
    except OSError:
        return []
    whole = back == os.path.join(root, ".git") and own.startswith(common + "/worktrees/")
    return [common] if whole else []


class SelfTest:
    """The first command of a sandbox is ours: it tries to write and to read outside. Only when it cannot, others may come.

    Arguments:
        run: (command, sink) -> how it ended, behind the walls.
    """

    def __init__(
        self, run: Callable[[str, Callable[[bytes], None]], Awaitable[CommandResult]]
    ) -> None:
        self._run = run
        self._lock, self._passed = asyncio.Lock(), False

    async def ensure_passed(self) -> None:
        """Return when the walls hold. Raises WorkspaceError when they do not."""
        if self._passed:
            return
        async with self._lock:
            if self._passed:
                return
            with ScratchDir() as folder:
                await self._try(folder)
            self._passed = True

    async def _try(self, folder: str) -> None:
        key, output = secrets.token_hex(8), bytearray()
        with open(os.path.join(folder, "key"), "w", encoding="utf-8") as file:
            file.write(key)
        command = f"cat {folder}/key; echo x > {folder}/key; echo x > {folder}/new; echo tried"
        finished = await self._run(command, output.extend)
        with open(os.path.join(folder, "key"), encoding="utf-8") as file:
            kept = file.read() == key and os.listdir(folder) == ["key"]
        if finished.code != 0 or b"tried" not in output or key.encode() in output or not kept:
            raise WorkspaceError(
                "the sandbox does not hold: a command could read or write outside of it, or did not run at all",
                remedy="No command is run. mudroom doctor says more; --sandbox off runs commands without walls.",
            )
