"""Sample events: one of every stored type, with typical values."""

from __future__ import annotations

from typing import TypedDict

from .._core.agents import Agent, Output
from .._core.budgets import Budget
from .._core.events import (
    CheckFinished,
    CheckStarted,
    Compacted,
    ConversationRewound,
    FileWriteIntended,
    InputAnswered,
    MessageDelivered,
    MessageSent,
    ModelCallRetried,
    NoteInjected,
    PermissionDecided,
    ResultsCleared,
    RunFinished,
    RunResumed,
    RunStarted,
    RunWaiting,
    SessionClosed,
    SessionOpened,
    StoredEvent,
    TeamMessageSent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFailed,
    TurnFinished,
    TurnStarted,
    WorkMerged,
)
from .._core.messages import (
    AssistantMessage,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    Usage,
    UserMessage,
)
from .._core.runs import Brief, InboxMessage, Reason, Report
from .._core.tools import ToolResult

_USAGE = Usage(1200, 34, 1000, 100, 12)
_CALL = ToolCallBlock(
    "toolu_1",
    "read",
    {"path": "src/a.py", "offset": 1, "nested": {"deep": [1, 2.5, None, True, "中文"]}},
    signature="sig",
)
_ANSWER = AssistantMessage(
    (
        ThinkingBlock("Let me look…", "sig"),
        ThinkingBlock("", "", "c2VjcmV0"),
        TextBlock("I will read it.", "seal"),
        _CALL,
    ),
    stop_reason=StopReason.CALLS,
    usage=_USAGE,
    model="some-model-1",
    wire="anthropic",
    id="msg_1",
)
_BRIEF = Brief(
    run_id="1.2.1",
    agent=Agent(
        name="explore",
        description="Searches the code.",
        instructions="Search and change nothing.",
        tools=("read", "grep"),
        model="inherit",
        budget=Budget(turns=30),
        temperature=0.2,
        top_p=0.9,
        describes_environment=False,
        outputs={"count": Output("How many.", {"type": "integer", "minimum": 0}, True)},
    ),
    prompt="Find the tests.\r\n\tHow many are there? 🦀",
    tools=("read", "grep"),
    model="anthropic:some-model-1",
    budget=Budget(30, 60.5, 100_000, 5_000, 0.25, 8, 1),
    parent="1",
    call_id="toolu_0",
    description="count the tests",
    depth=1,
    continues="1.1.1",
    history=(
        UserMessage(
            (TextBlock("Hello"), ToolResultBlock("toolu_9", "bash", "exit code 1", error=True))
        ),
        _ANSWER,
    ),
)
_RESULT = ToolResult(
    "1\tdef a(): …",
    error=True,
    display="src/a.py: 1 line",
    detail={"bytes": 12, "cut": False},
    reads=("src/a.py",),
    changes=("src/b.py",),
    spill="/tmp/spill/1.txt",
)
_REPORT = Report(
    text="There are 12.",
    reason=Reason.MAX_TURNS,
    run_id="1.2.1",
    recovered=True,
    outputs={"count": 12},
    usage=_USAGE,
    turns=3,
    seconds=1.25,
    calls={"read": 2, "grep": 1},
    failed=1,
    files_read=("src/a.py",),
    files_changed=("src/b.py",),
    agent="explore",
    model="anthropic:some-model-1",
    spill="/tmp/spill/2.txt",
    error="none",
)


class _Stamp(TypedDict):
    """Fields of an event inside a turn."""

    at: float
    run: str
    turn: int
    prompt_id: str


