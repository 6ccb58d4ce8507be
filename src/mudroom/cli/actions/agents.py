"""`mudroom agents`: the agents there are, one of them shown, a new one begun, files checked; and what flags say about agents."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import msgspec

from ... import agent_files
from ..._core.agents import Agent
from ...agent_files import Diagnostic, LoadedAgents, Severity
from ...errors import MudroomError, UnknownName, UsageError
from ...projections.safe_text import sanitize, sanitize_line

INLINE_ORIGIN = "--agents"
"""What findings name as the place of agents given on the command line."""

_TEMPLATE = """\
---
name: {name}
description: say here when to hand work to it; the agent that calls it reads nothing else
tools: read, glob, grep
# model: inherit            a model of its own
# budget: {{turns: 20}}       also seconds, input_tokens, output_tokens, total_tokens, children, depth
# outputs: {{answer: what it must emit}}
# skills: []                loaded from the start
# context: full             of AGENTS.md and the like: none, project, or full
---
You are a focused agent who does one piece of work for a colleague: say here which, and how.
Nobody can answer questions: never ask for clarification, work with what you have.
End with a clear, self-contained summary of findings: only this last message is read.
"""


def load_agent_files(cwd: str, environ: Mapping[str, str]) -> LoadedAgents:
    """All agent files and skills that hold in a folder."""
    return agent_files.load_agent_files(cwd, home=environ.get("HOME", ""))


def collect_findings(cwd: str, environ: Mapping[str, str]) -> list[Diagnostic]:
    """All there is to say about agent files, skills and context files that hold in a folder."""
    context = agent_files.load_context_files(cwd, home=environ.get("HOME", ""))
    return [*load_agent_files(cwd, environ).diagnostics, *context.diagnostics]


def print_agents(cwd: str, environ: Mapping[str, str], *, as_json: bool) -> int:
    """Print the agents and skills there are, and how many findings; the exit code."""
    here = load_agent_files(cwd, environ)
    rows = list(_rows(here))
    if as_json:
        skills = [
            {"name": skill.name, "description": skill.description, "path": skill.path}
            for skill in here.skills.values()
        ]
        findings = msgspec.to_builtins(here.diagnostics)
        print(
            json.dumps(
                {"agents": rows, "skills": skills, "findings": findings},
                ensure_ascii=False,
                indent=2,
            )
        )
        return 0
    for row in rows:
        print(
            sanitize(
                f"{row['name']:<18} {sanitize_line(row['description'])}\n{'':<18} {row['path'] or 'built in'}"
            )
        )
    for skill in here.skills.values():
        print(
            sanitize(
                f"{skill.name:<18} skill: {sanitize_line(skill.description)}\n{'':<18} {skill.path}"
            )
        )
    if count := agent_files.count_by_severity(here.diagnostics):
        print(f"{count}: mudroom agents check shows them.")
    return 0


def _rows(here: LoadedAgents) -> Iterator[dict[str, Any]]:
    named = {agent.name for agent in (*here.agents, *here.main_agents)}
    builtin = [
        agent_files.load_builtin_agent(name)
        for name in agent_files.BUILTIN_AGENTS
        if name not in named
    ]
    for agent in (*here.agents, *here.main_agents, *builtin):
        yield {
            "name": agent.name,
            "description": agent.description,
            "model": agent.model,
            "tools": None if agent.tools is None else list(agent.tools),
            "root_only": agent in here.main_agents,
            "path": here.paths.get(agent.name, ""),
        }


def print_agent(cwd: str, environ: Mapping[str, str], name: str) -> int:
    """Print one agent as it would run; the exit code. Raises UnknownName."""
    here = load_agent_files(cwd, environ)
    agents = {
        agent.name: agent
        for agent in (
            *map(agent_files.load_builtin_agent, agent_files.BUILTIN_AGENTS),
            *here.agents,
            *here.main_agents,
        )
    }
    agent = {agent_files.fold_name(known): agent for known, agent in agents.items()}.get(
        agent_files.fold_name(name)
    )
    if agent is None:
        raise UnknownName("agent", name, agents)
    path = here.paths.get(agent.name, "")
    for key, value in _facts(agent, path):
        print(sanitize(f"{key + ':':<13} {value}"))
    print(f"\n{sanitize(agent.instructions)}")
    mine = [finding for finding in here.diagnostics if finding.path == path]
    for finding in mine:
        print(sanitize(f"{finding}"))
    return 0


def _facts(agent: Agent, path: str) -> Iterator[tuple[str, str]]:
    yield "name", agent.name
    yield "file", path or "built in"
    yield "description", agent.description
    yield "model", agent.model
    yield (
        "tools",
        "all of its parent's but task" if agent.tools is None else ", ".join(agent.tools) or "none",
    )
    if agent.mode is not None:
        yield "mode", agent.mode
    if agent.child_tools is not None:
        yield "child tools", ", ".join(agent.child_tools) or "none"
    if agent.children is not None:
        yield "may call", ", ".join(agent.children) or "nobody"
    limits = [
        f"{name} {value:g}"
        for name in agent.budget.__struct_fields__
        if (value := getattr(agent.budget, name)) is not None
    ]
    yield "budget", ", ".join(limits) or "its caller's"
    if agent.outputs is not None:
        yield "outputs", ", ".join(agent.outputs) or "any"
    yield "context", agent.context


def create_agent_file(cwd: str, name: str) -> int:
    """Write a new agent's file below a folder, for a person to fill in; the exit code. Raises UsageError if there is one."""
    plain = agent_files.normalize_name(name)
    if not plain:
        raise UsageError(f"{name!r} is no name", remedy="Use letters and hyphens.")
    path = os.path.join(cwd, ".agents", "agents", f"{plain}.md")
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "x", encoding="utf-8") as file:
            file.write(_TEMPLATE.format(name=plain))
    except FileExistsError:
        raise UsageError(
            "the file is there already", where=path, remedy="Choose another name, or edit it."
        ) from None
    except OSError as error:
        raise MudroomError(f"cannot be written: {error.strerror}", where=path) from None
    print(path)
    return 0


