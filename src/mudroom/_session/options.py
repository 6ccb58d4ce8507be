"""Options of a session, as `Session` takes them and `build.py` uses them."""

from __future__ import annotations

import uuid
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from inspect import Parameter, Signature, signature
from types import MappingProxyType
from typing import Any, Concatenate, NamedTuple, ParamSpec, TypeVar, get_args

from msgspec import Struct
from msgspec.structs import FieldInfo, fields, replace

from .._adapters.integrations.hook_programs.spec import HookSpec
from .._adapters.integrations.mcp_servers.spec import ServerSpec
from .._adapters.integrations.plugins.spec import Plugin
from .._adapters.integrations.tracing.spec import Tracing
from .._core.agents import Agent
from .._core.budgets import Budget, check_amount
from .._core.options import Children, Compaction, Isolation, ModelOptions, OptionGroup
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
from .._core.type_checks import NamedFields, check_type
from ..errors import UnknownName, UsageError, quote_value
from ..permissions.rules import Permissions

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S", bound=Struct)
JOURNALS = ("sqlite", "memory")
# Of one session.
MAX_PROCESSES = 64


class SharedOptions(Struct, metaclass=NamedFields, frozen=True, kw_only=True):
    """Options that programs and settings files have in common.

    `SessionOptions` and `config.Settings` inherit them, so that each is declared once. A settings
    file has the groups' fields one by one, under their encoded names.

    Arguments:
        allow_net: let commands reach the network, and offer the tool `web_fetch`.
        home: mudroom's state folder, with the session files; default: `$MUDROOM_HOME`, else a
            folder below the user's state folder.
        children: what child runs get, and how many run at once.
        isolation: isolated workspaces of children, and checks before a merge.
        compaction: when conversations are shortened.
        model_options: fallbacks, limits and prices of models.
    """

    allow_net: bool = False
    home: str = ""
    children: Children = Children()
    isolation: Isolation = Isolation()
    compaction: Compaction = Compaction()
    model_options: ModelOptions = ModelOptions()


class Integrations(OptionGroup, frozen=True, kw_only=True):
    """What a session takes from the folder's files and from other programs.

    Arguments:
        agent_files: read agent files, skills and context files (AGENTS.md, CLAUDE.md, ...) of the
            folder and of the user's HOME in `environ`; or only some: "user", "project", and "local"
            to include the user's own CLAUDE.local.md with "project".
        trusted: give the folder's agents the rights their files ask for; otherwise they only read.
        output_style: output style of the agent that runs the prompts; "default" for none. Children
            never have one.
        plugins: plugins whose agents and skills join those of `agent_files`. Their hooks and MCP
            servers are separate options.
        mcp_servers: MCP servers whose tools the runs may use. A server starts, outside the sandbox,
            when a run first needs it.
        hooks: functions that the engine calls before and after tools, children and runs: an object,
            or functions by a settings file's event, such as "PreToolUse". These take and return
            what a hook program reads and writes.
        hook_programs: programs and addresses from settings files to call. Nothing is read from
            files here, and nobody is asked for trust.
        tool_sources: sources of more tools, opened and closed with the session.
        tracing: export the session's traces and metrics with OpenTelemetry.
        origins: the file, variable or record that the settings `child_model` and `output_style`
            come from, by name. A rule for an agent missing in this folder, or a missing style, is
            then left out with a notice.

    Example:
        programs = load_usable_programs(".")
        integrations = Integrations(agent_files=True, mcp_servers=programs.servers)
        session = Session(model="offline", cwd=".", integrations=integrations)
    """

    agent_files: bool | Sequence[str] = False
    trusted: bool = True
    output_style: str = ""
    plugins: Sequence[Plugin] = ()
    mcp_servers: Sequence[ServerSpec] = ()
    hooks: Hooks | Mapping[str, Sequence[HookFunction | HookCallback]] | None = None
    hook_programs: Sequence[HookSpec] = ()
    tool_sources: Sequence[ToolSource] = ()
    tracing: Tracing | None = None
    origins: Mapping[str, str] = {}


