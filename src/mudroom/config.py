"""Settings of the command line: defaults < user file < project file < environment < flags, each value with its origin."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import msgspec
from msgspec import Struct

from ._core.agents import Mode
from .errors import UsageError, suggest_names

PROJECT_FILE = ".mudroom.toml"
OUTPUT_FORMATS = ("text", "json", "stream-json")
COLORS = ("auto", "always", "never")
SCREENS = ("auto", "plain")
SANDBOXES = ("auto", "full", "file", "off")
PERMISSION_MODES = tuple(mode.value for mode in Mode)


class Settings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a session on the command line is opened with.

    Arguments:
        model: model string, or "auto" for the first provider whose key is found. child_model: the same, or "inherit".
        max_turns: model calls of one answer to a prompt; None is no limit. child_turns: the same for a child.
        agent: name of the root agent, "" for the built-in one. agents: further ones, as JSON. json_schema: of the answer; JSON or a file.
        max_children: children that run at once. output_format: one of FORMATS. color: one of COLORS.
        screen: one of SCREENS; "plain" never moves the cursor, for screen readers.
        permission_mode: one of MODES, "" for what other settings say. allowed_tools, disallowed_tools: rules, with commas between.
        trust: whether this folder's files are trusted for this once.
        sandbox: one of SANDBOXES. allow_net: whether commands reach the network.
        max_minutes, max_tokens, max_budget_usd: limits of one answer to a prompt, all runs below it included. None is no limit;
            max_tokens holds for what is read and written together.
        home: folder of the journals. retention_days: how long a session is kept after its last record; None is for ever.
        origins: name of a value -> where it comes from; "default" is left out.
    """

    model: str = "auto"
    child_model: str = "inherit"
    max_turns: int | None = None
    max_minutes: float | None = None
    max_tokens: int | None = None
    max_budget_usd: float | None = None
    child_turns: int = 30
    max_children: int = 64
    agent: str = ""
    agents: str = ""
    json_schema: str = ""
    output_format: str = "text"
    color: str = "auto"
    screen: str = "auto"
    sandbox: str = "auto"
    permission_mode: str = ""
    allowed_tools: str = ""
    disallowed_tools: str = ""
    trust: bool = False
    allow_net: bool = False
    home: str = ""
    retention_days: int | None = None
    origins: dict[str, str] = {}

    def origin(self, name: str) -> str:
        """Where the value of `name` comes from."""
        return self.origins.get(name, "default")


SETTING_NAMES = tuple(
    name for name in Settings.__struct_fields__ if name not in ("origins", "agents", "json_schema")
)
PROJECT_SETTINGS = (
    "max_turns",
    "max_minutes",
    "max_tokens",
    "max_budget_usd",
    "child_turns",
    "max_children",
)
"""What a project's file may set, and only to less: it comes with a repository that someone else wrote."""

_CHOICES = {
    "output_format": OUTPUT_FORMATS,
    "color": COLORS,
    "screen": SCREENS,
    "sandbox": SANDBOXES,
    "permission_mode": PERMISSION_MODES,
}
_INTEGERS = {
    field.name
    for field in msgspec.structs.fields(Settings)
    if int in (field.type, *get_args(field.type))
}
_DECIMALS = {
    field.name for field in msgspec.structs.fields(Settings) if float in get_args(field.type)
}
_VARIABLES = {
    "model": "MUDROOM_MODEL",
    "child_model": "MUDROOM_CHILD_MODEL CLAUDE_CODE_SUBAGENT_MODEL",
    "max_turns": "MUDROOM_MAX_TURNS",
    "max_minutes": "MUDROOM_MAX_MINUTES",
    "max_tokens": "MUDROOM_MAX_TOKENS",
    "max_budget_usd": "MUDROOM_MAX_BUDGET_USD",
    "child_turns": "MUDROOM_CHILD_TURNS",
    "max_children": "MUDROOM_MAX_CHILDREN",
    "output_format": "MUDROOM_OUTPUT_FORMAT",
    "sandbox": "MUDROOM_SANDBOX",
}


def load_settings(*, cwd: str, environ: Mapping[str, str], flags: Mapping[str, Any]) -> Settings:
    """All sources folded into one.

    Arguments:
        cwd: the project's folder, where PROJECT_FILE may lie.
        environ: the environment. flags: values given on the command line, by name; None is not given.

    Raises UsageError that names file or variable, line, key and the nearest known one.
    """
    values: dict[str, Any] = {"home": find_home(environ)}
    origins: dict[str, str] = {}
    user, project = find_user_file(environ), Path(cwd) / PROJECT_FILE
    for key, value, where in _read_file(user, SETTING_NAMES):
        values[key], origins[key] = value, where
    for key, value, where in _read_file(project, PROJECT_SETTINGS):
        bound = values.get(key, getattr(_DEFAULTS, key))
        if bound is None or value < bound:
            values[key], origins[key] = value, where
    for key, value, where in (
        *_from_environment(environ),
        *((k, v, "flag") for k, v in flags.items() if v is not None),
    ):
        values[key], origins[key] = value, where
    return Settings(**values, origins=origins)


