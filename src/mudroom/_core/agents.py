"""Agents: the specification of an agent, its permission mode and its outputs."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal

from msgspec import Struct, field

from ..errors import UsageError
from .budgets import Budget, check_amount
from .file_conflicts import FileConflict
from .tool_patterns import list_call_patterns
from .type_checks import NamedFields


class Mode(StrEnum):
    """Permission mode: decides tool calls that no rule covers.

    In order from least to most allowed.

    Example:
        Agent(name="scout", description="Reads only.", mode=Mode.PLAN)
    """

    PLAN = "plan"
    """Allows reading only."""
    DONT_ASK = "dontAsk"
    """Allows reading and what a rule allows; denies all calls that need an approval."""
    DEFAULT = "default"
    """Asks the user before changes; without a user to ask, allows changes inside the sandbox."""
    ACCEPT_EDITS = "acceptEdits"
    """Allows edits, and commands inside a sandbox, without asking."""
    BYPASS = "bypassPermissions"
    """Allows everything that no rule denies."""

    def limit_to(self, outer: Mode) -> Mode:
        """Return the mode of the two that allows less."""
        if self is outer:
            return self
        order = list(Mode)
        return min(self, outer, key=order.index)


class WorkspaceKind(StrEnum):
    """Kinds of workspaces of a run.

    Example:
        Agent(name="writer", description="Changes code.", workspace=WorkspaceKind.ISOLATED)
    """

    SHARED = "shared"
    """The folder of the session."""
    COPY = "copy"
    """A copy of a folder, removed when the run ends."""
    FOLDER = "folder"
    """A copy that an ancestor of the run made and still uses."""
    ISOLATED = "isolated"
    """A copy of the caller's files; at the end of the run its changes are merged into them."""


class WorkspaceSpec(Struct, frozen=True, gc=False, omit_defaults=True):
    """The workspace that a run needs.

    Arguments:
        root: absolute path of the folder; the source of a copy. "" means the session's folder.
        owner: id of the run that an isolated workspace belongs to; runs below it may share it.
        parent: owner of the isolated workspace that this one began as; "" for the session's folder.
        tree: id of the tree of files that the workspace begins with; "" for the present files of
            the parent. base: id of the tree since which its changes count.
        conflicts: what the run has to decide, if its work came back to it. own: id of the tree with
            its own version of these files.
        machine: name of the machine to which the files were sent that the run begins with; "" if it
            begins where the folder of the session is.
        has_changes: true if the run may have changed its files before it was interrupted: they must
            be there. It is never recorded.
    """

    kind: WorkspaceKind = WorkspaceKind.SHARED
    root: str = ""
    owner: str = ""
    parent: str = ""
    base: str = ""
    tree: str = ""
    own: str = ""
    conflicts: tuple[FileConflict, ...] = ()
    machine: str = ""
    has_changes: bool = False

    @property
    def has_own_files(self) -> bool:
        """True if the run does not change the files of its caller while it works."""
        return self.kind in (WorkspaceKind.COPY, WorkspaceKind.ISOLATED)

    @property
    def is_snapshot(self) -> bool:
        """True if the run only reads the files of a tree, which stand for the session's folder."""
        return self.kind is WorkspaceKind.FOLDER and bool(self.tree)


class Output(Struct, metaclass=NamedFields, frozen=True, omit_defaults=True):
    """A value that a run must emit.

    Arguments:
        schema: JSON Schema of the value; without one the value is a string.
        optional: true if the run may leave the value out.

    Example:
        pages = Output("how many", {"type": "integer"})
        Agent(name="clerk", outputs={"title": Output("the document's title"), "pages": pages})
    """

    description: str = ""
    schema: dict[str, Any] = {}
    optional: bool = False


class Agent(Struct, metaclass=NamedFields, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """Specification of an agent.

    Arguments:
        name: lower case; the task tool uses it.
        description: when to delegate to the agent; the parent model reads it.
        instructions: the system prompt.
        tools: tool patterns, see `tool_patterns`: "read", "mcp__*", "bash(git:*)", "!write". None
            means all tools of the parent but `task`.
        children: names or patterns of agents that its `task` tool may call. None means all.
        child_tools: patterns of tools that these children may use at most. None means all.
        model: "inherit" or a model string.
        budget: limits of one run; the caller fills fields that are None.
        temperature: sampling, 0 to 2. top_p: sampling, 0 to 1. None means the provider's default.
        max_output_tokens: longest answer of the model in tokens; None means the session's limit.
        outputs: values that a run must emit, by name. With None it cannot emit values; with {}
            it may emit any value under any name.
        describes_environment: true adds date, platform and folder to the system prompt.
        context_files: context files in the system prompt, if the session reads them: "none",
            "project", or "full" (those of the project and of the user).
        mode: permission mode, never wider than the parent's; None means the parent's.
        workspace: SHARED works in the caller's workspace. COPY works in a copy of it, which is
            removed with the run: only its report remains. ISOLATED: see WorkspaceKind. None means
            the kind of the call or of the session.
        check: command that must succeed with the merged files before the work of the agent in an
            isolated workspace is merged; "" for that of the session.
        is_teammate: true if a child with this agent has a name, that of the agent: a message to
            it starts its next run in the same conversation.
        claims_tasks: true if such a child, when it is idle, takes the next ready task of the
            board by itself. It has a name, too.

    Example:
        Agent(
            name="reviewer",
            description="Reviews a diff.",
            instructions="You review…",
            tools=("read", "grep"),
        )
    """

    name: str
    description: str = ""
    instructions: str = ""
    tools: tuple[str, ...] | None = None
    model: str = "inherit"
    budget: Budget = Budget()
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    outputs: dict[str, Output] | None = None
    # `field(name=...)` is the key in the record, see `events.py`.
    describes_environment: bool = field(name="environment", default=True)
    context_files: Literal["none", "project", "full"] = field(name="context", default="full")
    children: tuple[str, ...] | None = None
    child_tools: tuple[str, ...] | None = None
    mode: Mode | None = None
    workspace: WorkspaceKind | None = None
    check: str = ""
    is_teammate: bool = field(name="teammate", default=False)
    claims_tasks: bool = field(name="claims", default=False)

    def __post_init__(self) -> None:
        if isinstance(self.name, str) and not self.name.strip():
            raise UsageError("the name is blank", where="Agent", remedy="Give the agent a name.")
        if self.max_output_tokens is not None:
            amount = self.max_output_tokens
            check_amount("max_output_tokens", amount, "Agent", is_count=True, minimum=1)
        if self.temperature is not None:
            check_amount("temperature", self.temperature, "Agent", is_count=False, maximum=2)
        if self.top_p is not None:
            check_amount("top_p", self.top_p, "Agent", is_count=False, maximum=1)

    @property
    def call_patterns(self) -> tuple[str, ...]:
        """The patterns of `tools` that limit single calls."""
        return list_call_patterns(self.tools)


def choose_child_model(models: Mapping[str, str], agent: str, parent_model: str) -> str:
    """Return the model string of a child whose agent says "inherit".

    Arguments:
        models: agent name -> model string, "" for that of the parent; "*": all other agents.
    """
    return models.get(agent, models.get("*", "")) or parent_model
