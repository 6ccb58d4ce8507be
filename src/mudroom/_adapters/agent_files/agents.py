"""Loads a project's and a user's agent files, with diagnostics for each file."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, cast

from msgspec import Struct
from msgspec.structs import replace

from ..._core.agents import Agent, Mode
from ..._core.json_values import JsonValue
from . import BUILTIN_AGENTS
from .declared_servers import DeclaredServer
from .fields import AgentDraft, draft_agent, fold_name, normalize_name
from .frontmatter import Entry, parse_document, parse_toml
from .github_files import is_github_file
from .locations import (
    AGENT_LOCATIONS,
    Location,
    PluginFolders,
    list_files,
    list_locations,
    make_part_name,
)
from .prompt_template import fill_variables
from .safe_read import Diagnostic, FileDiagnostics, make_name_clash, read_text
from .skills import Skill, format_preloaded, load_skills

TEMPLATE_DESCRIPTION = "when to use this agent (the only text that its caller reads)"
"""The description written by `mudroom agents new`."""
_NAMED_BY_FILE = ("agents", "opencode", "github")
_RESERVED = ("main", *BUILTIN_AGENTS)


class LoadedAgents(Struct, frozen=True, kw_only=True):
    """The usable agents and skills, highest precedence first, and all diagnostics."""

    agents: tuple[Agent, ...] = ()
    main_agents: tuple[Agent, ...] = ()  # for root runs only
    skills: dict[str, Skill] = {}
    diagnostics: tuple[Diagnostic, ...] = ()
    servers: tuple[DeclaredServer, ...] = ()
    paths: dict[str, str] = {}  # by agent name
    personal_names: frozenset[str] = frozenset()  # of agents from the user's home
    # Files of an untrusted folder's agents, by name, that are unused because a built-in agent or
    # one of the user's has the same name.
    shadowing: Mapping[str, str] = {}


def load_agent_files(
    folder: str,
    *,
    user_home: str | None = None,
    tools: Collection[str],
    plugins: Iterable[PluginFolders] = (),
    trusts_folder: bool = True,
) -> LoadedAgents:
    """Load the agents and skills of a project, the user and plugins.

    The project includes the folders above it in its git repository. Never raises because of a
    file's contents.

    Arguments:
        user_home: None is this process's home, "" leaves it out.
        tools: names of all tools; an agent file that names another gets a warning.
        trusts_folder: false if the project's agents and skills must not replace built-in ones or
            the user's own.
    """
    user_home = os.path.expanduser("~") if user_home is None else user_home
    plugins = tuple(plugins)
    skills = load_skills(folder, user_home=user_home, plugins=plugins, trusts_folder=trusts_folder)
    diagnostics = list(skills.diagnostics)
    found = _Agents(skills.by_name, trusts_folder=trusts_folder)
    declared_paths: set[str] = set()
    locations = list_locations(
        AGENT_LOCATIONS, "agents", folder, user_home, plugins, trusts_folder=trusts_folder
    )
    for location in locations:
        for path, declared in _list_agent_files(location, declared_paths, diagnostics):
            diagnostics += found.load(path, location, tools, declared)
    return LoadedAgents(
        agents=tuple(found.agents),
        main_agents=tuple(found.main_agents),
        skills=skills.by_name,
        diagnostics=tuple(diagnostics),
        servers=tuple(found.servers),
        paths=found.paths,
        personal_names=frozenset(found.personal_names),
        shadowing=found.shadowing,
    )


class _Agents:
    """Loads agents one by one; among those with the same name, the first is used."""

    def __init__(self, skills: dict[str, Skill], *, trusts_folder: bool) -> None:
        self.agents: list[Agent] = []
        self.main_agents: list[Agent] = []
        self.servers: list[DeclaredServer] = []
        self.paths: dict[str, str] = {}
        self.personal_names = set[str]()
        self.shadowing: dict[str, str] = {}
        self._trusts_folder = trusts_folder
        self._skills = skills
        self._first_paths: dict[str, str] = {}

    def load(
        self, path: str, location: Location, tools: Collection[str], declared: Mapping[str, Entry]
    ) -> list[Diagnostic]:
        agent, draft = load_agent_file(
            path,
            location.kind.dialect,
            boundary=location.boundary,
            tools=tools,
            skills=_list_near_skills(self._skills, location.plugin),
            folder=location.folder,
            declared=declared,
        )
        if agent is None:
            return draft.diagnostics.items
        agent = _fit_to_location(agent, location)
        if draft.servers and location.plugin:
            draft.diagnostics.add_note(1, "MCP servers of an agent of a plugin are not used")
        if self._is_shadowing(agent.name, location):
            self.shadowing.setdefault(agent.name, path)
            draft.diagnostics.add_note(1, "not used before you trust the folder: its name is taken")
            return draft.diagnostics.items
        first_path = self._first_paths.setdefault(fold_name(agent.name), path)
        if first_path != path:
            return [*draft.diagnostics.items, make_name_clash(path, first_path, agent.name)]
        (self.main_agents if draft.is_main else self.agents).append(agent)
        self.paths[agent.name] = path
        if not location.plugin:
            self.servers += [
                DeclaredServer(agent.name, name, entry, path, location.kind.dialect, location.place)
                for name, entry in draft.servers.items()
                if entry is not None
            ]
        if location.is_personal:
            self.personal_names.add(agent.name)
        return draft.diagnostics.items

    def _is_shadowing(self, name: str, location: Location) -> bool:
        if self._trusts_folder or location.is_personal:
            return False
        own = (*_RESERVED, *self.personal_names)
        return fold_name(name) in set(map(fold_name, own))


def _fit_to_location(agent: Agent, location: Location) -> Agent:
    if not location.plugin:
        return agent
    # A plugin may make its agent read-only, but not give it more rights.
    mode = agent.mode if agent.mode is Mode.PLAN else None
    return replace(
        agent,
        name=make_part_name(location, agent.name),
        instructions=fill_variables(agent.instructions, location.variables),
        mode=mode,
    )


def _list_near_skills(skills: dict[str, Skill], plugin: str) -> dict[str, Skill]:
    # A plugin's agent may use the short names of the plugin's skills.
    if not plugin:
        return skills
    prefix = f"{plugin}:"
    near = {name: skill for name, skill in skills.items() if name.startswith(prefix)}
    return {**skills, **{name.removeprefix(prefix): skill for name, skill in near.items()}}


def _list_agent_files(
    location: Location, declared_paths: set[str], diagnostics: list[Diagnostic]
) -> Iterator[tuple[str, Mapping[str, Entry]]]:
    """Yield agent files, each with the keys declared for it in a `config.toml`."""
    for path in list_files(location, diagnostics):
        if location.kind.suffix == CONFIG_NAME:
            findings = FileDiagnostics(path)
            declared = read_declared_agents(path, location.boundary, findings)
            diagnostics += findings.items
            declared_paths.update(declared)
            yield from declared.items()
        elif path not in declared_paths:
            yield path, {}


def load_agent_file(
    path: str,
    dialect: str = "agents",
    *,
    tools: Collection[str],
    boundary: str = "",
    skills: dict[str, Skill] | None = None,
    folder: str = "",
    declared: Mapping[str, Entry] | None = None,
) -> tuple[Agent | None, AgentDraft]:
    """Load an agent file. The agent is None if unusable; the draft says why.

    Arguments:
        dialect: the program the file is written for; see `locations.AGENT_LOCATIONS`.
        boundary: see `safe_read.read_text`.
        folder: the folder of agent files; names of opencode agents include the path below it.
        declared: keys declared outside the file; the file's own keys override them.
    """
    diagnostics = FileDiagnostics(path)
    text = read_text(path, boundary, diagnostics)
    if text is None:
        return None, AgentDraft(diagnostics, tools)
    body = ""
    body_line = 1
    if path.endswith(".toml"):
        entries = parse_toml(text, diagnostics)
    else:
        entries, body, body_line = _parse_markdown(text, diagnostics)
    if entries is None:
        return None, AgentDraft(diagnostics, tools)
    entries = {**(declared or {}), **entries}
    draft = draft_agent(entries, diagnostics, tools)
    if body:
        draft.fields["instructions"] = body
    is_named_by_file = dialect in _NAMED_BY_FILE or is_github_file(path)
    if dialect == "opencode" or (is_named_by_file and "name" not in draft.fields):
        name = os.path.relpath(path, folder or os.path.dirname(path))
        draft.fields["name"] = normalize_name(name.rpartition(".")[0].removesuffix(".agent"))
    return _finish(draft, entries, body_line, skills or {}), draft


def parse_agent_keys(
    keys: dict[str, Any], name: str, path: str, tools: Collection[str]
) -> tuple[Agent | None, AgentDraft]:
    entries = {key: Entry(value, 1) for key, value in keys.items()}
    draft = draft_agent(entries, FileDiagnostics(path), tools)
    draft.fields["name"] = normalize_name(name)
    return _finish(draft, {}, 1, {}), draft


def _finish(
    draft: AgentDraft, entries: dict[str, Entry], body_line: int, skills: dict[str, Skill]
) -> Agent | None:
    diagnostics = draft.diagnostics
    if not draft.fields.get("name"):
        diagnostics.add_error(1, "no name")
    if not draft.fields.get("description"):
        diagnostics.add_error(1, "no description: a model cannot know when to call the agent")
    if draft.fields.get("description") == TEMPLATE_DESCRIPTION:
        diagnostics.add_note(
            entries["description"].line,
            "the description is that of the template: say when to use the agent",
        )
    if not draft.fields.get("instructions"):
        diagnostics.add_error(body_line, "no instructions: say below what the agent must do")
    if draft.unused_reason:
        diagnostics.add_note(1, f"not used: {draft.unused_reason}")
    if diagnostics.has_errors or draft.unused_reason:
        return None
    agent = draft.build_agent()
    line = entries["skills"].line if "skills" in entries else 1
    for name in draft.skills:
        if name not in skills:
            diagnostics.add_warning(line, f"unknown skill {name!r}")
    if loaded := [skills[name] for name in draft.skills if name in skills]:
        text = f"{agent.instructions}\n\n{format_preloaded(loaded)}"
        return replace(agent, instructions=text)
    return agent


def _parse_markdown(
    text: str, diagnostics: FileDiagnostics
) -> tuple[dict[str, Entry] | None, str, int]:
    document = parse_document(text, diagnostics)
    if document is not None:
        return document.entries, document.body, document.body_line
    if not diagnostics.items:
        diagnostics.add_note(1, "no frontmatter: treated as documentation")
    return None, "", 1


CONFIG_NAME = "config.toml"


def read_declared_agents(
    path: str, boundary: str, diagnostics: FileDiagnostics
) -> dict[str, dict[str, Entry]]:
    """Read the name and description of each agent with a file, by the file's path."""
    text = read_text(path, boundary, diagnostics)
    entries = parse_toml(text, diagnostics) if text is not None else None
    agents = entries.get("agents") if entries else None
    if agents is None or not isinstance(agents.value, dict):
        return {}
    declared: dict[str, dict[str, Entry]] = {}
    for name, value in agents.value.items():
        # The same table holds settings for all agents, such as `max_threads`.
        if not isinstance(value, dict):
            continue
        file = value.get("config_file")
        if not isinstance(file, str) or not file:
            diagnostics.add_warning(agents.line, f"agents.{name} has no config_file; not used")
            continue
        agent_path = os.path.normpath(os.path.join(os.path.dirname(path), file))
        keys: dict[str, JsonValue] = {"name": name, "description": value.get("description")}
        declared[agent_path] = {
            key: Entry(cast("JsonValue", text), 1) for key, text in keys.items() if text
        }
    return declared
