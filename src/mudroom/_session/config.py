"""Command line settings: defaults < user file < project file < environment < flags.

Each value remembers where it comes from.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import msgspec
from msgspec import Meta

from .._core.agents import Mode
from .._core.options import PositiveInt
from .._core.ports.environment import SANDBOX_MODES
from .._platform.private_files import replace_private_file
from .._platform.regular_files import is_missing, read_regular_file
from ..errors import UsageError, suggest_names
from .options import SharedOptions, gather_options, list_places, parse_worker

OUTPUT_FORMATS = ("text", "json", "stream-json")
COLORS = ("auto", "always", "never")
SCREENS = ("auto", "plain")
THEMES = ("auto", "dark", "light")
NOTIFICATIONS = ("auto", "bell", "osc9", "osc777", "off")
PERMISSION_MODES = tuple(mode.value for mode in Mode)

# A finite number above 0.
PositiveFloat = Annotated[float, Meta(gt=0, le=1e12)]


class Settings(SharedOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one command line. Fields shared with `SessionOptions` become session options.

    A settings file has a group's options one by one, under their flat names. None as a limit means
    no limit.

    Arguments:
        max_minutes, max_tokens, max_budget_usd: limits of a prompt with all runs below it.
            max_tokens counts input and output together.
        agent: name of the agent that runs the prompts; "" for the built-in one.
        agents: more agents, as JSON.
        json_schema: JSON Schema of the answer, as JSON or as a path.
        screen: "plain" never moves the cursor, for screen readers.
        theme: "auto" asks the terminal for its background.
        notify_after: seconds of work after which the terminal is notified of a question or the end.
        terminal_title: show folder and state in the terminal's title.
        status_line: command that prints the line below the prompt; "" for the built-in one.
        store: address of a PostgreSQL database for sessions; None keeps them in files.
        permission_mode: "" uses the mode of the settings files.
        allowed_tools, disallowed_tools: rules, separated by commas.
        trust: trust this folder's files for this session only.
        plugin_dirs: folders of plugins, separated as in PATH.
        annotate: write for GitHub Actions: annotations to stderr, and a summary to the file in
            GITHUB_STEP_SUMMARY.
        strict_merges: the exit code tells if work of children did not land.
        retention_days: days a session is kept after its last event; None keeps it forever.
        origins: the file, variable or flag each setting comes from, without defaults.
    """

    model: str = "auto"
    max_turns: PositiveInt | None = None
    max_minutes: PositiveFloat | None = None
    max_tokens: PositiveInt | None = None
    max_budget_usd: PositiveFloat | None = None
    agent: str = ""
    agents: str = ""
    json_schema: str = ""
    output_format: str = "text"
    color: str = "auto"
    screen: str = "auto"
    theme: str = "auto"
    vi_keys: bool = False
    notifications: str = "auto"
    notify_after: PositiveFloat = 10.0
    terminal_title: bool = True
    status_line: str = ""
    store: str | None = None
    sandbox: str = "auto"
    worker: str = "local"
    output_style: str = ""
    permission_mode: str = ""
    allowed_tools: str = ""
    disallowed_tools: str = ""
    trust: bool = False
    trace: bool = False
    plugin_dirs: str = ""
    annotate: bool = False
    strict_merges: bool = False
    retention_days: PositiveInt | None = None
    origins: dict[str, str] = msgspec.field(default_factory=dict[str, str])

    def get_origin(self, name: str) -> str:
        return self.origins.get(name, "default")

    def get_persistent_origin(self, name: str) -> str:
        """Return the file or variable a setting comes from, "" for a flag or default."""
        origin = self.origins.get(name, "")
        return "" if origin == "flag" else origin

    def get(self, name: str) -> Any:  # noqa: ANN401  of the setting
        return list_places(Settings)[name].read(self)

    def to_options(self) -> dict[str, Any]:
        names = (*SharedOptions.__struct_fields__, *_OPTION_NAMES)
        return {name: getattr(self, name) for name in names}


