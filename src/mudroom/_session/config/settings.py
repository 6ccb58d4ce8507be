"""Settings of the command line: their names, types and defaults."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from ..._core.agents import Mode
from ..options import PositiveInt, SessionOptions, SharedOptions

OUTPUT_FORMATS = ("text", "json", "stream-json")
COLORS = ("auto", "always", "never")
SCREENS = ("auto", "plain")
THEMES = ("auto", "dark", "light")
NOTIFICATIONS = ("auto", "bell", "osc9", "osc777", "off")
PERMISSION_MODES = tuple(mode.value for mode in Mode)

# A finite number above 0.
PositiveFloat = Annotated[float, Meta(gt=0, le=1e12)]


class Settings(SharedOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one command line. Fields that `SessionOptions` also has become session options.

    Arguments:
        model: model string, or "auto" for the first provider that has a key.
        max_turns: maximum number of model calls for a prompt; None means no limit.
        max_minutes, max_tokens, max_budget_usd: limits of a prompt and of all runs below it. None
            means no limit. max_tokens counts input and output together.
        agent: name of the agent that runs the prompts; "" is the built-in one.
        agents: more agents, as JSON.
        json_schema: JSON Schema of the answer, as JSON or as a path.
        output_format: one of OUTPUT_FORMATS.
        color: one of COLORS.
        screen: one of SCREENS. "plain" never moves the cursor, for screen readers.
        theme: one of THEMES; "auto" asks the terminal for its background.
        vi_keys: edit the input line with the keys of vi.
        notifications: one of NOTIFICATIONS: how the terminal is notified of a question or an end.
        notify_after: seconds of work before the terminal is notified of a question or an end.
        terminal_title: show the folder and the state in the terminal's title.
        status_line: command that prints the line below the prompt; "" for the built-in line.
        store: address of a PostgreSQL database for the sessions; None keeps them in files.
        sandbox: one of SANDBOX_MODES.
        permission_mode: one of PERMISSION_MODES; "" uses the mode of the settings files.
        allowed_tools, disallowed_tools: rules, separated by commas.
        trust: trust the files of this folder in this session only.
        plugin_dirs: folders of plugins, separated as in PATH.
        trace: export traces of sessions with OpenTelemetry.
        annotate: write what GitHub Actions shows of a step: annotations to stderr, and a summary to
            the file of GITHUB_STEP_SUMMARY.
        strict_merges: the exit code tells that work of children did not land.
        retention_days: days that a session is kept after its last event; None keeps it forever.
        origins: the file, variable or flag that each setting comes from. Defaults are left out.
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
        """Return the file or variable that a setting comes from, "" for a flag or the default."""
        origin = self.origins.get(name, "")
        return "" if origin == "flag" else origin

    def to_options(self) -> dict[str, Any]:
        """Return the settings that are session options of the same name and type."""
        # Here `agents` is JSON, there a list of agents.
        names = set(self.__struct_fields__) & set(SessionOptions.__struct_fields__) - {"agents"}
        return {name: getattr(self, name) for name in names}


SETTING_NAMES = tuple(
    name
    for name in Settings.__struct_fields__
    if name not in ("origins", "agents", "json_schema", "plugin_dirs")
)
