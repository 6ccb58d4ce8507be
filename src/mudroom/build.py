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
from ._core.events import AnyEvent, RunStarted, SessionOpened, Stored
from ._core.ports import Answer, Approver, Journal, Model, Question, Sandbox
from ._core.tools import Tool
from ._engine.run_context import Parts
from ._engine.task import task_tool
from .agent_catalog import Crew, Sources, gathered
from .conversation_state import Record
from .errors import JournalDamaged, UsageError
from .model_registry import Models, _pace, _usable
from .models import providers
from .output_filters.injection_marker import marked
from .output_filters.redaction import Redactor
from .permissions.policy import RulePolicy
from .permissions.rules import ALLOW, Permissions

if TYPE_CHECKING:
    pass


class Wish(Struct, frozen=True, kw_only=True):
    """What the opener of a session asked for; see Session."""

    session: str
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
    root: str | Agent | None = None
    agent_files: bool = False
    permissions: Permissions = Permissions()
    trusted: bool = True


class House(Struct, frozen=True, kw_only=True):
    """A session's parts, the root agent, its model, the context files, and what the person should be told."""

    parts: Parts
    models: Models
    root: Agent
    model: str
    context: agent_files.Context | None = None
    notices: tuple[str, ...] = ()

    async def close(self) -> None:
        """Let go of connections, of what commands were started by, and of the journal."""
        self.parts.sandbox.close()
        await self.models.close()
        await self.parts.journal.close()


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


class Nobody:
    """The port Approver where no person is: no, at once."""

    async def decide(self, question: Question) -> Answer:
        """No."""
        return Answer(False, "nobody is here to confirm it")


OFFLINE = (
    "no key and no local server found: using the offline model, which follows rules and knows a few tasks. "
    "For a real one set ANTHROPIC_API_KEY, OPENAI_API_KEY, GEMINI_API_KEY, OPENAI_BASE_URL or OLLAMA_HOST."
)


def reopened(wish: Wish) -> Wish:
    """The wish to go on with a recorded session: its id, its folder, its model where none is asked for.

    Raises UnknownName when there is no such session.
    """
    from .journals.sqlite.journal import find, read_only

    record = read_only(find(wish.home or config.home(_environ(wish)), wish.resume))
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
        session=wish.session if wish.fork else opened.session,
        resume=opened.session,
        cwd=opened.cwd,
        model=briefs[-1].model if briefs and wish.model == "auto" else wish.model,
        prices=wish.prices or any(brief.budget.usd is not None for brief in briefs),
    )


async def copy(wish: Wish, journal: Journal) -> None:
    """Copy the record of the session that is resumed into a fork's own journal; not the runs another process is at work on."""
    from .journals.sqlite.journal import read_only
    from .journals.sqlite.store import find, writer

    path = find(wish.home or config.home(_environ(wish)), wish.resume)
    live = bool(writer(path))
    events = list(read_only(path).read())
    under_way = Record(events).left if live else ()
    await journal.append(*(event for event in events if event.run not in under_way))


def granted(wish: Wish) -> tuple[str, ...]:
    """What is given beyond the sandbox and what it holds, for the record."""
    rules = (str(rule) for rule in wish.permissions.rules if rule.verdict == ALLOW)
    return (*(["network"] if wish.network else []), *rules)


def _environ(wish: Wish) -> Mapping[str, str]:
    return os.environ if wish.environ is None else wish.environ