def every_event(run: str = "1.2.1", at: float = 1_790_000_000.25) -> tuple[StoredEvent, ...]:
    """Make one event of every stored type, in the order of a session.

    `at`: seconds since 1970.
    """
    prompt_id = f"s1#{run}#2"
    return (
        SessionOpened(
            at=at,
            session="s1",
            cwd="/home/someone/project",
            version="0.1.0",
            sandbox="off",
            rights=("network", "allow bash(make)"),
        ),
        RunStarted(at=at, run=run, prompt_id=prompt_id, brief=_BRIEF),
        RunResumed(at=at, run=run, prompt_id=prompt_id),
        *_input_events({"at": at, "run": run, "turn": 1, "prompt_id": prompt_id}),
        *_turn_events({"at": at, "run": run, "turn": 2, "prompt_id": prompt_id}),
        *_call_events({"at": at, "run": run, "turn": 2, "prompt_id": prompt_id}),
        RunFinished(at=at, run=run, turn=3, prompt_id=prompt_id, report=_REPORT),
        ConversationRewound(at=at, latest_run="1"),
        SessionClosed(at=at),
    )


def _input_events(stamp: _Stamp) -> tuple[StoredEvent, ...]:
    return (
        NoteInjected(**stamp, text="All calls failed: try another way.", origin="user"),
        MessageSent(**stamp, message=InboxMessage("m1", "Be brief.")),
        MessageDelivered(**stamp, text="Be brief.", origin="user", message_id="m1"),
        TeamMessageSent(
            **stamp,
            to="alice",
            child="1.1.1",
            message=InboxMessage("1.1.2", "Go on.", "1", name="parent", approve=True),
        ),
        TeamMessageSent(
            **stamp,
            to="coder",
            child="1.1.2",
            message=InboxMessage("t3", "Write code", "mudroom", task=3),
        ),
        TeamMessageSent(
            at=stamp["at"],
            to="alice",
            child="1.1.1",
            message=InboxMessage("m2", "And the window?"),
            after="1",
        ),
        RunWaiting(**stamp, runs=("1.2.1.1.1", "1.2.1.1.2")),
        RunWaiting(**stamp, runs=("1.2.1.1.1",), is_interrupted=True),
        WorkMerged(
            **stamp,
            child="1.2.1.1.1",
            state="conflict",
            conflicts=(("src/config.py", "both-modified"),),
            text="[merge: not done, 1 conflict]",
        ),
        CheckStarted(**stamp, command="make test", tree="4b1f", children=("1.2.1.1.1",)),
        CheckFinished(
            **stamp,
            command="make test",
            tree="4b1f",
            children=("1.2.1.1.1",),
            exit_code=2,
            seconds=1.25,
            output="1 failed",
        ),
    )


def _turn_events(stamp: _Stamp) -> tuple[StoredEvent, ...]:
    return (
        TurnStarted(**stamp, summary_reason=Reason.MAX_TURNS),
        ModelCallRetried(**stamp, attempt=1, delay=0.5, status=529, error="overloaded"),
        TurnFailed(**stamp, error="connection lost", transient=True),
        ResultsCleared(**stamp, texts={"toolu_0": "[cleared]"}, tokens=20_000),
        Compacted(
            **stamp,
            messages=(UserMessage((TextBlock("The user said …"),)), _ANSWER),
            cause="overflow",
            before=200_000,
            after=31_000,
            summary_run="1.2.c1",
            parts={"files": 3},
        ),
        TurnFinished(**stamp, message=_ANSWER, seconds=0.75),
    )


def _call_events(stamp: _Stamp) -> tuple[StoredEvent, ...]:
    return (
        PermissionDecided(
            **stamp,
            call_id="toolu_1",
            name="read",
            verdict="ask",
            allowed=True,
            policy_reason="no rule allows it",
            approver_reason="once",
            rule="ask read(.env) (flag)",
            command_part="cat .env",
        ),
        ToolCallStarted(**stamp, call=_CALL),
        FileWriteIntended(**stamp, call_id="toolu_1", path="src/b.py", after="e3b0c442", before=""),
        InputAnswered(
            **stamp,
            call_id="toolu_1",
            name="mcp__git__commit",
            server="git",
            message="Which branch?",
            allowed=True,
            url="https://example.com/login",
            why="the user answered",
            values={"branch": "main"},
        ),
        ToolCallFinished(
            **stamp, call_id="toolu_1", name="read", result=_RESULT, seconds=0.01, refused=True
        ),
    )