# As a session option, `agents` is a list of agents; as a setting, JSON.
_OPTION_NAMES = ("agent", "model", "sandbox", "store", "worker")

# Without those that are only flags, `origins`, and `prices`: commands enable the table of prices
# themselves.
SETTING_NAMES = tuple(
    name
    for name in list_places(Settings)
    if name not in ("origins", "agents", "json_schema", "plugin_dirs", "prices")
)


PROJECT_FILE = ".mudroom.toml"
# Settings that a project file may lower, since it may come from an untrusted repository.
PROJECT_SETTINGS = (
    "max_turns",
    "max_minutes",
    "max_tokens",
    "max_budget_usd",
    "child_turns",
    "max_children",
)

_VARIABLES = {
    "model": "MUDROOM_MODEL",
    "child_model": "MUDROOM_CHILD_MODEL CLAUDE_CODE_SUBAGENT_MODEL",
    "max_turns": "MUDROOM_MAX_TURNS",
    "max_minutes": "MUDROOM_MAX_MINUTES",
    "max_tokens": "MUDROOM_MAX_TOKENS",
    "max_budget_usd": "MUDROOM_MAX_BUDGET_USD",
    "max_output_tokens": "MUDROOM_MAX_OUTPUT_TOKENS CLAUDE_CODE_MAX_OUTPUT_TOKENS",
    "child_turns": "MUDROOM_CHILD_TURNS",
    "max_children": "MUDROOM_MAX_CHILDREN",
    "output_format": "MUDROOM_OUTPUT_FORMAT",
    "sandbox": "MUDROOM_SANDBOX",
    "store": "MUDROOM_STORE",
}
# mudroom's variables that are no settings; the last four belong to its tests.
_OTHER_VARIABLES = (
    "MUDROOM_HOME",
    "MUDROOM_SCREEN_READER",
    "MUDROOM_DEBUG",
    "MUDROOM_OFFLINE_PACE",
    "MUDROOM_MCP_NESTING",
    "MUDROOM_LONG",
    "MUDROOM_SUBJECTS",
    "MUDROOM_REAL",
    "MUDROOM_SEED",
)

_DEFAULTS = Settings()

# A setting's name, checked value and origin.
Setting = tuple[str, Any, str]


def load_settings(*, cwd: str, environ: Mapping[str, str], flags: Mapping[str, Any]) -> Settings:
    """Merge all sources of settings. A flag that is None was not given.

    Raises UsageError, naming the file or variable, the line, the key and the nearest known key.
    """
    values: dict[str, Any] = {"home": find_home(environ)}
    variables = [f"${name}" for name in ("MUDROOM_HOME", "XDG_STATE_HOME") if environ.get(name)]
    origins = {"home": variables[0]} if variables else {}

    def apply(setting: Setting) -> None:
        name, value, origin = setting
        values[name] = value
        origins[name] = origin

    for setting in _read_file(find_user_file(environ), SETTING_NAMES):
        apply(setting)
    for setting in _read_file(Path(cwd) / PROJECT_FILE, PROJECT_SETTINGS):
        # A project may make limits stricter for its visitors, but not looser.
        limit = values.get(setting[0], _DEFAULTS.get(setting[0]))
        if limit is None or setting[1] < limit:
            apply(setting)
    for setting in _read_environment(environ):
        apply(setting)
    for name, value in flags.items():
        if isinstance(value, float) or (name == "worker" and value is not None):
            # click has checked the others
            value = validate_value(name, value, f"--{name.replace('_', '-')}")
        if value is not None:
            apply((name, value, "flag"))
    return Settings(**gather_options(values, _DEFAULTS), origins=origins)