class SessionOptions(SharedOptions, frozen=True, kw_only=True):
    """Everything that can be chosen when opening a session. `Session(...)` takes the same names.

    Arguments:
        model: a model string ("anthropic:claude-sonnet-4-5", "ollama:qwen3:8b", "offline"), a
            Model object, or "auto": the first provider in `environ` that has a key or a local
            server. If there is none, the session does not open.
        cwd: the folder that file tools are limited to, or a Workspace object for them to use
            instead.
        budget: limits of all the session's runs together: prompts, tasks, scopes and the runs below
            them. A resumed session includes its earlier runs.
        prompt_budget: limits of each prompt, including its child runs.
        tools: the caller's own tools, in addition to the built-in ones. A tool with a built-in
            name replaces that tool; `Agent.tools` selects what an agent has. A plain function
            becomes a tool as if decorated with `tool`. A text "package.module:name" names a tool
            that each process imports for itself.
        agents: the caller's agents for `task`. One with a built-in agent's name replaces it.
        agent: the agent that runs the prompts, or its name; default: the built-in one.
        permissions: rules and mode for tool calls; default: allow what the sandbox contains and
            refuse what would need confirmation.
        approver: decides on tool calls that need confirmation; default: refuse them all.
        sandbox: where commands run: "full" or "file" isolation, "auto" (the best that works here;
            if none does, every command needs confirmation), "off", or a Sandbox object.
        worker: where children run: "local" (this process), "process" (one process per
            processor) or "process:N", N from 1 to 64; "ray" or "ray:N" (processes on the nodes of
            the Ray cluster of the variable RAY_ADDRESS, or of one that is started here); or the
            worker processes that several sessions share, an open `mudroom.Workers`.
        environ: variables with keys and addresses; default: those of this process.
        journal: "sqlite" (a file below `home`), "memory", or a Journal object.
        store: where the session is created or resumed instead of the files in `home`: a
            SessionStore, or the address of a PostgreSQL database,
            "postgresql://USER@HOST:PORT/DATABASE".
        resume: id of a recorded session to continue, the first characters of the id, or its name;
            None for a new session. Its options apply again unless they are given here; see
            docs/sessions.md for which ones. A group's field counts as given only if it differs from
            its default.
        fork: continue a copy of that session under a new id, leaving the original unchanged.
        id: UUID of a new session or of a fork; default: a random one.
        integrations: agent files, MCP servers, hooks, plugins and traces.

    Example:
        options = SessionOptions(model="offline", children=Children(turns=20))
        print(options.children.parallel)
    """

    model: str | Model = "auto"
    cwd: str | Workspace = "."
    budget: Budget = Budget()
    prompt_budget: Budget = Budget()
    tools: Sequence[Tool | Callable[..., Any] | str] = ()
    agents: Sequence[Agent] = ()
    agent: str | Agent = ""
    permissions: Permissions = Permissions()
    approver: Approver | None = None
    sandbox: str | Sandbox = "auto"
    worker: str | WorkerProcesses = "local"
    environ: Mapping[str, str] | None = None
    journal: str | Journal = "sqlite"
    store: SessionStore | str | None = None
    resume: str | None = None
    fork: bool = False
    id: str = ""
    integrations: Integrations = Integrations()

    def __post_init__(self) -> None:
        for place, minimum, maximum in _list_amounts():
            owner = place.find_owner(self)
            # `make_options` refuses a value that is not the group.
            if not isinstance(owner, place.owner):
                continue
            amount = getattr(owner, place.field.name)
            if amount is not None or place.field.default is not None:
                check_amount(
                    place.field.name,
                    amount,
                    place.owner.__name__,
                    is_count=True,
                    minimum=minimum,
                    maximum=maximum,
                )


class Place(NamedTuple):
    """A field of the options, or of their field `group`."""

    group: str | None
    field: FieldInfo
    owner: type[Struct]

    def find_owner(self, options: Struct) -> Any:  # noqa: ANN401  of any group
        return options if self.group is None else getattr(options, self.group)

    def read(self, options: Struct) -> Any:  # noqa: ANN401  of the option
        return getattr(self.find_owner(options), self.field.name)


