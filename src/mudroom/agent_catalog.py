"""Who works in a session: the built-in agents, those of files, those of its opener; and what they are told beside their instructions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from . import agent_files
from ._core.agents import Agent, Mode
from .errors import UnknownName


class AgentCatalog(Struct, frozen=True, kw_only=True):
    """Who works, and what they are told beside their instructions: built in, from files, and from the opener of the session.

    Arguments:
        texts: of the context files, by how much of them an agent wants.
    """

    root_agent: Agent
    agents: dict[str, Agent]
    skills: Mapping[str, agent_files.Skill] = {}
    context_files: agent_files.ContextFiles | None = None
    context_texts: Mapping[str, str] = {}


class AgentSources(Struct, frozen=True, kw_only=True):
    """Where agents come from.

    Arguments:
        root: the agent that runs prompts, or its name. agents: the opener's own. tools: names of the opener's tools.
        files: whether agent files are read. folder, home: the project's and the person's, where they lie.
        trusted: whether the folder's agents get the rights they ask for.
        missing: a model string -> why nothing here can serve it, or "".
    """

    root_agent: str | Agent | None
    agents: Sequence[Agent]
    tool_names: Sequence[str]
    use_files: bool
    trusted: bool
    project_folder: str
    user_home: str
    explain_unavailable: Callable[[str], str]


def load_catalog(sources: AgentSources, notices: list[str]) -> AgentCatalog:
    """Everyone there is; what the person should know is added to the notices. Raises UnknownName for the root agent."""
    builtin = [agent_files.load_builtin_agent(name) for name in agent_files.BUILTIN_AGENTS]
    if not sources.use_files:
        agents = {agent.name: agent for agent in (*builtin, *sources.agents)}
        return AgentCatalog(root_agent=_find_root_agent(sources.root_agent, agents), agents=agents)
    found = agent_files.load_agent_files(
        sources.project_folder, home=sources.user_home, tools=sources.tool_names
    )
    context = agent_files.load_context_files(sources.project_folder, home=sources.user_home)
    own = None if sources.trusted else found.personal_names
    filed = {
        agent.name: _use_available_model(
            _restrict_untrusted(agent, own), sources.explain_unavailable, notices
        )
        for agent in (*found.main_agents, *found.agents)
    }
    offered = (*builtin, *(filed[agent.name] for agent in found.agents), *sources.agents)
    agents = {agent.name: agent for agent in offered}
    notices.extend(_describe_files(found, context, trusted=sources.trusted))
    texts = {"project": context.to_prompt(include_personal=False), "full": context.to_prompt()}
    return AgentCatalog(
        root_agent=_find_root_agent(sources.root_agent, {**filed, **agents}),
        agents=agents,
        skills=found.skills,
        context_files=context,
        context_texts=texts,
    )


def _find_root_agent(asked: str | Agent | None, agents: Mapping[str, Agent]) -> Agent:
    if asked is None or isinstance(asked, Agent):
        return asked or agent_files.load_builtin_agent("main")
    return find_agent(asked, agents)


def find_agent(asked: str, agents: Mapping[str, Agent]) -> Agent:
    """The agent of that name, whatever its case and separators. Raises UnknownName."""
    if asked in agents:
        return agents[asked]
    known = {agent_files.fold_name(name): agent for name, agent in agents.items()}
    if (agent := known.get(agent_files.fold_name(asked))) is None:
        raise UnknownName("agent", asked, agents)
    return agent


def _restrict_untrusted(agent: Agent, personal: Collection[str] | None) -> Agent:
    """An agent of a folder that is not trusted may only read, and has its parent's model.

    Arguments:
        personal: names of the agents whose files are the person's own; None: the folder is trusted.
    """
    return (
        agent
        if personal is None or agent.name in personal
        else replace(agent, mode=Mode.PLAN, model="inherit")
    )


def _use_available_model(agent: Agent, missing: Callable[[str], str], notices: list[str]) -> Agent:
    """The agent; with its parent's model when nothing here can serve the one its file names."""
    if agent.model == "inherit" or not (why := missing(agent.model)):
        return agent
    notices.append(
        f"agent {agent.name} wants the model {agent.model}, but {why}: it has its parent's"
    )
    return replace(agent, model="inherit")


def _describe_files(
    found: agent_files.LoadedAgents, context: agent_files.ContextFiles, *, trusted: bool
) -> list[str]:
    """What the person should know of the files that are used: that a project brought some, and that some are not right."""
    words: list[str] = []
    if brought := [name for name in found.paths if name not in found.personal_names]:
        held = (
            "" if trusted else "; until you trust it they only read (mudroom trust add, or --trust)"
        )
        words.append(f"using agents of this folder: {', '.join(brought)}{held}")
    wrong = [
        finding
        for finding in (*found.diagnostics, *context.diagnostics)
        if finding.severity is not agent_files.Severity.NOTE
    ]
    if wrong:
        words.append(
            f"{agent_files.count_by_severity(wrong)} in agent files, the first: {wrong[0]} (mudroom agents check lists all)"
        )
    return words
