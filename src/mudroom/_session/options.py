"""Options of a session, as `Session` takes them and `build.py` uses them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature, signature
from types import MappingProxyType
from typing import Annotated, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from msgspec import Meta
from msgspec.structs import fields, replace

from .._adapters.integrations.hook_programs.spec import HookSpec
from .._adapters.integrations.mcp_servers.spec import ServerSpec
from .._adapters.integrations.plugins.spec import Plugin
from .._adapters.integrations.tracing.spec import Tracing
from .._core.agents import Agent
from .._core.budgets import Budget, check_amount
from .._core.ports import (
    Approver,
    HookCallback,
    HookFunction,
    Hooks,
    Journal,
    Model,
    Sandbox,
    SessionStore,
    ToolSource,
    WorkerProcesses,
    Workspace,
)
from .._core.tools import Tool
from .._core.type_checks import check_type
from .._engine.context_policy import CompactionOptions
from ..errors import UnknownName, UsageError, quote_value
from ..permissions.rules import Permissions

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")
PositiveInt = Annotated[int, Meta(ge=1)]
JOURNALS = ("sqlite", "memory")
# Of one session.
MAX_PROCESSES = 64


class SharedOptions(CompactionOptions, frozen=True, kw_only=True):
    """Options that are the same in a program and in a settings file.

    `SessionOptions` and `config.Settings` inherit them, so each is declared only once. The options
    of `CompactionOptions` are among them.

    Arguments:
        child_model: model string of children whose agent says "inherit"; "inherit" is the
            model of the parent. Rules choose by agent, "*" stands for all other agents:
            {"explore": "haiku", "*": "sonnet"} or "explore=haiku; *=sonnet".
        fallback_model: model string of the model that continues when the first one fails
            permanently; more than one with commas.
        max_output_tokens: longest answer of a model in tokens, for agents that set none; None
            derives it from the model and its context window.
        child_turns: maximum model calls of a child if its agent and its caller set no limit.
        max_children: children that run at the same time; more wait.
        max_returns: times that a child with an isolated workspace gets its work back if it has
            conflicts, or its check fails. After that, the parent reads the reason.
        board: offer the tools for the task board of the project. Without it, only an agent that
            names them has them.
        isolate: give each child that may change files an isolated workspace, unless its agent or
            the call says otherwise.
        check: command, such as "make test", that must succeed with the merged files before the work
            of a child with an isolated workspace is merged.
        check_seconds: time limit of that command.
        allow_net: let commands reach the network, and offer the tool `web_fetch`.
        isolated_mb: disk space in MiB for the isolated workspaces of a session; at the limit, a
            child that needs one is not started.
        home: mudroom's state folder, with the session files; default: `$MUDROOM_HOME`, else a
            folder below the user's state folder.
        takes_images: send images to every model. Otherwise a model that is not known to accept
            them, such as a local one, gets placeholders.
        output_style: name of the output style of the agent that runs the prompts; "default" for
            none. Children never have one.
        worker: where children run: "local" (this process), "process" (one process per
            processor) or "process:N", N from 1 to 64; "ray" or "ray:N" (processes on the nodes of
            the Ray cluster of the variable RAY_ADDRESS, or of one that is started here).
    """

    child_model: str | Mapping[str, str] = "inherit"
    fallback_model: str = ""
    max_output_tokens: PositiveInt | None = None
    child_turns: PositiveInt = 30
    max_children: PositiveInt = 64
    max_returns: Annotated[int, Meta(ge=0)] = 1
    board: bool = False
    isolate: bool = False
    isolated_mb: PositiveInt = 4096
    check: str = ""
    check_seconds: PositiveInt = 600
    allow_net: bool = False
    home: str = ""
    takes_images: bool = False
    output_style: str = ""
    worker: str = "local"


class SessionOptions(SharedOptions, frozen=True, kw_only=True):
    """Everything that can be chosen when a session is opened. `Session(...)` takes the same names.

    Arguments:
        model: a model string ("anthropic:claude-sonnet-4-5", "ollama:qwen3:8b", "offline"), a
            Model object, or "auto": the first provider in `environ` that has a key or a local
            server, else the offline model.
        cwd: the folder that file tools are limited to.
        budget: limits of all runs of the session together: prompts, tasks, scopes and the runs
            below them. A resumed session counts its earlier runs, too.
        prompt_budget: limits of each prompt, child runs included.
        tools: tools of the caller. One that has the name of a built-in tool replaces it. A text
            "package.module:name" names a tool that each process imports for itself.
        agents: agents of the caller for `task`. One that has the name of a built-in agent
            replaces it.
        agent: the agent that runs the prompts, or its name; default: the built-in one.
        agent_files: read agent files, skills and context files (AGENTS.md, CLAUDE.md, ...) of the
            folder and of the user's HOME in `environ`; or whose: "user", "project" (with the user's
            own CLAUDE.local.md, if "local" is there, too).
        journal: "sqlite" (a file below `home`), "memory", or a Journal object.
        store: where the session is created or resumed instead of the files in `home`: a
            SessionStore, or the address of a PostgreSQL database,
            "postgresql://USER@HOST:PORT/DATABASE".
        approver: decides on tool calls that need confirmation; default: all are refused.
        hooks: functions that the engine calls before and after tools, children and runs: an object,
            or functions by the event of a settings file, such as "PreToolUse". These take and
            return what a hook program reads and writes.
        hook_programs: programs and addresses of settings files to call. Nothing is read from files
            here, and no trust is asked for.
        workers: worker processes that this session shares with others, in place of `worker`.
        tool_sources: sources of further tools, opened and closed with the session.
        mcp_servers: MCP servers whose tools the runs may use. A server starts when a run first
            needs it, outside the sandbox.
        plugins: plugins whose agents and skills are added to those of `agent_files`. Their hooks
            and MCP servers are options of their own.
        sandbox: where commands run. "full" or "file" isolation, "auto" (the best that works here;
            if none works, each command needs confirmation), "off", or a Sandbox object.
        workspace: the files that file tools see, in place of the folder `cwd`.
        tracing: export traces and metrics of the session with OpenTelemetry.
        permissions: rules and mode for tool calls; default: allow what the sandbox contains and
            refuse what needs confirmation.
        trusted: give agents of the folder the rights that their files ask for; else they only read.
        environ: variables with keys and addresses; default: those of this process.
        resume: id of a recorded session to continue, the first characters of the id, or its name;
            None for a new session. What it was started with is used again, unless it is named
            here: docs/sessions.md lists which options.
        fork: continue a copy of that session under a new id and leave the original unchanged.
        prices: look up prices in a table for the costs in reports. A budget in dollars also turns
            this on. Without it, only free models and prices that a provider states are known.
        child_model_origin: file or variable that the rules of `child_model` come from. A rule for
            an agent that this folder does not have is then left out with a notice.
        output_style_origin: file or record that names the style. It is then left out with a notice
            if there is no such style, and a resumed session keeps the style that it had.
        id: UUID of a new session or of a fork; default: a random one.

    Example:
        options = SessionOptions(model="offline", child_turns=20)
        print(options.max_children)
    """

    model: str | Model = "auto"
    cwd: str = "."
    budget: Budget = Budget()
    prompt_budget: Budget = Budget()
    tools: Sequence[Tool | str] = ()
    agents: Sequence[Agent] = ()
    agent: str | Agent = ""
    agent_files: bool | Sequence[str] = False
    journal: str | Journal = "sqlite"
    store: SessionStore | str | None = None
    approver: Approver | None = None
    hooks: Hooks | Mapping[str, Sequence[HookFunction | HookCallback]] | None = None
    hook_programs: Sequence[HookSpec] = ()
    workers: WorkerProcesses | None = None
    tool_sources: Sequence[ToolSource] = ()
    mcp_servers: Sequence[ServerSpec] = ()
    plugins: Sequence[Plugin] = ()
    sandbox: str | Sandbox = "auto"
    workspace: Workspace | None = None
    permissions: Permissions = Permissions()
    tracing: Tracing | None = None
    trusted: bool = True
    environ: Mapping[str, str] | None = None
    resume: str | None = None
    fork: bool = False
    prices: bool = False
    child_model_origin: str = ""
    output_style_origin: str = ""
    id: str = ""

    def __post_init__(self) -> None:
        for name in (
            "child_turns",
            "max_children",
            "isolated_mb",
            "max_output_tokens",
            "context_window",
        ):
            amount = getattr(self, name)
            is_optional = name in ("max_output_tokens", "context_window")
            if amount is not None or not is_optional:
                check_amount(name, amount, "SessionOptions", is_count=True, minimum=1)
        check_amount("max_returns", self.max_returns, "SessionOptions", is_count=True, minimum=0)
        for name in ("clear_at", "compact_at"):
            percent = getattr(self, name)
            check_amount(name, percent, "SessionOptions", is_count=True, minimum=1, maximum=100)


def make_options(values: Mapping[str, Any]) -> SessionOptions:
    """Return session options with an id.

    Raises UnknownName for an option that does not exist, UsageError for a wrong value.
    """
    names = SessionOptions.__struct_fields__
    if unknown := [name for name in values if name not in names]:
        raise UnknownName("option", unknown[0], names, where="Session")
    options = SessionOptions(**values)
    check_type("options", options, SessionOptions, "Session")
    for option in fields(options):
        value = getattr(options, option.name)
        if option.name == "resume" and value == "":
            continue  # programs that ran before the default was None pass it
        if isinstance(value, str) and value != option.default and not value.strip():
            raise UsageError(
                f"{option.name} is blank",
                where="Session",
                remedy="Leave it out for the default, or give a value.",
            )
    if isinstance(options.journal, str) and options.journal not in JOURNALS:
        raise UnknownName("journal", options.journal, JOURNALS, where="Session")
    try:
        session = uuid.UUID(options.id) if options.id else uuid.uuid4()
    except ValueError as error:
        raise UsageError(
            f"the id {quote_value(options.id)} is not a UUID",
            where="Session",
            remedy="Leave it out for a random one.",
        ) from error
    return replace(options, id=str(session))


class WorkerChoice(NamedTuple):
    """Where children run: "local", "process" or "ray"; `processes`: how many, 0 for the default."""

    kind: str
    processes: int = 0


def parse_worker(worker: str, where: str = "") -> WorkerChoice:
    """Parse the option `worker`. Raises UsageError for an unknown worker.

    Arguments:
        where: place of the value, for the error.
    """
    if worker == "local":
        return WorkerChoice(worker)
    kind, _, count = worker.partition(":")
    counts = {"": 0, **{str(number): number for number in range(1, MAX_PROCESSES + 1)}}
    if kind not in ("process", "ray") or count not in counts:
        raise UsageError(
            f"unknown worker {quote_value(worker)}",
            where=where,
            remedy=(
                'Use "local", "process", "process:N", "ray" or "ray:N", '
                f"N from 1 to {MAX_PROCESSES}."
            ),
        )
    return WorkerChoice(kind, counts[count])


def choose_worker(options: SessionOptions) -> WorkerChoice:
    """Choose where the children of a session run. Raises UsageError for a wrong choice."""
    if options.workers is None:
        return parse_worker(options.worker)
    if options.worker != "local":
        raise UsageError(
            "the options worker and workers are two choices for the same thing",
            where="Session",
            remedy="Leave one of them out.",
        )
    return parse_worker(options.workers.worker)


def use_signature(
    struct: Callable[P, SessionOptions],
) -> Callable[[Callable[Concatenate[A, ...], R]], Callable[Concatenate[A, P], R]]:
    """Give a function with `**options` the signature of SessionOptions, for editors and help."""

    def decorate(function: Callable[Concatenate[A, ...], R]) -> Callable[Concatenate[A, P], R]:
        first, _ = signature(function).parameters.values()
        vars(function)["__signature__"] = _StructSignature(first, struct)
        return function

    return decorate


class _StructSignature(Signature):
    """A first parameter, and the parameters of a struct."""

    def __init__(self, first: Parameter, struct: Callable[..., object]) -> None:
        # Made when they are asked for: editors and help need them, a start does not.
        super().__init__()
        self._first = first
        self._struct = struct

    @property
    def parameters(self) -> MappingProxyType[str, Parameter]:
        return self._make().parameters

    def replace(self, **changes: Any) -> Signature:
        return self._make().replace(**changes)

    def _make(self) -> Signature:
        return Signature([self._first, *signature(self._struct).parameters.values()])