def check_agent_files(cwd: str, environ: Mapping[str, str], paths: Iterable[str]) -> int:
    """Print what is wrong with files, those that hold in a folder if none is named; 1 if one of them cannot be used."""
    named = list(paths)
    findings = (
        [finding for path in named for finding in _checked(path)]
        if named
        else collect_findings(cwd, environ)
    )
    for finding in sorted(findings, key=lambda finding: (finding.path, finding.line)):
        print(sanitize(f"{finding}"))
    print(agent_files.count_by_severity(findings) or "Nothing is wrong.")
    return int(any(finding.severity is Severity.ERROR for finding in findings))


def _checked(path: str) -> list[Diagnostic]:
    if not os.path.exists(path):
        raise UsageError("no such file or folder", where=path)
    files = agent_files.find_files(path, "") if os.path.isdir(path) else [path]
    findings: list[Diagnostic] = []
    for file in files:
        if os.path.basename(file) == "SKILL.md":
            findings += agent_files.load_skill(file)[1]
        elif file.endswith((".md", ".toml")) and not (
            os.path.isdir(path) and _of_a_skill(file, path)
        ):
            dialect = next(
                (
                    name
                    for name in ("opencode", "codex", "claude", "gemini", "qwen", "goose")
                    if f".{name}/" in file
                ),
                "agents",
            )
            findings += agent_files.load_agent_file(os.path.abspath(file), dialect)[
                1
            ].diagnostics.items
    return findings


def _of_a_skill(file: str, top: str) -> bool:
    folder = os.path.dirname(file)
    while folder.startswith(top):
        if os.path.exists(os.path.join(folder, "SKILL.md")):
            return True
        folder = os.path.dirname(folder)
    return False


def parse_inline_agents(text: str) -> list[Agent]:
    """The agents of `--agents`: a JSON object of name -> keys as in agent files. Raises UsageError for what cannot be used."""
    agents: list[Agent] = []
    for name, keys in _parse_json_object(text, INLINE_ORIGIN).items():
        if not isinstance(keys, dict):
            raise UsageError(
                f"{name} is no object of keys",
                where=INLINE_ORIGIN,
                remedy='Write {"name": {"description": …, "prompt": …}}.',
            )
        agent, draft = agent_files.parse_agent_keys(
            cast("dict[str, Any]", keys), name, INLINE_ORIGIN
        )
        if agent is None:
            why = next(
                (
                    finding.text
                    for finding in draft.diagnostics.items
                    if finding.severity is Severity.ERROR
                ),
                draft.unused_reason,
            )
            raise UsageError(f"agent {name}: {why}", where=INLINE_ORIGIN)
        agents.append(agent)
    return agents


def load_json_schema(given: str) -> dict[str, Any]:
    """The JSON Schema of `--json-schema`: JSON, or the name of a file of it. Raises UsageError."""
    if given.lstrip().startswith("{"):
        return _parse_json_object(given, "--json-schema")
    try:
        with open(given, encoding="utf-8") as file:
            return _parse_json_object(file.read(), given)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot be read: {getattr(error, 'strerror', None) or error}",
            where=f"--json-schema {given}",
        ) from None


def _parse_json_object(text: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"not JSON: {error}", where=where) from None
    if not isinstance(value, dict):
        raise UsageError("a JSON object is wanted", where=where)
    return cast("dict[str, Any]", value)
