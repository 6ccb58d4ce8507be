"""A session's agents: built-in ones, those from agent files, and the caller's.

The catalog also holds skills and the texts of context files for system prompts.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from .._adapters import agent_files
from .._adapters.agent_files.locations import find_places
from .._adapters.tools import BOARD_TOOLS, BUILTIN_TOOLS
from .._adapters.tools._sources import load_tools
from .._core.agents import Agent, Mode
from .._core.notices import Notice
from .._platform.open_beneath import find_real_path
from ..errors import UnknownName, UsageError, quote_value
from .options import SessionOptions

# Tools that a session may have and agent files may name.
KNOWN_TOOLS = (
    *BUILTIN_TOOLS,
    "task",
    "wait",
    "send_message",
    "task_stop",
    "compact",
    *BOARD_TOOLS,
    "skill",
    "web_fetch",
    "web_search",
)

_CHILD_MODEL = "child_model"


class AgentCatalog(Struct, frozen=True, kw_only=True):
    """The agents and skills of a session.

    Arguments:
        root_agent: the agent that runs the prompts, with its output style.
        output_style: "default" if none was wanted, "" if none was chosen.
        context_texts: text of the context files, by value of `Agent.context_files`.
    """

    root_agent: Agent
    agents: dict[str, Agent]
    skills: Mapping[str, agent_files.Skill] = {}
    context_files: agent_files.ContextFiles | None = None
    context_texts: Mapping[str, str] = {}
    output_style: str = ""


def load_catalog(
    options: SessionOptions,
    folder: str,
    user_home: str,
    explain_unavailable: Callable[[str], str],
    notices: list[Notice],
) -> AgentCatalog:
    """Collect the agents; a later source replaces an agent of the same name.

    A `user_home` of "" is skipped. `explain_unavailable` takes a model string and says why the
    model cannot be used here, "" if it can. Raises UnknownName for the root agent and its style.
    """
    catalog = _collect_agents(options, folder, user_home, explain_unavailable, notices)
    if options.integrations.output_style:
        return _apply_style(catalog, options, folder, user_home, notices)
    return catalog


def _apply_style(
    catalog: AgentCatalog,
    options: SessionOptions,
    folder: str,
    user_home: str,
    notices: list[Notice],
) -> AgentCatalog:
    integrations = options.integrations
    name = integrations.output_style
    if agent_files.fold_name(name) == agent_files.NO_STYLE:
        return replace(catalog, output_style=agent_files.NO_STYLE)
    styles: Mapping[str, agent_files.OutputStyle] = {}
    remedy = "Styles are files: pass Integrations(agent_files=True)."
    if integrations.agent_files:
        places = find_places(integrations.agent_files, folder, user_home)
        loaded = agent_files.load_output_styles(
            places.folder,
            user_home=places.user_home,
            plugins=integrations.plugins,
            trusts_folder=integrations.trusted,
        )
        styles = loaded.by_name
        remedy = loaded.explain_untrusted(name)
    style = agent_files.find_style(styles, name)
    if style is None:
        known = (agent_files.NO_STYLE, *styles)
        where = "output_style, in a program Integrations(output_style=...)"
        error = UnknownName("output style", name, known, where=where, remedy=remedy)
        # A settings file or an old record may name a style that does not exist in this folder.
        origin = integrations.origins.get("output_style")
        if not origin:
            raise error
        notices.append(Notice("unused", f"{origin}: output style not used: {error}"))
        return catalog
    if not style.is_personal:
        notices.append(Notice("style", f"using the output style {style.name}: {style.path}"))
    styled = agent_files.apply_style(catalog.root_agent, style)
    return replace(catalog, root_agent=styled, output_style=style.name)


def _collect_agents(
    options: SessionOptions,
    folder: str,
    user_home: str,
    explain_unavailable: Callable[[str], str],
    notices: list[Notice],
) -> AgentCatalog:
    builtin = [agent_files.load_builtin_agent(name) for name in agent_files.BUILTIN_AGENTS]
    if not options.integrations.agent_files:
        agents = {agent.name: agent for agent in (*builtin, *options.agents)}
        return AgentCatalog(root_agent=_find_root_agent(options.agent, agents), agents=agents)
    tools = (*KNOWN_TOOLS, *(tool.name for tool in load_tools(options.tools)))
    places = find_places(options.integrations.agent_files, folder, user_home)
    loaded = agent_files.load_agent_files(
        places.folder,
        user_home=places.user_home,
        tools=tools,
        plugins=options.integrations.plugins,
        trusts_folder=options.integrations.trusted,
    )
    context = agent_files.load_context_files(
        places.folder,
        user_home=places.user_home,
        trusts_folder=options.integrations.trusted,
        reads_local=places.reads_local,
    )
    personal = None if options.integrations.trusted else loaded.personal_names
    from_files: dict[str, Agent] = {}
    for agent in (*loaded.main_agents, *loaded.agents):
        restricted = restrict_untrusted(agent, personal)
        from_files[agent.name] = _use_available_model(restricted, explain_unavailable, notices)
    for_tasks = [from_files[agent.name] for agent in loaded.agents]
    agents = {agent.name: agent for agent in (*builtin, *for_tasks, *options.agents)}
    notices.extend(_describe_files(loaded, context, trusted=options.integrations.trusted))
    notices.extend(_describe_missing_servers(loaded.servers, options))
    return AgentCatalog(
        root_agent=_find_root_agent(options.agent, {**from_files, **agents}, loaded.diagnostics),
        agents=agents,
        skills=loaded.skills,
        context_files=context,
        context_texts={
            "project": context.to_prompt(include_personal=False),
            "full": context.to_prompt(),
        },
    )


def find_agent(name: str, agents: Mapping[str, Agent], *, where: str = "") -> Agent:
    """Find an agent by name; case and separators do not matter. Raises UnknownName."""
    if name in agents:
        return agents[name]
    by_folded_name = {agent_files.fold_name(known): agent for known, agent in agents.items()}
    agent = by_folded_name.get(agent_files.fold_name(name))
    if agent is None:
        raise UnknownName("agent", name, agents, where=where)
    return agent


def parse_child_models(rules: str | Mapping[str, str]) -> dict[str, str]:
    """Map agent names to model strings; "*" is any other agent. Text without "=" applies to all."""
    models: dict[str, str] = {}
    folded_names: set[str] = set()
    for agent, model in _split_rules(rules) if isinstance(rules, str) else rules.items():
        if not agent or not model:
            problem = f"no agent for the model {quote_value(model)}"
            if agent:
                problem = f"no model for the agent {quote_value(agent)}"
            remedy = 'Write a model, or rules such as "explore=haiku; *=sonnet".'
            raise UsageError(problem, where=_CHILD_MODEL, remedy=remedy)
        folded_name = agent_files.fold_name(agent)
        if folded_name in folded_names:
            text = f"two models for the agent {agent}"
            raise UsageError(text, where=_CHILD_MODEL, remedy="Leave one rule out.")
        folded_names.add(folded_name)
        models[agent] = model
    return models


def _split_rules(rules: str) -> Iterator[tuple[str, str]]:
    """Yield the agent name and model string of each rule; "" for whichever is missing."""
    if "=" not in rules:
        yield "*", rules.strip()
        return
    for rule in filter(str.strip, rules.split(";")):
        agent, _, model = rule.partition("=")
        yield agent.strip(), model.strip()


def resolve_child_models(
    rules: str | Mapping[str, str],
    agents: Mapping[str, Agent],
    origin: str,
    notices: list[Notice] | None,
) -> dict[str, str]:
    """Map the names of existing agents to model strings; "" is the parent's model.

    A rule for an agent that does not exist in this folder raises UnknownName, unless it comes from
    a source, such as a settings file, that applies in all folders: then it is left out.
    """
    models: dict[str, str] = {}
    for name, model in parse_child_models(rules).items():
        try:
            agent = name if name == "*" else find_agent(name, agents, where=_CHILD_MODEL).name
        except UnknownName as error:
            if not origin:
                raise
            if notices is not None:
                notices.append(Notice("unused", f"{origin}: rule not used: {error}"))
            continue
        models[agent] = "" if model == "inherit" else model
    return models


def _find_root_agent(
    requested: str | Agent,
    agents: Mapping[str, Agent],
    diagnostics: Iterable[agent_files.Diagnostic] = (),
) -> Agent:
    if isinstance(requested, Agent):
        return requested
    if not requested:
        return agent_files.load_builtin_agent("main")
    try:
        return find_agent(requested, agents)
    except UnknownName:
        # An unusable agent file only has its file name.
        wanted = agent_files.fold_name(requested)
        for fault in diagnostics:
            is_named = agent_files.fold_name(Path(fault.path).stem) == wanted
            if is_named and fault.severity is agent_files.Severity.ERROR:
                raise UnknownName("agent", requested, agents, remedy=str(fault)) from None
        raise


def restrict_untrusted(agent: Agent, personal: Collection[str] | None) -> Agent:
    """Limit an agent of an untrusted folder to reading and to its parent's model.

    `personal`: names of agents from the user's own files; None if the folder is trusted.
    """
    if personal is None or agent.name in personal:
        return agent
    return replace(agent, mode=Mode.PLAN, model="inherit")


def _use_available_model(
    agent: Agent, explain_unavailable: Callable[[str], str], notices: list[Notice]
) -> Agent:
    if agent.model == "inherit":
        return agent
    reason = explain_unavailable(agent.model)
    if not reason:
        return agent
    text = (
        f"agent {agent.name}: the model {agent.model} cannot be used ({reason}); "
        "the agent uses the model set for children, or else that of its parent"
    )
    notices.append(Notice("unused", text))
    return replace(agent, model="inherit")


def _describe_files(
    loaded: agent_files.LoadedAgents, context: agent_files.ContextFiles, *, trusted: bool
) -> Iterator[Notice]:
    from_project = [name for name in loaded.paths if name not in loaded.personal_names]
    if from_project:
        text = f"using agents of this folder: {', '.join(from_project)}"
        if not trusted:
            text += "; they only read until you trust this folder (mudroom trust add, or --trust)"
        yield Notice("agents", text)
    for name, path in loaded.shadowing.items():
        yield Notice(
            "unused",
            f"agent {name} of {path} is not used: you have an agent of this name, and do not trust"
            " this folder. To use it: mudroom trust add, or --trust for one run.",
        )
    faults = [
        diagnostic
        for diagnostic in (*loaded.diagnostics, *context.diagnostics)
        if diagnostic.severity is not agent_files.Severity.NOTE
    ]
    if faults:
        yield Notice(
            "unused",
            f"{agent_files.count_by_severity(faults)} in agent files, the first: {faults[0]} "
            "(mudroom agents check lists all)",
        )


def _describe_missing_servers(
    declared: Iterable[agent_files.DeclaredServer], options: SessionOptions
) -> Iterator[Notice]:
    used = {(server.agent, server.name) for server in options.integrations.mcp_servers}
    for server in declared:
        if (server.agent, server.name) not in used:
            yield Notice(
                "unused",
                f"agent {server.agent}: its MCP server {server.name} is not used: it is not"
                " trusted, or its entry has a problem. See: mudroom mcp",
            )


def describe_platform(folder: str) -> str:
    """Describe platform and date, and the repository's root if the folder is below it."""
    date = time.strftime("%Y-%m-%d")
    text = f"Platform: {platform.system()}. Date: {date}."
    path = Path(find_real_path(folder))
    places = (place for place in (path, *path.parents) if (place / ".git").exists())
    root = next(places, path)
    return text if root == path else f"{text}\nRepository: {root}"
