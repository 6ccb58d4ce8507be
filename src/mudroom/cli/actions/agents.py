"""`mudroom agents`: the agents there are, one of them shown, a new one begun, files checked; and what flags say about agents."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, cast

import msgspec

from ... import agent_files
from ..._core.agents import Agent
from ...agent_files import Finding, Found, Severity
from ...errors import MudroomError, UnknownName, UsageError
from ...projections.safe_text import clean, one_line

INLINE = "--agents"
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


def found(cwd: str, environ: Mapping[str, str]) -> Found:
    """All agent files and skills that hold in a folder."""
    return agent_files.agents_from(cwd, home=environ.get("HOME", ""))


def remarks(cwd: str, environ: Mapping[str, str]) -> list[Finding]:
    """All there is to say about agent files, skills and context files that hold in a folder."""
    context = agent_files.context_from(cwd, home=environ.get("HOME", ""))
    return [*found(cwd, environ).findings, *context.findings]


def listing(cwd: str, environ: Mapping[str, str], *, as_json: bool) -> int:
    """Print the agents and skills there are, and how many findings; the exit code."""
    here = found(cwd, environ)
    rows = list(_rows(here))
    if as_json:
        skills = [
            {"name": skill.name, "description": skill.description, "path": skill.path}
            for skill in here.skills.values()
        ]
        findings = msgspec.to_builtins(here.findings)
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
            clean(
                f"{row['name']:<18} {one_line(row['description'])}\n{'':<18} {row['path'] or 'built in'}"
            )
        )
    for skill in here.skills.values():
        print(
            clean(f"{skill.name:<18} skill: {one_line(skill.description)}\n{'':<18} {skill.path}")
        )
    if count := agent_files.counted(here.findings):
        print(f"{count}: mudroom agents check shows them.")
    return 0


def _rows(here: Found) -> Iterator[dict[str, Any]]:
    named = {agent.name for agent in (*here.agents, *here.mains)}
    builtin = [agent_files.builtin(name) for name in agent_files.BUILT_IN if name not in named]
    for agent in (*here.agents, *here.mains, *builtin):
        yield {
            "name": agent.name,
            "description": agent.description,
            "model": agent.model,
            "tools": None if agent.tools is None else list(agent.tools),
            "root_only": agent in here.mains,
            "path": here.paths.get(agent.name, ""),
        }


def showing(cwd: str, environ: Mapping[str, str], name: str) -> int:
    """Print one agent as it would run; the exit code. Raises UnknownName."""
    here = found(cwd, environ)
    agents = {
        agent.name: agent
        for agent in (*map(agent_files.builtin, agent_files.BUILT_IN), *here.agents, *here.mains)
    }
    agent = {agent_files.folded(known): agent for known, agent in agents.items()}.get(
        agent_files.folded(name)
    )
    if agent is None:
        raise UnknownName("agent", name, agents)
    path = here.paths.get(agent.name, "")
    for key, value in _facts(agent, path):
        print(clean(f"{key + ':':<13} {value}"))
    print(f"\n{clean(agent.instructions)}")
    mine = [finding for finding in here.findings if finding.path == path]
    for finding in mine:
        print(clean(f"{finding}"))
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


def beginning(cwd: str, name: str) -> int:
    """Write a new agent's file below a folder, for a person to fill in; the exit code. Raises UsageError if there is one."""
    plain = agent_files.plain_name(name)
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


def checking(cwd: str, environ: Mapping[str, str], paths: Iterable[str]) -> int:
    """Print what is wrong with files, those that hold in a folder if none is named; 1 if one of them cannot be used."""
    named = list(paths)
    findings = (
        [finding for path in named for finding in _checked(path)]
        if named
        else remarks(cwd, environ)
    )
    for finding in sorted(findings, key=lambda finding: (finding.path, finding.line)):
        print(clean(f"{finding}"))
    print(agent_files.counted(findings) or "Nothing is wrong.")
    return int(any(finding.severity is Severity.ERROR for finding in findings))


def _checked(path: str) -> list[Finding]:
    if not os.path.exists(path):
        raise UsageError("no such file or folder", where=path)
    files = agent_files.below(path, "") if os.path.isdir(path) else [path]
    findings: list[Finding] = []
    for file in files:
        if os.path.basename(file) == "SKILL.md":
            findings += agent_files.skill_of(file)[1]
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
            findings += agent_files.agent_of(os.path.abspath(file), dialect)[1].notes.findings
    return findings


def _of_a_skill(file: str, top: str) -> bool:
    folder = os.path.dirname(file)
    while folder.startswith(top):
        if os.path.exists(os.path.join(folder, "SKILL.md")):
            return True
        folder = os.path.dirname(folder)
    return False


def inline(text: str) -> list[Agent]:
    """The agents of `--agents`: a JSON object of name -> keys as in agent files. Raises UsageError for what cannot be used."""
    agents: list[Agent] = []
    for name, keys in _object(text, INLINE).items():
        if not isinstance(keys, dict):
            raise UsageError(
                f"{name} is no object of keys",
                where=INLINE,
                remedy='Write {"name": {"description": …, "prompt": …}}.',
            )
        agent, draft = agent_files.inline(cast("dict[str, Any]", keys), name, INLINE)
        if agent is None:
            why = next(
                (
                    finding.text
                    for finding in draft.notes.findings
                    if finding.severity is Severity.ERROR
                ),
                draft.off,
            )
            raise UsageError(f"agent {name}: {why}", where=INLINE)
        agents.append(agent)
    return agents


def schema(given: str) -> dict[str, Any]:
    """The JSON Schema of `--json-schema`: JSON, or the name of a file of it. Raises UsageError."""
    if given.lstrip().startswith("{"):
        return _object(given, "--json-schema")
    try:
        with open(given, encoding="utf-8") as file:
            return _object(file.read(), given)
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"cannot be read: {getattr(error, 'strerror', None) or error}",
            where=f"--json-schema {given}",
        ) from None


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"not JSON: {error}", where=where) from None
    if not isinstance(value, dict):
        raise UsageError("a JSON object is wanted", where=where)
    return cast("dict[str, Any]", value)
