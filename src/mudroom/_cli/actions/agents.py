"""`mudroom agents`: list, show, create and check agent files."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..._adapters import agent_files
from ..._adapters.agent_files import Diagnostic, LoadedAgents, Severity
from ..._adapters.agent_files.agents import CONFIG_NAME, read_declared_agents
from ..._adapters.agent_files.frontmatter import Entry
from ..._adapters.agent_files.locations import COMMAND_LOCATIONS
from ..._adapters.agent_files.output_styles import STYLE_FOLDER, LoadedStyles, load_output_style
from ..._adapters.agent_files.prompt_template import load_template
from ..._adapters.agent_files.safe_read import FileDiagnostics
from ..._adapters.models.providers import parse_model_name
from ..._core.agents import Agent, choose_child_model
from ..._core.listings import count_noun
from ..._core.notices import Notice
from ..._projections.safe_text import sanitize, sanitize_line
from ..._session.agent_catalog import (
    KNOWN_TOOLS,
    find_agent,
    resolve_child_models,
    restrict_untrusted,
)
from ..._session.model_registry import explain_unusable
from ...errors import MudroomError, UsageError
from ..output.json_output import print_json
from ..output.listing import print_entry, print_rows
from ..output.progress import print_notice
from .load_permissions import is_trusted
from .load_settings import load_settings
from .programs.load_programs import load_programs

_TEMPLATE = """\
---
name: {name}
description: {description}
tools: read, glob, grep
# model: inherit            the model of its caller, or a model string
# budget: {{turns: 20}}       also seconds, children, depth, total_tokens,
#                           input_tokens, output_tokens
# outputs: {{answer: what it must emit}}
# skills: []                skills that are loaded from the start
# context: full             context files (AGENTS.md) that it gets: none, project or full
---
You are a focused agent that does one piece of work. (Describe here which work, and how to do it.)
No one can answer questions: never ask for clarification, work with what you have.
End with a clear, self-contained summary of findings: only this last message is read.
"""
_DIALECTS = ("opencode", "codex", "claude", "gemini", "qwen", "goose", "github")


def load_agents(cwd: str) -> LoadedAgents:
    settings = load_settings(cwd)
    return agent_files.load_agent_files(
        cwd,
        tools=KNOWN_TOOLS,
        trusts_folder=is_trusted(settings, cwd),
        **_find_sources(cwd),
    )


def load_styles(cwd: str) -> LoadedStyles:
    return agent_files.load_output_styles(cwd, **_find_sources(cwd))


def _find_sources(cwd: str) -> dict[str, Any]:
    """Find the user's home folder and the plugins, whose files count besides those here."""
    programs = load_programs(load_settings(cwd), cwd)
    plugins = programs.plugins if programs else ()
    return {"user_home": os.environ.get("HOME", ""), "plugins": plugins}


def collect_findings(cwd: str) -> list[Diagnostic]:
    context = agent_files.load_context_files(cwd, user_home=os.environ.get("HOME", ""))
    loaded = load_agents(cwd)
    agents = (*loaded.agents, *loaded.main_agents)
    return [
        *loaded.diagnostics,
        *(each for agent in agents for each in _check_model(agent, loaded.paths[agent.name])),
        *load_styles(cwd).diagnostics,
        *agent_files.check_commands(cwd, **_find_sources(cwd)),
        *context.diagnostics,
    ]


def _check_model(agent: Agent, path: str) -> Iterator[Diagnostic]:
    """Warn about a model that no provider has. Does not check for keys."""
    if agent.model == "inherit":
        return
    try:
        for name in agent.model.split(","):
            parse_model_name(name)
    except UsageError as error:
        text = f"{error.message}: the agent uses the model of its parent. {error.remedy}"
        yield Diagnostic(path, 1, Severity.WARNING, text.strip())


def print_agents(cwd: str, *, as_json: bool = False) -> None:
    loaded = load_agents(cwd)
    styles = load_styles(cwd)
    findings = [*loaded.diagnostics, *styles.diagnostics]
    rows = list(_list_rows(cwd, loaded))
    if as_json:
        skills, shown_styles = (
            [{"name": x.name, "description": x.description, "path": x.path} for x in files]
            for files in (loaded.skills.values(), styles.by_name.values())
        )
        print_json(
            {"agents": rows, "skills": skills, "output_styles": shown_styles, "findings": findings}
        )
        return
    lines: list[tuple[str, str]] = []
    for row in rows:
        model = "" if row["child_model"] == "inherit" else f", model {row['child_model']}"
        lines.append((row["name"], sanitize_line(row["description"])))
        lines.append(("", f"{row['path'] or 'built in'}{model}"))
    for kind, files in (("skill", loaded.skills), ("output style", styles.by_name)):
        for file in files.values():
            lines.append((file.name, f"{kind}: {sanitize_line(file.description)}"))
            lines.append(("", file.path))
    print_rows(lines)
    if counts := agent_files.count_by_severity(findings):
        print_entry(f"{counts}: mudroom agents check shows them.")


