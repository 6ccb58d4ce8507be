"""What commands see of the environment: never a key, no pager, no colours; behind walls only what is named here."""

from __future__ import annotations

import re
from collections.abc import Mapping

_SECRET = re.compile(
    r"PASSWORD|PASSWD|PASSPHRASE|APIKEY|^AWS_|(^|_)(TOKENS?|SECRETS?|CREDENTIALS?|PRIVATE_KEY|ACCESS_KEY(_ID)?)(_|$)|.(_KEY|_PWD|_PAT)$",
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
_NAMED = re.compile(
    r"PATH|LANG|LANGUAGE|LC_\w+|TZ|CI|COLUMNS|LINES|VIRTUAL_ENV|CONDA_PREFIX|PYTHONPATH|PYTHONUTF8|PYTHONDONTWRITEBYTECODE"
    r"|GOROOT|GOTOOLCHAIN|JAVA_HOME|NVM_DIR|NODE_ENV|PYENV_ROOT|CARGO_HOME|RUSTUP_HOME|RUST_BACKTRACE|MAKEFLAGS|SOURCE_DATE_EPOCH"
)


def remove_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables whose names do not look like keys, tokens, secrets or passwords; AWS_… is left out whole."""
    return {name: value for name, value in environment.items() if not _SECRET.search(name)}


def make_quiet(environment: Mapping[str, str]) -> dict[str, str]:
    """Without secrets, colours and pagers."""
    kept = {
        name: value for name, value in remove_secrets(environment).items() if name not in _COLOURS
    }
    return kept | _QUIET


def select_allowed(environment: Mapping[str, str]) -> dict[str, str]:
    """Only the variables that tools need to find themselves, and the quiet ones."""
    return {name: value for name, value in environment.items() if _NAMED.fullmatch(name)} | _QUIET
