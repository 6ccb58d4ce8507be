"""What an agent is: its specification, permission mode, workspace and outputs."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Literal

from msgspec import Struct, field

from ..errors import UsageError
from .budgets import Budget, check_amount
from .tool_names import list_call_patterns
from .type_checks import NamedFields


class Mode(StrEnum):
    """How tool calls are decided that no permission rule covers.

    From the strictest mode to the most permissive.

    Example:
        Agent(name="scout", description="Reads only.", mode=Mode.PLAN)
    """

    PLAN = "plan"
    """Allows reading only."""
    DONT_ASK = "dontAsk"
    """Allows reading and what a rule allows; denies every call that would need an approval."""
    DEFAULT = "default"
    """Asks the user before changes; without a user to ask, allows changes inside the sandbox."""
    ACCEPT_EDITS = "acceptEdits"
    """Allows edits, and commands inside a sandbox, without asking."""
    BYPASS = "bypassPermissions"
    """Allows everything that no rule denies."""

    def limit_to(self, outer: Mode) -> Mode:
        """Return the stricter of two modes."""
        if self is outer:
            return self
        order = list(Mode)
        return min(self, outer, key=order.index)


class WorkspaceKind(StrEnum):
    """Which files a run works on.

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
        owner: id of the run an isolated workspace belongs to; runs below it may share it.
        parent: owner of the isolated workspace this one started from; "" for the session's folder.
        tree: id of the file tree the workspace starts with; "" for the parent's current files.
        base: id of the tree that changes are counted against.
        conflicts: what the run must decide if its work came back to it.
        own: id of the tree with its own version of these files.
        machine: name of the machine the starting files were sent to; "" if the run starts where
            the session's folder is.
        has_changes: true if the run may have changed files before it was interrupted, so they
            must still be there. Never recorded.
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
        """True if the run leaves its caller's files alone while it works."""
        return self.kind in (WorkspaceKind.COPY, WorkspaceKind.ISOLATED)

    @property
    def is_snapshot(self) -> bool:
        """True if the run only reads a stored tree in place of the session's folder."""
        return self.kind is WorkspaceKind.FOLDER and bool(self.tree)


class Output(Struct, metaclass=NamedFields, frozen=True, omit_defaults=True):
    """A value a run must emit.

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


Effort = Literal["low", "medium", "high", "xhigh", "max"]
"""How thoroughly a model thinks before it answers."""


class Agent(Struct, metaclass=NamedFields, frozen=True, kw_only=True, gc=False, omit_defaults=True):
    """The specification of an agent.

    Arguments:
        name: lower case; the task tool uses it.
        description: when to delegate to the agent; the parent model reads it.
        instructions: the system prompt.
        tools: tool patterns such as "read", "mcp__*", "bash(git:*)" or "!write", see
            `parse_tool_patterns`. None means all tools the parent has; `task` only if its budget
            leaves another level of children.
        children: names or patterns of the agents its `task` tool may call. None means all.
        child_tools: patterns of the tools those children may use at most. None means all.
        model: "inherit" or a model string.
        budget: limits of one run; the caller fills fields that are None.
        temperature: sampling, 0 to 2. top_p: sampling, 0 to 1. None means the provider's default.
        max_output_tokens: longest answer of the model in tokens; None means the session's limit.
        effort: how thoroughly the model thinks; None means the provider's default. Models without
            such a setting ignore it.
        outputs: values a run must emit, by name. None: it cannot emit values. {}: it may emit
            any value under any name.
        describes_environment: true adds the date, platform and folder to the system prompt.
        context_files: which context files go into the system prompt, if the session reads them:
            "none", "project", or "full" (the project's and the user's).
        mode: permission mode, never wider than the parent's; None means the parent's.
        workspace: SHARED works in the caller's workspace. COPY works in a copy that is removed
            with the run, so only its report remains. ISOLATED: see WorkspaceKind. None leaves the
            choice to the call or the session.
        check: command that must succeed on the merged files before the agent's isolated work is
            merged; "" uses the session's.
        is_teammate: true if a child with this agent is named after it, so that a later message
            starts its next run in the same conversation.
        claims_tasks: true if such a child, when idle, claims the next ready task of the board.
            It is named like a teammate.

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
    effort: Effort | None = None
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
        """The patterns in `tools` that restrict individual calls."""
        return list_call_patterns(self.tools)


def choose_child_model(models: Mapping[str, str], agent: str, parent_model: str) -> str:
    """Resolve "inherit" for a child; in `models`, "*" is any other agent, "" the parent's."""
    return models.get(agent, models.get("*", "")) or parent_model


class FileConflict(Struct, frozen=True, gc=False, omit_defaults=True):
    """A file that a child and its parent both changed in ways no merge can combine.

    It stays open until a run of the child changes one of its paths or names it in its report.

    Arguments:
        path: relative to the workspace.
        kind: see `MergeConflict`.
        paths: all paths of the conflict, such as the old and both new names of a file that both
            sides renamed; a decision about one of them is a decision about all.
        base: id of the content before both changes; "" for none.
        version: what the child's folder has at the path: the "parent" version, the "child"
            version, "both" between conflict marks, or "" for no file.
    """

    path: str
    kind: str
    paths: tuple[str, ...]
    base: str = ""
    version: str = ""