@cache
def list_places(struct: type[Struct]) -> dict[str, Place]:
    """Map the flat names used in settings files, flags and the record to the options' places."""
    places: dict[str, Place] = {}
    for field in fields(struct):
        if not isinstance(field.default, OptionGroup):
            places[field.encode_name] = Place(None, field, struct)
            continue
        owner = type(field.default)
        for inner in fields(field.default):
            places[inner.encode_name] = Place(field.name, inner, owner)
    return places


@cache
def _list_amounts() -> tuple[tuple[Place, int, int | None], ...]:
    """List the options that are amounts, each with its smallest and largest value."""
    amounts: list[tuple[Place, int, int | None]] = []
    for place in list_places(SessionOptions).values():
        # An `int` with limits, perhaps as a member of a union.
        for hint in (place.field.type, *get_args(place.field.type)):
            for meta in getattr(hint, "__metadata__", ()):
                largest = None if meta.le is None else int(meta.le)
                amounts.append((place, int(meta.ge or 0), largest))
    return tuple(amounts)


def gather_options(values: Mapping[str, Any], base: Struct) -> dict[str, Any]:
    """Put options with flat names into their groups, taken from `values` or `base`."""
    places = list_places(type(base))
    gathered: dict[str, Any] = {}
    changes: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        place = places.get(name)
        if place is None or place.group is None:
            gathered[name] = value
        else:
            changes.setdefault(place.group, {})[place.field.name] = value
    for group, changed in changes.items():
        gathered[group] = replace(gathered.get(group, getattr(base, group)), **changed)
    return gathered


def change_options(options: S, values: Mapping[str, Any]) -> S:
    return replace(options, **gather_options(values, options))


def list_chosen(values: Mapping[str, Any]) -> frozenset[str]:
    """List the flat names of the options that arguments of `Session` choose.

    In a group, these are the fields that differ from their defaults, since a group does not know
    which of its fields were given.
    """
    chosen = set(values)
    for name, place in list_places(SessionOptions).items():
        if place.group is not None and place.group in values:
            value = getattr(values[place.group], place.field.name)
            if value != place.field.default:
                chosen.add(name)
    return frozenset(chosen)


def make_options(values: Mapping[str, Any]) -> SessionOptions:
    """Make session options with an id. Flat names for options in groups are deprecated.

    Raises UnknownName for an option that does not exist, UsageError for a wrong value.
    """
    names = SessionOptions.__struct_fields__
    places = list_places(SessionOptions)
    if unknown := [name for name in values if name not in names and name not in places]:
        raise UnknownName("option", unknown[0], names, where="Session")
    for name in values:
        if name not in names:
            group, field, owner = places[name]
            text = (
                f"Session({name}=...) is deprecated: use {group}={owner.__name__}({field.name}=...)"
            )
            warnings.warn(text, DeprecationWarning, stacklevel=3)
    options = SessionOptions(**gather_options(values, SessionOptions()))
    check_type("options", options, SessionOptions, "Session")
    for name, place in places.items():
        value = place.read(options)
        if name == "resume" and value == "":
            continue  # programs that ran before the default was None pass it
        if isinstance(value, str) and value != place.field.default and not value.strip():
            raise UsageError(
                f"{place.field.name} is blank",
                where="Session" if place.group is None else place.owner.__name__,
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
    """Where children run: "local", "process" or "ray", with `processes`, 0 for the default."""

    kind: str
    processes: int = 0


def parse_worker(worker: str, where: str = "") -> WorkerChoice:
    """Parse the option `worker`. Raises UsageError for an unknown worker."""
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
    worker = options.worker
    return parse_worker(worker if isinstance(worker, str) else worker.worker)


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
    def __init__(self, first: Parameter, struct: Callable[..., object]) -> None:
        # Made on demand: editors and help need them, starting a session does not.
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
