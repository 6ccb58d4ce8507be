"""Loads a folder's MCP servers, hooks and slash commands' rights, as the settings allow them."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import TYPE_CHECKING

from ...._adapters.agent_files import may_declare_servers, may_have_rights
from ...._adapters.agent_files.locations import SOURCES, Places, find_places
from ...._adapters.integrations.file_names import has_program_files
from ...._session.config import Settings, find_user_file
from ..load_permissions import is_trusted

if TYPE_CHECKING:
    from ...._adapters.integrations.mcp_servers.files import ServerEntry
    from ...._adapters.integrations.usable_programs import UsablePrograms

# Programs with their own form of server configuration, also in agent files.
_OWN_FORMS = ("codex", "gemini")
# The user's servers, in a file next to mudroom's user settings.
OWN_SERVERS = "mcp.json"


def find_own_servers() -> str:
    return str(find_user_file(os.environ).with_name(OWN_SERVERS))


def load_programs(
    settings: Settings, cwd: str, sources: Collection[str] = SOURCES
) -> UsablePrograms | None:
    """Load the programs that files declare; None if there is no such file."""
    places = find_places(sources, cwd, os.environ.get("HOME", ""))
    user_home = places.user_home
    own_file = find_own_servers() if "user" in sources else ""
    plugin_dirs = list_plugin_dirs(settings)
    has_agent_servers = may_declare_servers(cwd, user_home)
    has_rights = may_have_rights(cwd, user_home)
    # Most folders have no such files. First check that any exist, because reading them imports a
    # lot.
    has_files = has_agent_servers or has_program_files(cwd, user_home, own_file)
    if not (plugin_dirs or has_files or has_rights):
        return None
    from ...._adapters.integrations.usable_programs import load_usable_programs

    # In a file, the same setting covers agents of all folders: no setting may start programs that
    # the user has not seen.
    trusts_all = settings.trust and settings.get_origin("trust") == "flag"
    programs = load_usable_programs(
        cwd,
        home=settings.home,
        user_home=user_home,
        environ=os.environ,
        own_file=own_file,
        plugin_dirs=plugin_dirs,
        agent_servers=_load_agent_servers(settings, cwd, places) if has_agent_servers else (),
        trusts_all=trusts_all,
    )
    if tuple(sources) != SOURCES:
        programs = programs.select(
            reads_project=bool(places.folder),
            reads_local=bool(places.folder) and places.reads_local,
        )
    if not (has_rights or any(plugin.place for plugin in programs.plugins)):
        return programs
    from ..prompt_files import list_rights

    return programs.add_prompts(
        list_rights(places, programs.plugins), settings.home, trusts_all=trusts_all
    )


def _load_agent_servers(settings: Settings, cwd: str, places: Places) -> list[ServerEntry]:
    from ...._adapters.agent_files import load_agent_files
    from ...._adapters.integrations.mcp_servers.files import ServerEntry
    from ...._session.agent_catalog import KNOWN_TOOLS

    # The session reads the files again and reports their problems.
    declared = load_agent_files(
        places.folder,
        user_home=places.user_home,
        tools=KNOWN_TOOLS,
        trusts_folder=is_trusted(settings, cwd),
    ).servers
    return [
        ServerEntry(
            each.name,
            each.entry,
            each.path,
            each.dialect if each.dialect in _OWN_FORMS else "claude",
            "agent",
            each.place,
            each.agent,
        )
        for each in declared
    ]


def list_plugin_dirs(settings: Settings) -> list[str]:
    """List the folders of --plugin-dir; a relative one is below the current folder."""
    return [folder for folder in settings.plugin_dirs.split(os.pathsep) if folder]


def list_server_names(programs: UsablePrograms | None) -> list[str]:
    return [spec.name for spec in programs.servers] if programs else []


def require_programs(settings: Settings, cwd: str) -> UsablePrograms:
    from ...._adapters.integrations.usable_programs import UsablePrograms

    return load_programs(settings, cwd) or UsablePrograms()