def write_setting(path: Path, name: str, value: str) -> None:
    """Set one thing in a file of settings and leave its other lines as they are; an empty value takes it away.

    Raises UsageError: no such setting, not its kind of value, or a file that could not be read afterwards; then it is as it was.
    """
    key = name.replace("-", "_")
    if key not in SETTING_NAMES:
        raise _unknown_setting(name, key, SETTING_NAMES, str(path))
    _read_file(path, SETTING_NAMES)
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    at = next((n for n, line in enumerate(lines) if _assigns(line, key)), len(lines))
    lines[at : at + 1] = (
        [f"{key} = {_to_toml(_validate(key, _parse_bool(key, value), str(path)))}"] if value else []
    )
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    try:
        _read_file(new, SETTING_NAMES)
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)


def _assigns(line: str, key: str) -> bool:
    return "=" in line and line.partition("=")[0].strip().strip("\"'").replace("-", "_") == key


def _parse_bool(key: str, value: str) -> Any:
    return (
        {"true": True, "false": False}.get(value, value)
        if isinstance(getattr(_DEFAULTS, key), bool)
        else value
    )


def _to_toml(value: Any) -> str:
    """A value as TOML; a JSON string is one of its strings."""
    return msgspec.json.encode(value).decode().replace("\x7f", "\\u007f")


def find_home(environ: Mapping[str, str]) -> str:
    """Folder of journals and history: $MUDROOM_HOME, else `mudroom` in the user's state folder."""
    if chosen := environ.get("MUDROOM_HOME"):
        return os.path.abspath(os.path.expanduser(chosen))
    return _user_folder(environ, "XDG_STATE_HOME", ".local/state", "user_state_dir")


def find_user_file(environ: Mapping[str, str]) -> Path:
    """The user's own file of settings."""
    return Path(
        _user_folder(environ, "XDG_CONFIG_HOME", ".config", "user_config_dir"), "config.toml"
    )


def _user_folder(environ: Mapping[str, str], variable: str, below_home: str, function: str) -> str:
    if base := environ.get(variable):
        return os.path.join(base, "mudroom")
    if sys.platform == "linux" and (user := environ.get("HOME")):
        return os.path.join(
            user, below_home, "mudroom"
        )  # what platformdirs says too, without the cost of importing it
    import platformdirs

    return getattr(platformdirs, function)("mudroom", appauthor=False)


def _read_file(path: Path, allowed: tuple[str, ...]) -> list[tuple[str, Any, str]]:
    """Key, checked value and "file:line" of each setting in a TOML file; a missing file has none."""
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(
            f"cannot read the settings: {reason}",
            where=str(path),
            remedy="Mend or remove the file.",
        ) from None
    import tomllib

    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            f"not TOML: {error}", where=str(path), remedy='Lines look like: model = "sonnet"'
        ) from None
    found: list[tuple[str, Any, str]] = []
    for key, value in table.items():
        where = f"{path}:{_find_line(text, key)}"
        name = key.replace("-", "_")
        if name not in allowed:
            raise _unknown_setting(key, name, allowed, where)
        found.append((name, _validate(name, value, where), where))
    return found


def _unknown_setting(key: str, name: str, allowed: tuple[str, ...], where: str) -> UsageError:
    if name in SETTING_NAMES:
        return UsageError(
            f"a project's file may not set {key!r}, only lower {', '.join(allowed)}",
            where=where,
            remedy="Put it into your own file of settings (mudroom doctor names it) or give it as a flag.",
        )
    return UsageError(f"unknown setting {key!r}", where=where, remedy=suggest_names(name, allowed))


def _from_environment(environ: Mapping[str, str]) -> list[tuple[str, Any, str]]:
    found: list[tuple[str, Any, str]] = []
    for key, names in _VARIABLES.items():
        name = next((n for n in names.split() if environ.get(n)), None)
        if name is not None:
            found.append((key, _validate(key, environ[name], f"${name}"), f"${name}"))
    if environ.get("MUDROOM_SCREEN_READER", "0") != "0":
        found.append(("screen", "plain", "$MUDROOM_SCREEN_READER"))
    if environ.get("NO_COLOR"):
        found.append(("color", "never", "$NO_COLOR"))
    elif forcing := next(
        (n for n in ("FORCE_COLOR", "CLICOLOR_FORCE") if environ.get(n, "0") != "0"), None
    ):
        found.append(("color", "always", f"${forcing}"))
    return found


def _validate(key: str, value: Any, where: str) -> Any:
    if key in _INTEGERS:
        number = int(value) if isinstance(value, str) and value.strip().isdecimal() else value
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise UsageError(f"{key} must be a whole number from 1, not {value!r}", where=where)
        return number
    if key in _DECIMALS:
        return _validate_decimal(key, value, where)
    if isinstance(getattr(_DEFAULTS, key), bool):
        if not isinstance(value, bool):
            raise UsageError(f"{key} must be true or false, not {value!r}", where=where)
        return value
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"{key} must be words in quotes, not {value!r}", where=where)
    if key in _CHOICES and value not in _CHOICES[key]:
        raise UsageError(
            f"{key} cannot be {value!r}", where=where, remedy=suggest_names(value, _CHOICES[key])
        )
    return os.path.abspath(os.path.expanduser(value)) if key == "home" else value.strip()


def _validate_decimal(key: str, value: Any, where: str) -> float:
    try:
        figure = 0.0 if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        figure = 0.0
    if not 0 < figure < float("inf"):
        raise UsageError(f"{key} must be a number above 0, not {value!r}", where=where)
    return figure


def _find_line(text: str, key: str) -> int:
    return next(
        (
            n
            for n, line in enumerate(text.splitlines(), 1)
            if line.lstrip().strip("\"'").startswith(key)
        ),
        1,
    )


_DEFAULTS = Settings()
