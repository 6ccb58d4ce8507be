"""All agent files of a project and a person, read: the agents, and everything there is to say about the files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from .._core.agents import Agent
from .diagnostics import Diagnostic, FileDiagnostics
from .fields import AgentDraft, draft_agent, fold_name, normalize_name
from .frontmatter import Entry, parse_document
from .locations import AGENT_LOCATIONS, find_locations
from .safe_read import find_files, read_text
from .skills import Skill, format_preloaded, load_skills

_NAMED_BY_FILE = ("agents", "opencode")


class LoadedAgents(Struct, frozen=True, kw_only=True):
    """What was found.

    Arguments:
        agents: for `task` and as the root, the ones that go first first. mains: meant as the root only.
        skills: by name. findings: all remarks, file by file.
        paths: name of an agent -> its file. personal: names of those from the person's home, not the project's.
    """

    agents: tuple[Agent, ...] = ()
    main_agents: tuple[Agent, ...] = ()
    skills: dict[str, Skill] = {}
    diagnostics: tuple[Diagnostic, ...] = ()
    paths: dict[str, str] = {}
    personal_names: frozenset[str] = frozenset()


def load_agent_files(
    folder: str, *, home: str | None = None, tools: Iterable[str] = ()
) -> LoadedAgents:
    """The agents and skills of a project's folder, of the folders above it up to its git root, and of a person.

    Arguments:
        folder: of the project. home: the person's; None is that of this process, "" leaves it out.
        tools: names of tools there are beside the built-in ones.

    Never raises for what a file says.
    """
    home = os.path.expanduser("~") if home is None else home
    skills = load_skills(folder, home=home)
    findings = list(skills.diagnostics)
    taken: dict[str, str] = {}
    agents: list[Agent] = []
    mains: list[Agent] = []
    paths: dict[str, str] = {}
    personal: set[str] = set()
    for place in find_locations(AGENT_LOCATIONS, folder, home):
        for path in find_files(place.folder, place.kind.suffix, recursive=place.kind.is_recursive):
            agent, draft = load_agent_file(
                path, place.kind.dialect, within=place.within, tools=tools, skills=skills.by_name
            )
            if (
                agent is not None
                and (first := taken.setdefault(fold_name(agent.name), path)) != path
            ):
                draft.diagnostics.add_warning(
                    1, f"not used: {first} is called {agent.name!r}, too, and goes before it"
                )
            elif agent is not None:
                (mains if draft.is_main else agents).append(agent)
                paths[agent.name] = path
                personal |= {agent.name} if place.is_personal else set()
            findings += draft.diagnostics.items
    return LoadedAgents(
        agents=tuple(agents),
        main_agents=tuple(mains),
        skills=skills.by_name,
        diagnostics=tuple(findings),
        paths=paths,
        personal_names=frozenset(personal),
    )


def load_agent_file(
    path: str,
    dialect: str = "agents",
    *,
    within: str = "",
    tools: Iterable[str] = (),
    skills: dict[str, Skill] | None = None,
) -> tuple[Agent | None, AgentDraft]:
    """The agent in a file, None if it cannot be used; its draft carries the remarks.

    Arguments:
        dialect: whose file it is, see `places.KINDS`. within: see `files.text_of`. tools: see `agents_from`. skills: there are.
    """
    notes = FileDiagnostics(path)
    text = read_text(path, within, notes)
    if text is None:
        return None, AgentDraft(notes, tools)
    entries, body, line = _toml(text, notes) if path.endswith(".toml") else _markdown(text, notes)
    if entries is None:
        return None, AgentDraft(notes, tools)
    draft = draft_agent(entries, notes, tools)
    if body:
        draft.fields["instructions"] = body
    stem = normalize_name(os.path.basename(path).rpartition(".")[0])
    if (dialect in _NAMED_BY_FILE and "name" not in draft.fields) or dialect == "opencode":
        draft.fields["name"] = stem
    return _complete(draft, entries, line, skills or {}), draft


def parse_agent_keys(
    keys: dict[str, Any], name: str, path: str, tools: Iterable[str] = ()
) -> tuple[Agent | None, AgentDraft]:
    """The agent that a map of keys describes, as `agent_of`. `path`: what findings name as its place."""
    draft = draft_agent(
        {key: Entry(value, 1) for key, value in keys.items()}, FileDiagnostics(path), tools
    )
    draft.fields["name"] = normalize_name(name)
    return _complete(draft, {}, 1, {}), draft


def _complete(
    draft: AgentDraft, entries: dict[str, Entry], line: int, skills: dict[str, Skill]
) -> Agent | None:
    """The drafted agent, if nothing is missing."""
    notes, fields = draft.diagnostics, draft.fields
    for key, why in (
        ("name", "no name"),
        ("description", "no description: nobody would know when to call it"),
    ):
        if not fields.get(key):
            notes.add_error(1, why)
    if not fields.get("instructions"):
        notes.add_error(line, "no instructions: nothing says what the agent is to do")
    if draft.unused_reason:
        notes.add_note(1, f"not used: {draft.unused_reason}")
    if notes.has_errors or draft.unused_reason:
        return None
    agent, at = draft.build_agent(), entries["skills"].line if "skills" in entries else 1
    for name in draft.skills:
        if name not in skills:
            notes.add_warning(at, f"no skill is called {name!r}")
    if loaded := [skills[name] for name in draft.skills if name in skills]:
        agent = replace(agent, instructions=f"{agent.instructions}\n\n{format_preloaded(loaded)}")
    return agent


def _markdown(text: str, notes: FileDiagnostics) -> tuple[dict[str, Entry] | None, str, int]:
    read = parse_document(text, notes)
    if read is not None:
        return read.entries, read.body, read.body_line
    if not notes.has_errors:
        notes.add_note(1, "no head, so it is taken for documentation")
    return None, "", 1


def _toml(text: str, notes: FileDiagnostics) -> tuple[dict[str, Entry] | None, str, int]:
    import tomllib

    try:
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        line = re.search(r"at line (\d+)", str(error))
        notes.add_error(int(line[1]) if line else 1, f"not TOML: {error}")
        return None, "", 1
    return {key: Entry(value, _line(text, key)) for key, value in table.items()}, "", 1


def _line(text: str, key: str) -> int:
    found = re.search(rf"""^[ \t]*\[*[ \t]*["']?{re.escape(key)}\b""", text, re.MULTILINE)
    return text.count("\n", 0, found.start()) + 1 if found else 1