def _list_rows(cwd: str, loaded: LoadedAgents) -> Iterator[dict[str, Any]]:
    rules = resolve_rules(cwd, loaded)
    trusts_folder = is_trusted(load_settings(cwd), cwd)
    for agent in collect_agents(loaded).values():
        used = _restrict(agent, loaded, trusts_folder=trusts_folder)
        yield {
            "name": agent.name,
            "description": agent.description,
            "model": agent.model,
            "child_model": _find_child_model(used, rules),
            "tools": None if agent.tools is None else list(agent.tools),
            "root_only": agent in loaded.main_agents,
            "path": loaded.paths.get(agent.name, ""),
        }


def collect_agents(loaded: LoadedAgents) -> dict[str, Agent]:
    agents = {agent.name: agent for agent in (*loaded.agents, *loaded.main_agents)}
    for name in agent_files.BUILTIN_AGENTS:
        if name not in agents:
            agents[name] = agent_files.load_builtin_agent(name)
    return agents


def resolve_rules(
    cwd: str, loaded: LoadedAgents, notices: list[Notice] | None = None
) -> dict[str, str]:
    """Resolve the setting `child_model`; add a notice for each unused rule.

    Raises UsageError.
    """
    agents = {name: agent_files.load_builtin_agent(name) for name in agent_files.BUILTIN_AGENTS}
    agents |= {agent.name: agent for agent in loaded.agents}
    settings = load_settings(cwd)
    origin = settings.get_persistent_origin("child_model")
    return resolve_child_models(settings.children.model, agents, origin, notices)


def _restrict(agent: Agent, loaded: LoadedAgents, *, trusts_folder: bool) -> Agent:
    """Restrict an agent as a session in this folder would."""
    if trusts_folder or agent.name not in loaded.paths:
        return agent
    return restrict_untrusted(agent, loaded.personal_names)


def _find_child_model(agent: Agent, rules: Mapping[str, str]) -> str:
    """Find the agent's model when it runs as a child; "inherit" is its parent's model."""
    if agent.model != "inherit" and not explain_unusable(agent.model, os.environ):
        return agent.model
    return choose_child_model(rules, agent.name, "inherit")


def print_agent(cwd: str, name: str) -> None:
    """Print one agent as it would run. Raises UnknownName."""
    loaded = load_agents(cwd)
    agent = find_agent(name, collect_agents(loaded))
    path = loaded.paths.get(agent.name, "")
    used = _restrict(agent, loaded, trusts_folder=is_trusted(load_settings(cwd), cwd))
    model = _find_child_model(used, resolve_rules(cwd, loaded))
    unused_model = ""
    if agent.model != used.model:
        unused_model = f"{agent.model} (the folder is not trusted)"
    elif agent.model not in ("inherit", model):
        unused_model = f"{agent.model} ({explain_unusable(agent.model, os.environ)})"
    facts = _list_facts(used, path, model, unused_model)
    print_rows([(f"{key}:", value) for key, value in facts])
    print(f"\n{sanitize(agent.instructions)}")
    for finding in loaded.diagnostics:
        if finding.path == path:
            print_entry(str(finding))


def _list_facts(
    agent: Agent, path: str, child_model: str, unused_model: str
) -> Iterator[tuple[str, str]]:
    yield "name", agent.name
    yield "file", path or "built in"
    yield "description", agent.description
    yield "model", child_model
    if unused_model:
        yield "model in file", unused_model
    if agent.tools is None:
        yield "tools", "all tools of its parent except task"
    else:
        yield "tools", ", ".join(agent.tools) or "none"
    if agent.mode is not None:
        yield "mode", agent.mode
    if agent.child_tools is not None:
        yield "child tools", ", ".join(agent.child_tools) or "none"
    if agent.children is not None:
        yield "may call", ", ".join(agent.children) or "none"
    limits = {name: getattr(agent.budget, name) for name in agent.budget.__struct_fields__}
    texts = [f"{name} {value:g}" for name, value in limits.items() if value is not None]
    yield "budget", ", ".join(texts) or "the budget of its caller"
    if agent.outputs is not None:
        yield "outputs", ", ".join(agent.outputs) or "any"
    if agent.effort is not None:
        yield "effort", agent.effort
    if agent.workspace is not None:
        yield "isolation", agent.workspace
    yield "context", agent.context_files