def write_setting(path: Path, name: str, value: str) -> None:
    """Change one setting in a file, keeping its other lines; an empty value removes it.

    Raises UsageError for an unknown setting, a wrong value or an unreadable file, which is then
    left unchanged.
    """
    key = name.replace("-", "_")
    if key not in SETTING_NAMES:
        raise _make_unknown_setting_error(name, key, SETTING_NAMES, str(path))
    # Raises for a faulty file that tomlkit would accept.
    _read_file(path, SETTING_NAMES)
    import tomlkit

    document = tomlkit.parse(path.read_text("utf-8") if path.exists() else "")
    # Keep the file's own spelling, `max-turns` or `max_turns`.
    written_key = next((name for name in document if name.replace("-", "_") == key), key)
    if value:
        document[written_key] = validate_value(key, value, str(path), is_text=True)
    else:
        document.pop(written_key, None)
    replace_private_file(path, tomlkit.dumps(document).encode())  # `store` may hold a password


def find_home(environ: Mapping[str, str]) -> str:
    """Return the folder for sessions, input history and trusted folders."""
    return _read_home_variable(environ) or _find_user_folder(
        environ, "XDG_STATE_HOME", ".local/state", "user_state_dir"
    )


def _read_home_variable(environ: Mapping[str, str]) -> str:
    chosen = environ.get("MUDROOM_HOME")
    if not chosen:
        return ""
    if not chosen.strip():
        raise UsageError("it is blank", where="$MUDROOM_HOME", remedy="Name a folder, or unset it.")
    return os.path.abspath(os.path.expanduser(chosen))


def load_home(environ: Mapping[str, str]) -> str:
    settings = _read_file(find_user_file(environ), SETTING_NAMES)
    return next((value for name, value, _ in settings if name == "home"), find_home(environ))


def load_store(environ: Mapping[str, str]) -> str:
    """Return the setting `store` from the environment or the user file, "" if in neither."""
    settings = [*_read_file(find_user_file(environ), SETTING_NAMES), *_read_environment(environ)]
    return next((value for name, value, _ in reversed(settings) if name == "store"), "")


def find_user_file(environ: Mapping[str, str]) -> Path:
    folder = _read_home_variable(environ) or _find_user_folder(
        environ, "XDG_CONFIG_HOME", ".config", "user_config_dir"
    )
    return Path(folder, "config.toml")


def _find_user_folder(
    environ: Mapping[str, str], variable: str, below_home: str, function: str
) -> str:
    """Return mudroom's folder below the one in an environment variable, else below `below_home`.

    On other systems, platformdirs' `function` names the folder.
    """
    if base := environ.get(variable):
        return os.path.join(base, "mudroom")
    user = environ.get("HOME")
    if sys.platform == "linux" and user:
        # What platformdirs would return, without the cost of importing it.
        return os.path.join(user, below_home, "mudroom")
    import platformdirs

    return getattr(platformdirs, function)("mudroom", appauthor=False)


def _read_file(path: Path, allowed: tuple[str, ...]) -> list[Setting]:
    """Read a TOML file's settings, with "file:line" as origin; none if the file is missing."""
    try:
        text = read_regular_file(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        if is_missing(path, error):
            return []
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(
            f"cannot read the settings: {reason}",
            where=str(path),
            remedy="Correct or remove the file.",
        ) from None
    import tomllib

    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"not TOML: {error}", where=str(path), remedy='Lines look like: model = "sonnet"'
        ) from None
    settings: list[Setting] = []
    for key, value in table.items():
        origin = f"{path}:{_find_line(text, key)}"
        name = key.replace("-", "_")
        if name not in allowed:
            raise _make_unknown_setting_error(key, name, allowed, origin)
        settings.append((name, validate_value(name, value, origin), origin))
    return settings


