"""The parts of this machine that commands see: variables without secrets or colours, and tools."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping

from ..._platform.patterns import compile_later

_SECRET = compile_later(
    r"PASSWORD|PASSWD|PASSPHRASE|APIKEY|^AWS_|^MUDROOM_STORE$"  # its address may have a password
    r"|(^|_)(TOKENS?|SECRETS?|CREDENTIALS?|PRIVATE_KEY|ACCESS_KEY(_ID)?)(_|$)"
    r"|.(_KEY|_PWD|_PAT)$",
    re.I,
)
_QUIET = {
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "MANPAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "NO_COLOR": "1",
    "CLICOLOR": "0",
}
_COLOURS = {"FORCE_COLOR", "CLICOLOR_FORCE", "COLORTERM", "PY_COLORS", "LS_COLORS"}
_ALLOWED = compile_later(
    r"PATH|LANG|LANGUAGE|LC_\w+|TZ|CI|COLUMNS|LINES|VIRTUAL_ENV|CONDA_PREFIX|PYTHONPATH|PYTHONUTF8"
    r"|PYTHONDONTWRITEBYTECODE|GOROOT|GOTOOLCHAIN|JAVA_HOME|NVM_DIR|NODE_ENV|PYENV_ROOT|CARGO_HOME"
    r"|RUSTUP_HOME|RUST_BACKTRACE|MAKEFLAGS|SOURCE_DATE_EPOCH"
)


def remove_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Leave out the variables whose names look like a key, token, secret or password.

    Every variable that starts with AWS_ counts as a secret.
    """
    return {name: value for name, value in environ.items() if not _SECRET.search(name)}


def make_quiet(environ: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in remove_secrets(environ).items() if name not in _COLOURS}
    return kept | _QUIET


def select_allowed(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if _ALLOWED.fullmatch(name)} | _QUIET


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
    """Find existing tool folders: known ones in the home folder, and this Python's.

    Folders inside system folders or inside each other are left out, as is the home folder itself.
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
