"""Wishes -> parts: the only file that names concrete adapters, and the only one that reads keys."""

from __future__ import annotations

import asyncio
import os
import platform
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct
from msgspec.structs import replace

from . import agent_files, config, pricing
from ._core.agents import Agent
from ._core.budgets import Budget
from ._core.events import AnyEvent, RunStarted, SessionOpened, StoredEvent
from ._core.ports import ApprovalDecision, ApprovalRequest, Approver, Journal, Model, Sandbox
from ._core.tools import Tool
from ._engine.services import SessionServices
from ._engine.task import task_tool
from .agent_catalog import AgentCatalog, AgentSources, load_catalog
from .conversation_state import RecordedSession
from .errors import JournalDamaged, UsageError
from .model_registry import ModelRegistry, is_usable, read_offline_pace
from .models import providers
from .output_filters.injection_marker import mark_injection
from .output_filters.redaction import Redactor
from .permissions.policy import RulePolicy
from .permissions.rules import Permissions, Verdict

if TYPE_CHECKING:
    pass


class SessionOptions(Struct, frozen=True, kw_only=True):
    """What the opener of a session asked for; see Session."""

    session_id: str
    model: str | Model
    child_model: str
    cwd: str
    home: str | None
    child_budget: Budget
    tools: tuple[Tool, ...]
    agents: tuple[Agent, ...]
    journal: str | Journal
    approver: Approver | None
    sandbox: str
    network: bool
    environ: Mapping[str, str] | None
    resume: str = ""
    fork: bool = False
    prices: bool = False
    agent: str | Agent | None = None
    agent_files: bool = False
    permissions: Permissions = Permissions()
    trusted: bool = True


class SessionResources(Struct, frozen=True, kw_only=True):
    """A session's parts, the root agent, its model, the context files, and what the person should be told."""

    services: SessionServices
    models: ModelRegistry
    root_agent: Agent
    model: str
    context_files: agent_files.ContextFiles | None = None
    notices: tuple[str, ...] = ()

    async def close(self) -> None:
        """Let go of connections, of what commands were started by, and of the journal."""
        self.services.sandbox.close()
        await self.models.close()
        await self.services.journal.close()


class SystemClock:
    """The port Clock, for real."""

    def now(self) -> float:
        """Seconds since 1970."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds of the event loop's clock, which asyncio's timeouts follow."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


class DenyAllApprover:
    """The port Approver where no person is: no, at once."""

    async def decide(self, question: ApprovalRequest) -> ApprovalDecision:
        """No."""
        return ApprovalDecision(False, "nobody is here to confirm it")


OFFLINE_NOTICE = (
    "no key and no local server found: using the offline model, which follows rules and knows a few tasks. "
    "For a real one set ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY, OPENAI_BASE_URL or OLLAMA_HOST."
)


def load_recorded_options(wish: SessionOptions) -> SessionOptions:
    """The wish to go on with a recorded session: its id, its folder, its model where none is asked for.

    Raises UnknownName when there is no such session.
    """
    from .journals.sqlite.reader import open_reader
    from .journals.sqlite.store import find_by_id

    record = open_reader(
        find_by_id(wish.home or config.find_home(_environment_of(wish)), wish.resume)
    )
    opened = next((event for event in record.read() if isinstance(event, SessionOpened)), None)
    if opened is None:
        raise JournalDamaged(
            "the record does not begin with a session",
            where=str(record.path),
            remedy="Begin a new session.",
        )
    briefs = [
        event.brief
        for event in record.read()
        if isinstance(event, RunStarted) and event.brief.depth == 0
    ]
    return replace(
        wish,
        session_id=wish.session_id if wish.fork else opened.session,
        resume=opened.session,
        cwd=opened.cwd,
        model=briefs[-1].model if briefs and wish.model == "auto" else wish.model,
        prices=wish.prices or any(brief.budget.usd is not None for brief in briefs),
    )


async def copy_journal(wish: SessionOptions, journal: Journal) -> None:
    """Copy the record of the session that is resumed into a fork's own journal; not the runs another process is at work on."""
    from .journals.sqlite.lock import writer_pid
    from .journals.sqlite.reader import open_reader
    from .journals.sqlite.store import find_by_id

    path = find_by_id(wish.home or config.find_home(_environment_of(wish)), wish.resume)
    live = bool(writer_pid(path))
    events = list(open_reader(path).read())
    under_way = RecordedSession(events).unfinished_events if live else ()
    await journal.append(*(event for event in events if event.run not in under_way))


def list_grants(wish: SessionOptions) -> tuple[str, ...]:
    """What is given beyond the sandbox and what it holds, for the record."""
    rules = (str(rule) for rule in wish.permissions.rules if rule.verdict == Verdict.ALLOW)
    return (*(["network"] if wish.network else []), *rules)


def _environment_of(wish: SessionOptions) -> Mapping[str, str]:
    return os.environ if wish.environ is None else wish.environ