def build(
    wish: Wish, watchers: list[Callable[[AnyEvent], None]], past: dict[str, list[Stored]]
) -> House:
    """Choose and open the parts. Raises UsageError or JournalError and leaves nothing open."""
    environ = _environ(wish)
    root = os.path.realpath(wish.cwd)
    if not os.path.isdir(root):
        raise UsageError("no such directory", where=wish.cwd, remedy="Name a folder that exists.")
    home = wish.home or config.home(environ)
    clock = SystemClock()
    models = Models(environ, clock, home)
    notices: list[str] = []
    crew = gathered(_sources(wish, root, environ), notices)
    model = _root_model(wish.model, crew.root, models, environ, notices)
    if wish.child_model:
        models(wish.child_model)
    spills = os.path.join(home, "spills", wish.session)
    sandbox = _sandbox(wish, root, home, notices)
    policy = RulePolicy(
        wish.permissions, root=root, home=environ.get("HOME", "/"), tier=lambda: sandbox.tier
    )
    toolbox = _toolbox(wish.tools, crew, ask=sandbox.tier == "ask")
    parts = Parts(
        session=wish.session,
        models=models,
        journal=_journal(wish, home),
        workspace=_workspace(root, spills, *(skill.folder for skill in crew.skills.values())),
        sandbox=sandbox,
        clock=clock,
        approver=wish.approver or Nobody(),
        policy=policy,
        redact=Redactor(environ),
        mark=marked,
        toolbox={name: tool for name, tool in toolbox.items() if not policy.barred(name)},
        agents=crew.agents,
        spills=spills,
        environment=f"Folder: {root}. Platform: {platform.system()}. Date: {time.strftime('%Y-%m-%d')}.",
        context=crew.texts,
        child_model=wish.child_model,
        child_budget=wish.child_budget,
        price=pricing.cost if wish.prices else None,
        past=past,
        watchers=watchers,
    )
    notices.extend(getattr(parts.journal, "notices", ()))
    return House(
        parts=parts,
        models=models,
        root=crew.root,
        model=model,
        context=crew.context,
        notices=tuple(notices),
    )


def _sources(wish: Wish, folder: str, environ: Mapping[str, str]) -> Sources:
    return Sources(
        root=wish.root,
        agents=wish.agents,
        tools=[tool.name for tool in wish.tools],
        files=wish.agent_files,
        trusted=wish.trusted,
        folder=folder,
        home=environ.get("HOME", ""),
        missing=lambda model: _missing(model, environ),
    )


def _missing(model: str, environ: Mapping[str, str]) -> str:
    """Why nothing here can serve a model of that name; "" if something can."""
    try:
        return (
            ""
            if _usable(providers.PROVIDERS[providers.split(model)[0]], environ)
            else "no key for it"
        )
    except UsageError as error:
        return error.message


def _root_model(
    asked: str | Model, root: Agent, models: Models, environ: Mapping[str, str], notices: list[str]
) -> str:
    if not isinstance(asked, str):
        return models.put(asked)
    name = root.model if asked == "auto" and root.model != "inherit" else asked
    if name == "auto":
        name = providers.default(environ) or "offline"
        if name == "offline":
            pace = _pace(environ)
            notices.append(
                OFFLINE
                + (
                    f" It writes {pace:g} tokens a second, as $MUDROOM_OFFLINE_PACE says."
                    if pace
                    else ""
                )
            )
    return models(name).name


def _toolbox(own: tuple[Tool, ...], crew: Crew, *, ask: bool) -> dict[str, Tool]:
    from .tools import builtin

    tools = {**builtin(), "task": task_tool(crew.agents)}
    if ask:
        tools["bash"] = replace(tools["bash"], needs_confirmation=True)
    if any(not skill.hidden for skill in crew.skills.values()):
        from .tools.skill import skill_tool

        tools["skill"] = skill_tool(crew.skills)
    return {**tools, **{tool.name: tool for tool in own}}


def _workspace(root: str, *readable: str) -> Any:
    from .workspaces.shared import SharedWorkspace

    return SharedWorkspace(root, readable=readable)


def _sandbox(wish: Wish, root: str, home: str, notices: list[str]) -> Sandbox:
    from .sandboxes.detect import Terms, choose

    terms = Terms(
        root=root,
        mode=wish.sandbox,
        home=home,
        environ=os.environ,
        network=wish.network,
        person=wish.approver is not None,
    )
    sandbox, told = choose(terms)
    if told:
        notices.append(told)
    return sandbox


def _journal(wish: Wish, home: str) -> Journal:
    if not isinstance(wish.journal, str):
        return wish.journal
    if wish.journal == "memory":
        from .journals.memory import MemoryJournal

        return MemoryJournal()
    from .journals.sqlite.journal import SqliteJournal

    path = os.path.join(home, "sessions", f"{wish.session}.db")
    return SqliteJournal.open(path, session=wish.session, create=not wish.resume or wish.fork)