def _read_environment(environ: Mapping[str, str]) -> Iterator[Setting]:
    for key, names in _VARIABLES.items():
        name = next((name for name in names.split() if environ.get(name)), None)
        if name is not None:
            yield key, validate_value(key, environ[name], f"${name}", is_text=True), f"${name}"
    if environ.get("MUDROOM_SCREEN_READER", "0") != "0":
        yield "screen", "plain", "$MUDROOM_SCREEN_READER"
    # no-color.org: any value except the empty one counts, and takes precedence.
    if environ.get("NO_COLOR"):
        yield "color", "never", "$NO_COLOR"
        return
    for name in ("FORCE_COLOR", "CLICOLOR_FORCE"):
        if environ.get(name, "0") != "0":
            yield "color", "always", f"${name}"
            return


def list_variables() -> list[str]:
    return [*" ".join(_VARIABLES.values()).split(), *_OTHER_VARIABLES]


def _make_unknown_setting_error(
    key: str, name: str, allowed: tuple[str, ...], origin: str
) -> UsageError:
    if name in SETTING_NAMES:
        return UsageError(
            f"a project file may not set {key!r}, only lower {', '.join(allowed)}",
            where=origin,
            remedy="Put it into your own settings file (`mudroom doctor` names it) or use a flag.",
        )
    return UsageError(f"unknown setting {key!r}", where=origin, remedy=suggest_names(name, allowed))


def _find_line(text: str, key: str) -> int:
    """Find the line that sets a key, counted from 1; 1 if there is none."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip(" \t[\"'").startswith(key):
            return number
    return 1


_CHOICES = {
    "output_format": OUTPUT_FORMATS,
    "color": COLORS,
    "screen": SCREENS,
    "theme": THEMES,
    "notifications": NOTIFICATIONS,
    "sandbox": SANDBOX_MODES,
    "permission_mode": PERMISSION_MODES,
}
_EXPECTED = {
    int: "a whole number from 1",
    float: "a number above 0",
    bool: "true or false",
    str: "text in quotes",
}
_PERCENT = "a whole number from 1 to 100"
_TABLES = {"child_model": ", or a table of agents and models"}
_TYPES = {name: place.field.type for name, place in list_places(Settings).items()}


def validate_value(key: str, value: object, origin: str, *, is_text: bool = False) -> object:
    """Convert a value to its setting's type. `is_text`: the source only has text."""
    if isinstance(value, str):
        value = value.strip()
    kind = _find_kind(_TYPES[key])
    is_strict = kind in (bool, str) and not is_text
    try:
        checked = msgspec.convert(value, _TYPES[key], strict=is_strict)
    except msgspec.ValidationError:
        checked = None
    if isinstance(checked, Mapping):
        if rules := _strip_rules(cast("Mapping[str, str]", checked)):
            return rules
        checked = None
    if checked is None:
        is_percent = key in ("clear_at", "compact_at")
        expected = _PERCENT if is_percent else _EXPECTED[kind] + _TABLES.get(key, "")
        raise UsageError(f"{key} must be {expected}, not {value!r}", where=origin)
    if checked == "":
        remedy = "Leave it out for the default, or give a value."
        raise UsageError(f"{key} is blank", where=origin, remedy=remedy)
    if key in _CHOICES and checked not in _CHOICES[key]:
        remedy = suggest_names(checked, _CHOICES[key])
        raise UsageError(f"{key} cannot be {value!r}", where=origin, remedy=remedy)
    if key == "worker":
        parse_worker(checked, origin)
    return os.path.abspath(os.path.expanduser(checked)) if key == "home" else checked


def _strip_rules(rules: Mapping[str, str]) -> dict[str, str]:
    """Strip a table of rules; none remain if any text is blank."""
    stripped = {agent.strip(): model.strip() for agent, model in rules.items()}
    # Names that differ only in blanks would lose a rule.
    is_whole = len(stripped) == len(rules) and all(map(all, stripped.items()))
    return stripped if is_whole else {}


def _find_kind(annotation: object) -> type:
    """Return the key of _EXPECTED that an annotation contains: int in `PositiveInt | None`."""
    if isinstance(annotation, type) and annotation in _EXPECTED:
        return annotation
    return next(_find_kind(part) for part in get_args(annotation))
