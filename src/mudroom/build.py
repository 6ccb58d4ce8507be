"""Build the services of a session from its options: the only module that chooses adapters.

Model adapters are chosen in `model_registry.py`. `replay.py` builds the services of a replay.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from . import agent_files, config, pricing
from ._core.agents import Agent
from ._core.budgets import Budget
from ._core.events import AnyEvent, RunStarted, SessionOpened, StoredEvent
from ._core.ports import Journal, Model
from ._engine.session_context import SessionServices
from ._platform.system_clock import SystemClock
from .adapters import collect_tools, open_journal, open_sandbox, open_workspace
from .agent_catalog import AgentCatalog, AgentSources, load_catalog
from .conversation_state import select_finished
from .errors import JournalDamaged, UsageError
from .model_registry import ModelRegistry, is_usable, read_offline_pace
from .models import providers
from .options import SessionOptions
from .output_filters.injection_marker import mark_injection
from .output_filters.redaction import Redactor
from .permissions.deny_all import DenyAllApprover
from .permissions.policy import RulePolicy
from .permissions.rules import Verdict
from .workers.local import LocalWorker

if TYPE_CHECKING:
    from .workers.process.worker import ProcessWorker

OFFLINE_NOTICE = (
    "No API key and no local server found: using the offline model, which follows rules and knows "
    "a few tasks. For a real model set ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY, "
    "OPENAI_BASE_URL or OLLAMA_HOST."
)


class SessionResources(Struct, frozen=True, kw_only=True):
    """Everything an open session uses, and must close.

    Arguments:
        model: model string of the root agent.
        notices: messages for the user about what was chosen.
    """

    services: SessionServices
    worker: LocalWorker | ProcessWorker
    models: ModelRegistry
    root_agent: Agent
    model: str
    context_files: agent_files.ContextFiles | None = None
    notices: tuple[str, ...] = ()

    async def close(self) -> None:
        """End worker processes; close the connections, the sandbox and the journal."""
        await self.worker.close()
        self.services.sandbox.close()
        await self.models.close()
        await self.services.journal.close()


def build(
    options: SessionOptions,
    watchers: list[Callable[[AnyEvent], None]],
    past_events: dict[str, list[StoredEvent]],
) -> SessionResources:
    """Choose and open everything a session uses. If it raises, nothing stays open.

    Arguments:
        watchers: called with each event of the runs; may be changed later.
        past_events: events of interrupted runs, by run id; filled before the first run.

    Raises UsageError or JournalError.
    """
    environ = _get_environ(options)
    folder = _find_folder(options)
    home = _find_home(options)
    notices: list[str] = []
    clock = SystemClock()
    models = ModelRegistry(environ, clock, home)
    catalog = load_catalog(_agent_sources(options, folder, environ), notices)
    model = _choose_root_model(options.model, catalog.root_agent, models, environ, notices)
    child_model = "" if options.child_model == "inherit" else options.child_model
    if child_model:
        models(child_model)
    if options.budget.usd is not None:
        pricing.require_price(model)
    uses_prices = options.prices or options.budget.usd is not None
    spill_folder = os.path.join(home, "spills", options.id)
    skill_folders = [skill.folder for skill in catalog.skills.values()]
    sandbox = options.sandbox
    if isinstance(sandbox, str):
        can_ask = options.approver is not None
        sandbox = open_sandbox(sandbox, folder, home, notices, options.allow_net, can_ask)
    policy = RulePolicy(
        options.permissions,
        workspace=folder,
        user_home=environ.get("HOME", "/"),
        tier=lambda: sandbox.tier,
    )
    tools = collect_tools(options.tools, catalog.agents, catalog.skills, ask=sandbox.tier == "ask")
    services = SessionServices(
        session=options.id,
        get_model=models,
        journal=open_journal(options, home),
        workspace=options.workspace or open_workspace(folder, spill_folder, *skill_folders),
        sandbox=sandbox,
        clock=clock,
        approver=options.approver or DenyAllApprover(),
        policy=policy,
        redact=Redactor({**os.environ, **environ}),
        mark_report=mark_injection,
        toolbox={name: tool for name, tool in tools.items() if not policy.is_never_allowed(name)},
        agents=catalog.agents,
        spill_folder=spill_folder,
        environment_text=_describe_environment(folder),
        context_texts=catalog.context_texts,
        child_model=child_model,
        child_budget=Budget(turns=options.child_turns),
        compute_price=pricing.calculate_cost if uses_prices else None,
        past_events=past_events,
        hooks=options.hooks,
        watchers=watchers,
    )
    notices.extend(getattr(services.journal, "notices", ()))
    return SessionResources(
        services=services,
        worker=_choose_worker(options, services, catalog, home),
        models=models,
        root_agent=catalog.root_agent,
        model=model,
        context_files=catalog.context_files,
        notices=tuple(notices),
    )


def use_recorded_options(options: SessionOptions) -> SessionOptions:
    """Return the options with id, folder and model of the recorded session that they resume.

    Raises UnknownName when there is no such session, JournalDamaged when it has no start.
    """
    events = _read_recorded(options)
    opened = next((event for event in events if isinstance(event, SessionOpened)), None)
    if opened is None:
        raise JournalDamaged(
            "the record does not start with a session",
            where=options.resume,
            remedy="Start a new session.",
        )
    briefs = [
        event.brief for event in events if isinstance(event, RunStarted) and event.brief.depth == 0
    ]
    reuses_model = options.model == "auto" and briefs
    return replace(
        options,
        id=options.id if options.fork else opened.session,
        resume=opened.session,
        cwd=opened.cwd,
        model=briefs[-1].model if reuses_model else options.model,
        prices=options.prices or any(brief.budget.usd is not None for brief in briefs),
    )


async def copy_journal(options: SessionOptions, journal: Journal) -> None:
    """Copy the record of the resumed session into the journal of its fork.

    Runs that another process is executing at this moment are left out.
    """
    from .journals.sqlite.lock import writer_pid
    from .journals.sqlite.store import find_by_id

    events = _read_recorded(options)
    if writer_pid(find_by_id(_find_home(options), options.resume)):
        events = select_finished(events)
    await journal.append(*events)


def list_grants(options: SessionOptions) -> tuple[str, ...]:
    """Return the rights beyond the sandbox that the caller gave, for the record."""
    grants = ["network"] if options.allow_net else []
    grants.extend(str(rule) for rule in options.permissions.rules if rule.verdict is Verdict.ALLOW)
    return tuple(grants)


def _get_environ(options: SessionOptions) -> Mapping[str, str]:
    return os.environ if options.environ is None else options.environ


def _find_home(options: SessionOptions) -> str:
    return options.home or config.find_home(_get_environ(options))


def _find_folder(options: SessionOptions) -> str:
    if options.workspace is not None:
        return options.workspace.root
    folder = os.path.realpath(options.cwd)
    if not os.path.isdir(folder):
        raise UsageError(
            "no such directory", where=options.cwd, remedy="Name a folder that exists."
        )
    return folder


def _describe_environment(folder: str) -> str:
    date = time.strftime("%Y-%m-%d")
    return f"Folder: {folder}. Platform: {platform.system()}. Date: {date}."


def _read_recorded(options: SessionOptions) -> list[StoredEvent]:
    if not isinstance(options.journal, str):
        return list(options.journal.read())
    from .journals.sqlite.reader import open_reader
    from .journals.sqlite.store import find_by_id

    return list(open_reader(find_by_id(_find_home(options), options.resume)).read())


def _agent_sources(
    options: SessionOptions, folder: str, environ: Mapping[str, str]
) -> AgentSources:
    return AgentSources(
        root_agent=options.agent,
        agents=options.agents,
        tool_names=[tool.name for tool in options.tools],
        use_files=options.agent_files,
        trusted=options.trusted,
        project_folder=folder,
        user_home=environ.get("HOME", ""),
        explain_unavailable=lambda model: _explain_unavailable(model, environ),
    )


def _explain_unavailable(model: str, environ: Mapping[str, str]) -> str:
    """Return why this model cannot be used here; "" if it can."""
    try:
        provider = providers.PROVIDERS[providers.parse_model_name(model)[0]]
    except UsageError as error:
        return error.message
    return "" if is_usable(provider, environ) else "no key for it"


def _choose_root_model(
    requested: str | Model,
    agent: Agent,
    models: ModelRegistry,
    environ: Mapping[str, str],
    notices: list[str],
) -> str:
    if not isinstance(requested, str):
        return models.register(requested)
    if requested != "auto":
        return models(requested).name
    if agent.model != "inherit":
        return models(agent.model).name
    name = providers.choose_default_model(environ)
    if name:
        return models(name).name
    pace = read_offline_pace(environ)
    notice = OFFLINE_NOTICE
    if pace:
        notice += f" It writes {pace:g} tokens a second, as $MUDROOM_OFFLINE_PACE says."
    notices.append(notice)
    return models("offline").name


def _choose_worker(
    options: SessionOptions, services: SessionServices, catalog: AgentCatalog, home: str
) -> LocalWorker | ProcessWorker:
    kind, _, count = options.worker.partition(":")
    if kind == "local" and not count:
        return LocalWorker(services, options.max_children)
    if kind != "process" or (count and not count.isdecimal()):
        raise UsageError(
            f"unknown worker {options.worker!r}", remedy='Use "local", "process" or "process:N".'
        )
    if options.tools or options.workspace or not isinstance(options.sandbox, str):
        raise UsageError(
            "worker processes cannot use tool, workspace or sandbox objects of the caller",
            where="worker",
            remedy='Use worker="local", or leave the objects out.',
        )
    from .worker_services import make_process_worker

    return make_process_worker(options, services, catalog.skills, home, int(count or 0))
