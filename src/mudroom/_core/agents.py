"""Who runs (Agent), what goes in (Brief), what comes out (Report), and why it ended (Reason)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Generic

from msgspec import Struct

from .budgets import Budget
from .messages import Message, Usage
from .tools import canonical_tool_name

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    T = TypeVar("T", default=dict[str, Any])
else:
    from typing import TypeVar

    T = TypeVar("T")


class Reason(StrEnum):
    """Why a run ended. Set once, never relabelled.

    Example:
        report = await session.task("Find the author.")
        report.ok == (report.reason is Reason.GOAL)
    """

    GOAL = "GOAL"
    ERROR = "ERROR"
    TIMEOUT = "TIMEOUT"
    MAX_TURNS = "MAX_TURNS"
    CANCELLED = "CANCELLED"
    BUDGET = "BUDGET"
    LOOP = "LOOP"
    LOST = "LOST"


class Mode(StrEnum):
    """What holds for calls that no rule is about, from the narrowest to the widest."""

    PLAN = "plan"
    """Reading only."""
    DONT_ASK = "dontAsk"
    """Reading and what a rule allows; what would be asked is refused."""
    DEFAULT = "default"
    """Changes are asked where a person can be asked; else they are made, within the sandbox."""
    ACCEPT_EDITS = "acceptEdits"
    """Edits, and commands within a sandbox, are not asked."""
    BYPASS = "bypassPermissions"
    """Everything but what a rule denies."""

    def limit_to(self, outer: Mode) -> Mode:
        """The narrower of the two."""
        order = list(Mode)
        return min(self, outer, key=order.index)


class Output(Struct, frozen=True, omit_defaults=True):
    """A value a run emits: what it is, the JSON Schema it must fit (without one it is a string), and whether it may be left out.

    Example:
        Agent(name="clerk", outputs={"title": Output("the document's title"), "pages": Output("how many", {"type": "integer"})})
    """

    description: str = ""
    schema: dict[str, Any] = {}
    optional: bool = False


class Agent(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A specification of who works; not a process.

    Arguments:
        name: lower case, as the task tool names it.
        description: when to hand work to it; the parent model reads this.
        instructions: its system prompt.
        tools: names of the tools it may use, or patterns with *; one that begins with ! is taken away. None is all of its
            parent's but `task`. Brackets say which calls: "bash(git:*)" only these, "!read(.env)" all but these; see `limits`.
        children: names, or patterns, of the agents its `task` tool may call; child_tools: the most these may use. None: all.
        model: "inherit" or a model string.
        budget: limits of one run of it; fields left None come from the caller.
        temperature, top_p: sampling, 0 to 2 and 0 to 1; None leaves it to the provider.
        outputs: values a run must emit, by name; None: it has no way to emit, {}: it may emit anything.
        environment: whether its system prompt ends with date, platform and folder.
        context: which context files its system prompt has, where the session reads them: "none", "project", or "full", the
            person's own too.
        mode: what its runs may do where no rule holds; None is its parent's, and never more than that.

    Example:
        Agent(name="reviewer", description="Reviews a diff.", instructions="You review…", tools=("read", "grep"))
    """

    name: str
    description: str = ""
    instructions: str = ""
    tools: tuple[str, ...] | None = None
    model: str = "inherit"
    budget: Budget = Budget()
    temperature: float | None = None
    top_p: float | None = None
    outputs: dict[str, Output] | None = None
    environment: bool = True
    context: str = "full"
    children: tuple[str, ...] | None = None
    child_tools: tuple[str, ...] | None = None
    mode: Mode | None = None

    @property
    def call_patterns(self) -> tuple[str, ...]:
        """Those of its tools' patterns that are about single calls."""
        return call_patterns(self.tools)


def call_patterns(tools: Iterable[str] | None) -> tuple[str, ...]:
    """Of patterns of tools those with brackets, which are rules for calls; not what allows some calls of a tool that is there whole."""
    patterns = tuple(tools or ())
    whole = [
        canonical_tool_name(pattern)
        for pattern in patterns
        if "(" not in pattern and not pattern.startswith("!")
    ]
    inside = (
        (pattern, canonical_tool_name(pattern.partition("(")[0]))
        for pattern in patterns
        if "(" in pattern
    )
    return tuple(
        pattern
        for pattern, tool in inside
        if pattern.startswith("!") or not any(fnmatchcase(tool, name) for name in whole)
    )


class Brief(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that goes into a run. What is not in here (or carved for it) a run cannot know.

    Arguments:
        run_id: the run's place in the session: "1" is the first root run, "1.3.2" the child its third turn's second call began.
        parent: run id of the parent, "" for a root run; call_id: the parent's call that waits for the report.
        agent: who runs. prompt: what it is told first. description: three to five words for screens.
        tools: names of the tools it has, in order, already narrowed.
        model: the model string, already resolved. budget: already carved.
        mode: what it may do where no rule holds, already narrowed. limits: those of its agent's callers, which hold for it too.
        depth: 0 for a root run. continues: run id whose conversation this one goes on with.
        compacts: whether it tells that conversation in short: whoever goes on with it knows its prompt and its answer, nothing before.
        history: earlier messages of that conversation, oldest first; the record leaves them to the runs they came from.
    """

    run_id: str
    agent: Agent
    prompt: str
    tools: tuple[str, ...]
    model: str
    budget: Budget
    parent: str = ""
    call_id: str = ""
    description: str = ""
    depth: int = 0
    continues: str = ""
    compacts: bool = False
    history: tuple[Message, ...] = ()
    mode: Mode = Mode.DEFAULT
    limits: tuple[tuple[str, ...], ...] = ()


class Report(Struct, Generic[T], frozen=True, kw_only=True, omit_defaults=True):
    """What comes out of a run: as it was, not as one would like it.

    Arguments:
        text: the final words, "" if there are none.
        reason: why it ended. recovered: a limit was hit, and the run still gave a summary.
        outputs: the values it emitted, by name; of the type asked for once the reason is GOAL.
        usd: US dollars of the run and all below it; None if a price is not known, or nobody asked for money.
        usage: tokens of the run and all below it. turns: model calls. seconds: wall-clock time.
        calls: tool name -> how often it ran. failed: how many of those calls were errors.
        files_read, files_changed: as the engine saw them, relative to the workspace, each once, in order.
        run_id: handle to the transcript. agent, model: who wrote it.
        spill: path of the whole text where a parent got only part of it. error: what went wrong, when reason is ERROR.

    Example:
        report: Report = await session.task("Find the author.", agent="explore")
        print(report.text, report.reason, report.usage.total_tokens, report.files_read)
    """

    text: str
    reason: Reason
    run_id: str
    recovered: bool = False
    outputs: T = {}  # pyright: ignore[reportAssignmentType]  (msgspec copies an empty dict)
    usage: Usage = Usage()
    usd: float | None = None
    turns: int = 0
    seconds: float = 0.0
    calls: dict[str, int] = {}
    failed: int = 0
    files_read: tuple[str, ...] = ()
    files_changed: tuple[str, ...] = ()
    agent: str = ""
    model: str = ""
    spill: str = ""
    error: str = ""

    @property
    def ok(self) -> bool:
        """Whether the run ended because it was done."""
        return self.reason is Reason.GOAL