def create_agent_file(cwd: str, name: str) -> None:
    """Write a template for a new agent.

    Raises UsageError if the file exists, MudroomError if it cannot be written.
    """
    load_settings(cwd)  # fails for a missing folder or wrong settings
    normalized = agent_files.normalize_name(name)
    if not normalized:
        raise UsageError(f"{name!r} is not a valid name", remedy="Use letters and hyphens.")
    path = os.path.normpath(os.path.join(cwd, ".agents", "agents", f"{normalized}.md"))
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        # "x" fails if the file exists, even if another process is just creating it.
        with open(path, "x", encoding="utf-8") as file:
            file.write(
                _TEMPLATE.format(name=normalized, description=agent_files.TEMPLATE_DESCRIPTION)
            )
    except FileExistsError:
        raise UsageError(
            "the file exists already", where=path, remedy="Choose another name, or edit it."
        ) from None
    except OSError as error:
        raise MudroomError(f"cannot be written: {error.strerror}", where=path) from None
    print(path, flush=True)
    print_notice(
        "Edit its description and instructions, then:\n"
        "  mudroom agents check\n"
        f'  mudroom --agent {normalized} -p "..."',
        prefix="",
    )


def check_agent_files(cwd: str, paths: Iterable[str]) -> int:
    """Print the problems in files, by default in all that apply in `cwd`.

    Returns 1 if a file cannot be used, else 0.
    """
    load_settings(cwd)  # see `create_agent_file`
    named = list(paths)
    if named:
        findings = [finding for path in named for finding in _check_path(path)]
    else:
        findings = collect_findings(cwd)
    for finding, count in agent_files.join_repeated(findings):
        more = f" (and in {count_noun(count - 1, 'more place')})" if count > 1 else ""
        print_entry(f"{finding}{more}")
    print_entry(agent_files.count_by_severity(findings) or "No problems found.")
    return int(any(finding.severity is Severity.ERROR for finding in findings))


def _check_path(path: str) -> list[Diagnostic]:
    if not os.path.exists(path):
        raise UsageError("no such file or folder", where=path)
    if not os.path.isdir(path):
        return _check_file(path)
    findings: list[Diagnostic] = []
    for file in agent_files.find_files(path, "", findings):
        # Other Markdown files in a skill's folder belong to the skill, and are no agents.
        if os.path.basename(file) == "SKILL.md" or not _is_part_of_skill(file, path):
            findings += _check_file(file)
    return findings


def _check_file(path: str) -> list[Diagnostic]:
    if os.path.basename(path) == "SKILL.md":
        return agent_files.load_skill(path)[1]
    if not path.endswith((".md", ".toml")):
        return []
    path = os.path.abspath(path)
    if os.path.basename(os.path.dirname(path)) == STYLE_FOLDER:
        return load_output_style(path)[1] if path.endswith(".md") else []
    if any(f"/{kind.folder}/" in path for kind in COMMAND_LOCATIONS):
        return list(load_template(path, "", is_command=True).errors)
    # The folder says which program the file was written for; anywhere else, mudroom itself.
    dialect = next((name for name in _DIALECTS if f".{name}/" in path), "agents")
    declared: dict[str, dict[str, Entry]] = {}
    if dialect == "codex":
        is_config = os.path.basename(path) == CONFIG_NAME
        folder = os.path.dirname(path)
        config = path if is_config else os.path.join(os.path.dirname(folder), CONFIG_NAME)
        findings = FileDiagnostics(config)
        declared = read_declared_agents(config, "", findings) if os.path.exists(config) else {}
        if is_config:
            return findings.items
    agent, draft = agent_files.load_agent_file(
        path, dialect, tools=KNOWN_TOOLS, declared=declared.get(path)
    )
    return [*draft.diagnostics.items, *(_check_model(agent, path) if agent else ())]


def _is_part_of_skill(path: str, top: str) -> bool:
    folder = os.path.dirname(path)
    while folder.startswith(top):
        if os.path.exists(os.path.join(folder, "SKILL.md")):
            return True
        folder = os.path.dirname(folder)
    return False