def build(
    wish: SessionOptions,
    watchers: list[Callable[[AnyEvent], None]],
    past: dict[str, list[StoredEvent]],
) -> SessionResources:
    """Choose and open the parts. Raises UsageError or JournalError and leaves nothing open."""
    environ = _environment_of(wish)
    root = os.path.realpath(wish.cwd)
    if not os.path.isdir(root):
        raise UsageError("no such directory", where=wish.cwd, remedy="Name a folder that exists.")
    home = wish.home or config.find_home(environ)
    clock = SystemClock()
    models = ModelRegistry(environ, clock, home)
    notices: list[str] = []
    crew = load_catalog(_agent_sources(wish, root, environ), notices)
    model = _choose_root_model(wish.model, crew.root_agent, models, environ, notices)
    if wish.child_model:
        models(wish.child_model)
    spills = os.path.join(home, "spills", wish.session_id)
    sandbox = _choose_sandbox(wish, root, home, notices)
    policy = RulePolicy(
        wish.permissions,
        workspace=root,
        user_home=environ.get("HOME", "/"),
        tier=lambda: sandbox.tier,
    )
    toolbox = _build_toolbox(wish.tools, crew, ask=sandbox.tier == "ask")
    parts = SessionServices(
        session=wish.session_id,
        get_model=models,
        journal=_open_journal(wish, home),
        workspace=_open_workspace(root, spills, *(skill.folder for skill in crew.skills.values())),
        sandbox=sandbox,
        clock=clock,
        approver=wish.approver or DenyAllApprover(),
        policy=policy,
        redact=Redactor(environ),
        mark_report=mark_injection,
        toolbox={name: tool for name, tool in toolbox.items() if not policy.is_never_allowed(name)},
        agents=crew.agents,
        spill_folder=spills,
        environment_text=f"Folder: {root}. Platform: {platform.system()}. Date: {time.strftime('%Y-%m-%d')}.",
        context_texts=crew.context_texts,
        child_model=wish.child_model,
        child_budget=wish.child_budget,
        compute_price=pricing.calculate_cost if wish.prices else None,
        past_events=past,
        watchers=watchers,
    )
    notices.extend(getattr(parts.journal, "notices", ()))
    return SessionResources(
        services=parts,
        models=models,
        root_agent=crew.root_agent,
        model=model,
        context_files=crew.context_files,
        notices=tuple(notices),
    )


def _agent_sources(wish: SessionOptions, folder: str, environ: Mapping[str, str]) -> AgentSources:
    return AgentSources(
        root_agent=wish.agent,
        agents=wish.agents,
        tool_names=[tool.name for tool in wish.tools],
        use_files=wish.agent_files,
        trusted=wish.trusted,
        project_folder=folder,
        user_home=environ.get("HOME", ""),
        explain_unavailable=lambda model: _explain_unavailable(model, environ),
    )


def _explain_unavailable(model: str, environ: Mapping[str, str]) -> str:
    """Why nothing here can serve a model of that name; "" if something can."""
    try:
        return (
            ""
            if is_usable(providers.PROVIDERS[providers.parse_model_name(model)[0]], environ)
            else "no key for it"
        )
    except UsageError as error:
        return error.message


def _choose_root_model(
    asked: str | Model,
    root: Agent,
    models: ModelRegistry,
    environ: Mapping[str, str],
    notices: list[str],
) -> str:
    if not isinstance(asked, str):
        return models.register(asked)
    name = root.model if asked == "auto" and root.model != "inherit" else asked
    if name == "auto":
        name = providers.choose_default_model(environ) or "offline"
        if name == "offline":
            pace = read_offline_pace(environ)
            notices.append(
                OFFLINE_NOTICE
                + (
                    f" It writes {pace:g} tokens a second, as $MUDROOM_OFFLINE_PACE says."
                    if pace
                    else ""
                )
            )
    return models(name).name


def _build_toolbox(own: tuple[Tool, ...], crew: AgentCatalog, *, ask: bool) -> dict[str, Tool]:
    from .tools import builtin_tools

    tools = {**builtin_tools(), "task": task_tool(crew.agents)}
    if ask:
        tools["bash"] = replace(tools["bash"], needs_confirmation=True)
    if any(not skill.is_hidden for skill in crew.skills.values()):
        from .tools.skill import make_skill_tool

        tools["skill"] = make_skill_tool(crew.skills)
    return {**tools, **{tool.name: tool for tool in own}}


def _open_workspace(root: str, *readable: str) -> Any:
    from .workspaces.shared import SharedWorkspace

    return SharedWorkspace(root, readable=readable)


def _choose_sandbox(wish: SessionOptions, root: str, home: str, notices: list[str]) -> Sandbox:
    from .sandboxes.detect import SandboxRequest, choose_sandbox

    terms = SandboxRequest(
        workspace=root,
        mode=wish.sandbox,
        state_dir=home,
        environ=os.environ,
        network=wish.network,
        can_ask=wish.approver is not None,
    )
    sandbox, told = choose_sandbox(terms)
    if told:
        notices.append(told)
    return sandbox


def _open_journal(wish: SessionOptions, home: str) -> Journal:
    if not isinstance(wish.journal, str):
        return wish.journal
    if wish.journal == "memory":
        from .journals.memory import MemoryJournal

        return MemoryJournal()
    from .journals.sqlite.journal import SqliteJournal

    path = os.path.join(home, "sessions", f"{wish.session_id}.db")
    return SqliteJournal.open(path, session=wish.session_id, create=not wish.resume or wish.fork)
