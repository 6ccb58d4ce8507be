"""Folders with development tools outside the system folders."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

SYSTEM_DIRS = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/lib32",
    "/libx32",
    "/opt",
    "/nix/store",
)
"""Programs and libraries that every command may read."""

_IN_HOME = """
.pyenv .local/share/uv .local/share/pipx .local/bin .cargo/bin .rustup .nvm .volta .deno/bin
.bun/bin .asdf .local/share/mise .rbenv .sdkman .local/share/fnm .local/share/pnpm go/bin .dotnet
.ghcup/bin miniconda3 anaconda3 miniforge3
"""


def find_toolchains(environ: Mapping[str, str], user_home: str) -> list[str]:
    """Return the tool folders that exist: the known ones in the home folder, and this Python's.

    Folders inside the system folders or inside each other are left out, and so is the home folder
    itself.
    """
    candidates = [os.path.join(user_home, name) for name in _IN_HOME.split()]
    candidates += [
        sys.base_prefix,
        sys.prefix,
        environ.get("VIRTUAL_ENV", ""),
        environ.get("CONDA_PREFIX", ""),
    ]
    covered = [f"{folder}/" for folder in SYSTEM_DIRS]
    toolchains: list[str] = []
    for folder in sorted({os.path.normpath(folder) for folder in candidates if folder}):
        if not os.path.isdir(folder) or folder.startswith(tuple(covered)):
            continue
        if folder not in ("/", "/usr", user_home):
            toolchains.append(folder)
            covered.append(f"{folder}/")
    return toolchains
