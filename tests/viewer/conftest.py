"""Sessions to look at: a large one of two hundred children, and one that means harm."""

import random
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from mudroom._core.agents import Agent, Brief, Reason, Report
from mudroom._core.budgets import Budget
from mudroom._core.events import (
    ModelCallRetried,
    NoteInjected,
    RunFinished,
    RunStarted,
    SessionClosed,
    SessionOpened,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
    TurnStarted,
)
from mudroom._core.messages import (
    AssistantMessage,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
)
from mudroom._core.tools import ToolResult
from mudroom.journals.sqlite.journal import SqliteJournal

WORDS = (
    "the",
    "loop",
    "holds",
    "every",
    "run",
    "to",
    "its",
    "brief",
    "and",
    "a",
    "child",
    "reads",
    "what",
    "parent",
    "never",
    "sees",
)
AREAS = (
    "journal",
    "models",
    "sandbox",
    "toolkit",
    "engine",
    "workers",
    "session",
    "config",
    "screens",
    "agents",
)


@dataclass
class Script:
    """Makes the events of a session as an engine would record them, on a clock of its own."""

    seed: int = 7
    at: float = 1_790_000_000.0
    session: str = "5e55a1d0-0000-4000-8000-000000000001"
    events: list[StoredEvent] = field(default_factory=list[StoredEvent])

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.ids = (f"call_{n}" for n in count(1))

    def words(self, number: int) -> str:
        return " ".join(self.chance.choice(WORDS) for _ in range(number))

    def lines(self, number: int) -> str:
        return "\n".join(f"{n:>6}\t{self.words(9)}" for n in range(1, number + 1)) + "\n"

    def opened(self) -> None:
        self.events.append(
            SessionOpened(
                at=self.at,
                session=self.session,
                cwd="/home/someone/garden",
                version="0.1.0",
                sandbox="full",
            )
        )

    def started(self, run: str, prompt: str, at: float, **brief: Any) -> None:
        agent = Agent(
            name=brief.pop("agent", "main"),
            instructions=f"You work in a garden. {self.words(60)}.",
            budget=Budget(turns=30),
        )
        given = Brief(
            run_id=run,
            agent=agent,
            prompt=prompt,
            tools=("bash", "read", "edit", "grep", "todo"),
            model="anthropic:claude-sonnet-4-5",
            budget=Budget(turns=30, seconds=600),
            **brief,
        )
        self.events.append(RunStarted(at=at, run=run, brief=given))

    def turn(
        self, run: str, number: int, at: float, took: float, content: tuple[Any, ...], read: int
    ) -> None:
        calls = any(isinstance(block, ToolCallBlock) for block in content)
        self.events.append(TurnStarted(at=at, run=run, turn=number))
        message = AssistantMessage(
            content,
            stop_reason=StopReason.CALLS if calls else StopReason.END,
            usage=Usage(read, self.chance.randint(40, 400), cache_read_tokens=read * 3 // 4),
            model="claude-sonnet-4-5",
        )
        self.events.append(
            TurnFinished(at=at + took, run=run, turn=number, message=message, seconds=took)
        )

    def call(
        self,
        run: str,
        turn: int,
        at: float,
        took: float,
        call: ToolCallBlock,
        result: ToolResult,
        *,
        refused: bool = False,
    ) -> None:
        self.events.append(ToolCallStarted(at=at, run=run, turn=turn, call=call))
        self.events.append(
            ToolCallFinished(
                at=at + took,
                run=run,
                turn=turn,
                call_id=call.id,
                name=call.name,
                result=result,
                seconds=took,
                refused=refused,
            )
        )

    def finished(
        self, run: str, at: float, text: str, reason: Reason = Reason.GOAL, **report: Any
    ) -> None:
        self.events.append(
            RunFinished(
                at=at, run=run, report=Report(text=text, reason=reason, run_id=run, **report)
            )
        )

    def pick(self, n: int, file: str) -> tuple[ToolCallBlock, ToolResult]:
        """Some call and what came of it."""

        def call(name: str, **given: Any) -> ToolCallBlock:
            return ToolCallBlock(next(self.ids), name, given)

        match n % 6:
            case 0:
                return call("read", file_path=file), ToolResult(
                    self.lines(self.chance.randint(20, 60)), reads=(file,)
                )
            case 1:
                return call("grep", pattern="def (run|walk)", path="src"), ToolResult(
                    f"{file}:12:    def run(self) -> None:\n" * 8
                )
            case 2:
                return call("bash", command=f"pytest -q {file}"), ToolResult(
                    "\x1b[32m.....F..\x1b[0m\n1 failed, 7 passed in 0.41s\n", error=n % 4 == 0
                )
            case 3:
                old = "def walk(self):\n    for each in self.all:\n        yield each\n"
                new = "def walk(self) -> Iterator[Run]:\n    for each in self.all:\n        yield each\n        yield from each.walk()\n"
                return call("edit", file_path=file, old_string=old, new_string=new), ToolResult(
                    f"edited {file} (line 12)", changes=(file,)
                )
            case 4:
                todos = [
                    {"content": self.words(5), "status": status}
                    for status in ("completed", "completed", "in_progress", "pending")
                ]
                return call("todo", todos=todos), ToolResult("(2/4 completed)")
            case _:
                return call("glob", pattern="src/**/*.py"), ToolResult(
                    "\n".join(f"src/{area}/{n}.py" for area in AREAS)
                )

    def child(self, run: str, call_id: str, at: float, turns: int = 6) -> tuple[float, str]:
        """A child of three calls a turn; when it ended, and its report."""
        parent, n = run.split(".")[0], int(run.rpartition(".")[2])
        area, agent = AREAS[n % len(AREAS)], ("explore", "general", "reviewer")[n % 3]
        prompt = f"Read all of src/{area} and say what each file promises.\nName every function that breaks its promise.\n{self.words(30)}."
        self.started(
            run,
            prompt,
            at,
            agent=agent,
            parent=parent,
            call_id=call_id,
            description=f"promises of {area} {n}",
            depth=1,
        )
        read, now = 2_000, at
        for number in range(1, turns + 1):
            calls = [self.pick(n + number + k, f"src/{area}/{self.words(1)}.py") for k in range(3)]
            took = self.chance.uniform(0.6, 4.0)
            if n % 17 == 5 and number == 2:
                self.events.append(
                    ModelCallRetried(
                        at=now + 0.2,
                        run=run,
                        turn=number,
                        attempt=1,
                        delay=1.5,
                        status=529,
                        error="overloaded",
                    )
                )
            content = (
                ThinkingBlock(self.words(30)),
                TextBlock(
                    f"I look at `{area}` now: **{self.words(6)}**.\n\n- {self.words(5)}\n- {self.words(6)}"
                ),
            )
            self.turn(run, number, now, took, (*content, *(call for call, _ in calls)), read)
            now += took
            for call, result in calls:
                self.call(
                    run,
                    number,
                    now,
                    spent := self.chance.uniform(0.01, 1.2),
                    call,
                    result,
                    refused=n % 23 == 7 and number == 3,
                )
                now += spent * 0.4
                read += len(result.text) // 4
            now += 0.8
        text = f"{area}: {self.words(40)}.\n\n1. {self.words(8)}\n2. {self.words(8)}"
        self.turn(run, turns + 1, now, 1.4, (TextBlock(text),), read)
        reason = Reason.MAX_TURNS if n % 31 == 9 else Reason.ERROR if n % 41 == 11 else Reason.GOAL
        error = "the provider refused: HTTP 401" if reason is Reason.ERROR else ""
        self.finished(
            run,
            now + 1.4,
            text,
            reason,
            turns=turns + 1,
            calls={"read": turns * 3},
            error=error,
            usd=0.012,
        )
        return now + 1.4, text

    def root(self, run: str, prompt: str, waves: int, wide: int, **brief: Any) -> None:
        """A parent that hands out `waves` times `wide` children, and closes with their reports."""
        start, context = self.at, 3_000
        self.started(run, prompt, start, **brief)
        for number in range(1, waves + 1):
            calls = [
                ToolCallBlock(
                    next(self.ids),
                    "task",
                    {"prompt": f"Part {number}.{k}: {self.words(12)}", "agent": "explore"},
                )
                for k in range(1, wide + 1)
            ]
            self.turn(
                run,
                number,
                self.at,
                2.2,
                (TextBlock(f"Wave {number}: {wide} children."), *calls),
                context,
            )
            self.at += 2.2
            parts: list[tuple[float, list[StoredEvent]]] = []
            kept, self.events = self.events, []
            for k, call in enumerate(calls, 1):
                begun = self.at + self.chance.uniform(0, 3)
                self.events.append(ToolCallStarted(at=self.at, run=run, turn=number, call=call))
                ended, text = self.child(f"{run}.{number}.{k}", call.id, begun)
                result = ToolResult(
                    f"{text}\n[evidence: 18 tool calls]", detail={"run": f"{run}.{number}.{k}"}
                )
                self.events.append(
                    ToolCallFinished(
                        at=ended,
                        run=run,
                        turn=number,
                        call_id=call.id,
                        name="task",
                        result=result,
                        seconds=ended - begun,
                    )
                )
                parts.append((ended, self.events))
                context += len(result.text) // 4
                self.events = []
            self.events = kept + sorted(
                (event for _, some in parts for event in some), key=lambda event: event.at
            )
            self.at = max(ended for ended, _ in parts)
        self.events.append(
            NoteInjected(
                at=self.at, run=run, turn=waves, text="All tool calls of this turn are done."
            )
        )
        found = f"- **journal**: {self.words(10)}\n- `engine`: {self.words(10)}"
        answer = f"## What I found\n\n{self.words(60)}.\n\n{found}\n\n```\n$ make test\n```"
        self.turn(run, waves + 1, self.at, 5.0, (TextBlock(answer),), context)
        self.at += 5.0
        self.finished(
            run, self.at, answer, turns=waves + 1, calls={"task": waves * wide}, usd=2.4 + 0.31
        )

    def closed(self) -> None:
        self.events.append(SessionClosed(at=self.at))


def large() -> Script:
    """200 children, more than 10,000 events."""
    script = Script()
    script.opened()
    script.root(
        "1",
        "Find every promise this project makes in its docstrings, and say which of them no test holds it to.",
        4,
        50,
    )
    script.closed()
    return script


HOSTILE = '</script><script>window.hurt = 1</script><img src=x onerror="window.hurt = 1">\u202e<b>\x1b]0;title\x07\u2028&amp;'


def hostile() -> Script:
    """Text from a model or a tool that tries to be markup, in every place where text can stand."""
    script = Script(session="5e55a1d0-0000-4000-8000-00000000bad1")
    script.events.append(
        SessionOpened(at=script.at, session=script.session, cwd=HOSTILE, version=HOSTILE)
    )
    script.started("1", HOSTILE, script.at, agent=HOSTILE, description=HOSTILE)
    names = ("bash", "edit", "write", "todo", "task", "read", HOSTILE)
    given: list[dict[str, Any]] = [
        {"command": HOSTILE},
        {"file_path": HOSTILE, "old_string": HOSTILE, "new_string": HOSTILE + "x"},
        {"file_path": HOSTILE, "content": HOSTILE},
        {"todos": [{"content": HOSTILE, "status": HOSTILE}, None, HOSTILE]},
        {"prompt": HOSTILE, "description": HOSTILE},
        {"file_path": HOSTILE},
        {HOSTILE: HOSTILE, "deep": [HOSTILE, {HOSTILE: [None]}]},
    ]
    calls = [
        ToolCallBlock(f"c{n}{HOSTILE}", name, arguments)
        for n, (name, arguments) in enumerate(zip(names, given, strict=True))
    ]
    script.turn(
        "1",
        1,
        script.at,
        1.0,
        (
            ThinkingBlock(HOSTILE),
            TextBlock(f"# {HOSTILE}\n```\n{HOSTILE}\n```\n- {HOSTILE}"),
            *calls,
        ),
        100,
    )
    for call in calls:
        script.call(
            "1", 1, script.at + 1, 0.5, call, ToolResult(HOSTILE, error=True, spill=HOSTILE)
        )
    script.events.append(
        NoteInjected(at=script.at + 2, run="1", turn=1, text=HOSTILE, origin=HOSTILE)
    )
    script.finished(
        "1",
        script.at + 3,
        HOSTILE,
        error=HOSTILE,
        outputs={HOSTILE: HOSTILE},
        files_read=(HOSTILE,),
        calls={HOSTILE: 1},
    )
    return script


async def record(home: Path, script: Script) -> None:
    """Write a session's file."""
    journal = SqliteJournal.open(
        home / "sessions" / f"{script.session}.db", session=script.session, create=True
    )
    try:
        await journal.append(*script.events)
    finally:
        await journal.close()


@pytest.fixture
def scripts() -> Iterator[Any]:
    """What makes sessions: Script, large, hostile, record, HOSTILE."""
    yield types.SimpleNamespace(
        Script=Script, large=large, hostile=hostile, record=record, HOSTILE=HOSTILE
    )
