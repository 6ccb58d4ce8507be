"""Creates sessions from settings: the only place that turns settings into session options."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ..._adapters.integrations.mcp_servers.spec import ServerSpec
from ..._adapters.integrations.tracing.spec import Tracing
from ..._adapters.models.providers import choose_default_model
from ..._core.agents import Agent
from ..._core.budgets import Budget
from ..._core.notices import Notice
from ..._platform.git_folders import list_project_folders
from ..._session.config import Settings
from ..._session.options import SessionOptions, gather_options
from ..._session.session import Session
from .load_permissions import LoadedPermissions, is_trusted
from .session_start import NEW_SESSION, SessionStart
from .user_store import open_store

if TYPE_CHECKING:
    from ..._adapters.integrations.usable_programs import UsablePrograms


# Claude Code's settings files in a folder, highest precedence first.
CLAUDE_FILES = (".claude/settings.local.json", ".claude/settings.json")


def create_session(
    settings: Settings,
    cwd: str,
    loaded: LoadedPermissions,
    start: SessionStart = NEW_SESSION,
    *,
    programs: UsablePrograms | None = None,
    **options: Any,
) -> Session:
    """Create a session without opening it.

    `options`, by their flat names, replace those from the settings.
    """
    notices = list(loaded.notices)
    given = tuple(options)
    if programs:
        notices += programs.notices
        options = {
            "mcp_servers": programs.servers,
            "hook_programs": programs.hooks,
            "plugins": programs.plugins,
            **options,
        }
        if programs.plugins:
            from ..._adapters.integrations.plugins.programs import make_data_folders

            make_data_folders(programs.plugins)
    of_settings = make_session_options(settings, cwd, loaded, notices, start)
    # Servers from --agents belong to single agents, and are used besides those from files.
    servers = [*of_settings["mcp_servers"], *options.get("mcp_servers", ())]
    options = {**of_settings, **options, "mcp_servers": servers}
    session = Session(**gather_options(options, SessionOptions()))
    # Of the settings, only the flags were chosen by this command line.
    flags = {name for name, origin in settings.origins.items() if origin == "flag"}
    # The session works in the folder whose permissions and settings it has, even if it was recorded
    # in another.
    session.chosen_options = frozenset({*flags, *given, "cwd"})
    session.start_source = start.source
    session.notices += (Notice("unused", text) for text in notices)
    return session


def make_session_options(
    settings: Settings,
    cwd: str,
    loaded: LoadedPermissions,
    notices: list[str],
    start: SessionStart = NEW_SESSION,
) -> dict[str, Any]:
    """Make the session options for these settings, by their flat names.

    Settings named like a session option are passed on, and so are groups; only the others are
    listed here. A notice is added for each unused part of a setting. Raises UsageError for unusable
    agents.
    """
    agents: list[Agent] = []
    servers: list[ServerSpec] = []
    if settings.agents:
        from .parse_json_flags import parse_inline_agents

        agents, servers = parse_inline_agents(settings.agents, cwd, notices)
    output_style, style_origin = _choose_output_style(settings, cwd, notices)
    return {
        **settings.to_options(),
        "output_style": output_style,
        "origins": {
            "output_style": style_origin,
            "child_model": settings.get_persistent_origin("child_model"),
        },
        "resume": start.resume,
        "fork": start.fork,
        "id": start.id,
        "permissions": loaded.permissions,
        "trusted": is_trusted(settings, cwd),
        "agents": agents,
        "mcp_servers": servers,
        "agent_files": True,
        "cwd": cwd,
        "prompt_budget": to_budget(settings),
        "prices": True,
        "environ": os.environ,
        "tracing": _choose_tracing(settings),
    }


def _choose_output_style(settings: Settings, cwd: str, notices: list[str]) -> tuple[str, str]:
    """Find the output style's name and its file, "" for none."""
    if settings.output_style:
        return settings.output_style, settings.get_persistent_origin("output_style")
    user_home = os.environ.get("HOME", "")
    home = os.path.realpath(user_home) if user_home else ""
    folders = [*list_project_folders(cwd), *([home] if home else [])]
    paths = [os.path.join(folder, name) for folder in folders for name in CLAUDE_FILES]
    for path in dict.fromkeys(filter(os.path.isfile, paths)):
        is_personal = os.path.dirname(os.path.dirname(path)) == home
        from ..._adapters.integrations.config_files import read_json  # slow to import

        # Another reader reports a file that is not JSON.
        name = read_json(path, []).get("outputStyle")
        if name is not None and not (is_personal or is_trusted(settings, cwd)):
            # A style replaces instructions, so a stranger's file must not choose one.
            notices.append(
                f"{path}: outputStyle is not used: you have not trusted this folder."
                " To use it: mudroom trust add, or --trust for one run."
            )
        elif isinstance(name, str) and name.strip():
            return name.strip(), path
        elif name is not None:
            notices.append(f"{path}: outputStyle is not used: it is not the name of a style")
    return "", ""


def _choose_tracing(settings: Settings) -> Tracing | None:
    """Choose how to export traces; None without the setting and an address for them."""
    if settings.trace:
        return Tracing()
    # Nearly every start returns here, before importing anything.
    if not any(name.startswith("OTEL_") for name in os.environ):
        return None
    from ..._adapters.integrations.tracing.variables import explain_off, has_address, is_installed

    if not has_address(os.environ) or explain_off(os.environ) or not is_installed():
        return None
    return Tracing()


def has_model(settings: Settings) -> bool:
    return settings.model != "auto" or choose_default_model(os.environ) is not None


async def name_session(session: Session, home: str, start: SessionStart) -> None:
    if start.name:
        await open_store(home).rename(session.id, start.name)


def to_budget(settings: Settings) -> Budget:
    """Return the limits of one prompt, child runs included."""
    seconds = None if settings.max_minutes is None else settings.max_minutes * 60
    return Budget(
        turns=settings.max_turns,
        seconds=seconds,
        total_tokens=settings.max_tokens,
        usd=settings.max_budget_usd,
    )
