"""Environment variables of commands: no secrets, no pager, no colours."""

from __future__ import annotations

import re
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
    """Return the variables whose names do not look like a key, token, secret or password.

    Every variable that starts with AWS_ counts as a secret.
    """
    return {name: value for name, value in environ.items() if not _SECRET.search(name)}


def make_quiet(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without secrets and colours, and with pagers turned off."""
    kept = {name: value for name, value in remove_secrets(environ).items() if name not in _COLOURS}
    return kept | _QUIET


def select_allowed(environ: Mapping[str, str]) -> dict[str, str]:
    """Return only the variables that programs need to work, with pagers turned off."""
    return {name: value for name, value in environ.items() if _ALLOWED.fullmatch(name)} | _QUIET
