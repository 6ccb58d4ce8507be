"""Builders of sessions for the viewer tests: one with 200 children, and one with hostile text."""

import random
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from mudroom._adapters.journals.sqlite.journal import SqliteJournal
from mudroom._core.agents import Agent
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
    TurnFinished,
    TurnStarted,
    encode_event,
)
from mudroom._core.messages import (
    AssistantMessage,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
)
from mudroom._core.runs import Brief, Reason, Report
from mudroom._core.tools import ToolResult
from mudroom._projections.session_summary import SessionSummary, summarize_session
from mudroom._viewer.sources import MAX_LISTED, EventPage, SessionList, collect_page
from mudroom._viewer.work import WorkPage, WorkQuery
from mudroom.errors import UnknownName
from mudroom.testing.event_builders import tool_call_started

WORDS = ("the", "loop", "holds", "every", "run", "to", "its", "brief", "and", "child")
AREAS = ("journal", "models", "sandbox", "engine", "workers", "session", "config", "agents")


@dataclass
class SessionBuilder:
    """Builder of the events of a session, as the engine records them, with its own clock."""

    seed: int = 7
    at: float = 1_790_000_000.0
    session: str = "5e55a1d0-0000-4000-8000-000000000001"
    events: list[StoredEvent] = field(default_factory=list[StoredEvent])

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.ids = (f"call_{n}" for n in count(1))

    def make_words(self, number: int) -> str:
        return " ".join(self.random.choice(WORDS) for _ in range(number))

    def make_lines(self, number: int) -> str:
        return "\n".join(f"{n:>6}\t{self.make_words(9)}" for n in range(1, number + 1)) + "\n"

    def open_session(self) -> None:
        folder = "/home/someone/garden"
        opened = SessionOpened(at=self.at, session=self.session, cwd=folder, version="0.1.0")
        self.events.append(replace(opened, sandbox="full"))

    def start_run(self, run: str, prompt: str, at: float, **brief: Any) -> None:
        agent = Agent(
            name=brief.pop("agent", "main"),
            instructions=f"You work in a garden. {self.make_words(60)}.",
            budget=Budget(turns=30),
        )
        run_brief = Brief(
            run_id=run,
            agent=agent,
            prompt=prompt,
            tools=("bash", "read", "edit", "grep", "todo"),
            model="anthropic:claude-sonnet-4-5",
            budget=Budget(turns=30, seconds=600),
            **brief,
        )
        self.events.append(RunStarted(at=at, run=run, brief=run_brief))

    def add_turn(
        self, run: str, number: int, at: float, took: float, content: tuple[Any, ...], read: int
    ) -> None:
        calls = any(isinstance(block, ToolCallBlock) for block in content)
        message = AssistantMessage(
            content,
            stop_reason=StopReason.CALLS if calls else StopReason.END,
            usage=Usage(read, self.random.randint(40, 400), cache_read_tokens=read * 3 // 4),
            model="claude-sonnet-4-5",
        )
        ended = TurnFinished(at=at + took, run=run, turn=number, message=message, seconds=took)
        self.events += [TurnStarted(at=at, run=run, turn=number), ended]

    def add_call(
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
        self.events.append(tool_call_started(run, call, at=at, turn=turn))
        facts: dict[str, Any] = {"run": run, "turn": turn, "call_id": call.id, "name": call.name}
        self.events.append(
            ToolCallFinished(at=at + took, result=result, seconds=took, refused=refused, **facts)
        )

    def finish_run(
        self, run: str, at: float, text: str, reason: Reason = Reason.GOAL, **report: Any
    ) -> None:
        ended = Report(text=text, reason=reason, run_id=run, **report)
        self.events.append(RunFinished(at=at, run=run, report=ended))

    def make_call(self, n: int, file: str) -> tuple[ToolCallBlock, ToolResult]:
        def call(name: str, **arguments: Any) -> ToolCallBlock:
            return ToolCallBlock(next(self.ids), name, arguments)

        match n % 6:
            case 0:
                text = self.make_lines(self.random.randint(20, 60))
                return call("read", file_path=file), ToolResult(text, reads=(file,))
            case 1:
                text = f"{file}:12:    def run(self) -> None:\n" * 8
                return call("grep", pattern="def (run|walk)", path="src"), ToolResult(text)
            case 2:
                text = "\x1b[32m.....F..\x1b[0m\n1 failed, 7 passed in 0.41s\n"
                return call("bash", command=f"pytest {file}"), ToolResult(text, error=n % 4 == 0)
            case 3:
                old = "def walk(self):\n    for each in self.all:\n        yield each\n"
                new = f"{old}        yield from each.walk()\n"
                block = call("edit", file_path=file, old_string=old, new_string=new)
                return block, ToolResult(f"edited {file} (line 12)", changes=(file,))
            case 4:
                states = ("completed", "in_progress", "pending")
                todos = [{"content": self.make_words(5), "status": state} for state in states]
                return call("todo", todos=todos), ToolResult("(1/3 completed)")
            case _:
                text = "\n".join(f"src/{area}/{n}.py" for area in AREAS)
                return call("glob", pattern="src/**/*.py"), ToolResult(text)

    def add_child(self, run: str, call_id: str, at: float, turns: int = 6) -> tuple[float, str]:
        """Add a child with three calls per turn; return its end time and its report."""
        n = int(run.rpartition(".")[2])
        area = AREAS[n % len(AREAS)]
        prompt = f"Read all of src/{area} and say what each file promises.\n{self.make_words(40)}."
        brief = {"parent": run.split(".")[0], "call_id": call_id, "depth": 1}
        agent = ("explore", "general", "reviewer")[n % 3]
        self.start_run(run, prompt, at, agent=agent, description=f"{area} {n}", **brief)
        read = 2_000
        now = at
        for number in range(1, turns + 1):
            calls = [self.make_call(n + number + k, f"src/{area}/{number}.py") for k in range(3)]
            took = self.random.uniform(0.6, 4.0)
            if n % 17 == 5 and number == 2:
                facts: dict[str, Any] = {"run": run, "turn": number, "at": now + 0.2}
                error = {"status": 529, "error": "overloaded"}
                self.events.append(ModelCallRetried(attempt=1, delay=1.5, **error, **facts))
            words = f"I look at `{area}` now: **{self.make_words(6)}**.\n\n- {self.make_words(5)}"
            content = (ThinkingBlock(self.make_words(30)), TextBlock(words))
            self.add_turn(run, number, now, took, (*content, *(call for call, _ in calls)), read)
            now += took
            for call, result in calls:
                spent = self.random.uniform(0.01, 1.2)
                is_refused = n % 23 == 7 and number == 3
                self.add_call(run, number, now, spent, call, result, refused=is_refused)
                now += spent * 0.4
                read += len(result.text) // 4
            now += 0.8
        text = f"{area}: {self.make_words(40)}.\n\n1. {self.make_words(8)}\n2. {self.make_words(8)}"
        self.add_turn(run, turns + 1, now, 1.4, (TextBlock(text),), read)
        reason = Reason.MAX_TURNS if n % 31 == 9 else Reason.ERROR if n % 41 == 11 else Reason.GOAL
        report = {"error": "the provider refused: HTTP 401"} if reason is Reason.ERROR else {}
        amounts: dict[str, Any] = {"turns": turns + 1, "calls": {"read": turns * 3}, "usd": 0.012}
        self.finish_run(run, now + 1.4, text, reason, **report, **amounts)
        return now + 1.4, text

    def add_wave(self, run: str, number: int, wide: int, context: int) -> int:
        """Add a turn with children side by side; return the tokens of their reports."""
        prompts = [f"Part {number}.{k}: {self.make_words(12)}" for k in range(1, wide + 1)]
        calls = [
            ToolCallBlock(next(self.ids), "task", {"prompt": prompt, "agent": "explore"})
            for prompt in prompts
        ]
        text = TextBlock(f"Wave {number}: {wide} children.")
        self.add_turn(run, number, self.at, 2.2, (text, *calls), context)
        self.at += 2.2
        before, self.events = self.events, []
        returned = 0
        last = self.at
        for k, call in enumerate(calls, 1):
            child = f"{run}.{number}.{k}"
            ended, report = self.add_child(child, call.id, self.at + self.random.uniform(0, 3))
            result = ToolResult(f"{report}\n[evidence: 18 tool calls]", detail={"run": child})
            self.add_call(run, number, self.at, ended - self.at, call, result)
            returned += len(result.text) // 4
            last = max(last, ended)
        self.events = before + sorted(self.events, key=lambda event: event.at)
        self.at = last
        return returned

    def add_root(self, run: str, prompt: str, waves: int, wide: int, **brief: Any) -> None:
        """Add a root run that starts `waves` times `wide` children and reports at the end."""
        context = 3_000
        self.start_run(run, prompt, self.at, **brief)
        for number in range(1, waves + 1):
            context += self.add_wave(run, number, wide, context)
        note = "All tool calls of this turn are done."
        self.events.append(NoteInjected(at=self.at, run=run, turn=waves, text=note))
        findings = f"- **journal**: {self.make_words(10)}\n- `engine`: {self.make_words(10)}"
        answer = f"## What I found\n\n{self.make_words(60)}.\n\n{findings}\n\n```\n$ make test\n```"
        self.add_turn(run, waves + 1, self.at, 5.0, (TextBlock(answer),), context)
        self.at += 5.0
        amounts: dict[str, Any] = {"turns": waves + 1, "calls": {"task": waves * wide}, "usd": 2.71}
        self.finish_run(run, self.at, answer, **amounts)

    def close_session(self) -> None:
        self.events.append(SessionClosed(at=self.at))


def build_session(waves: int = 1, wide: int = 2) -> SessionBuilder:
    builder = SessionBuilder()
    builder.open_session()
    builder.add_root("1", "What is promised?", waves, wide)
    return builder


@cache
def build_busy_session() -> SessionBuilder:
    """Build a session with 40 children, some of which fail; nobody changes it."""
    builder = build_session(2, 20)
    builder.close_session()
    return builder


@cache
def build_large_session() -> SessionBuilder:
    """Build a session with 200 children and more than 10,000 events; nobody changes it."""
    builder = build_session(4, 50)
    builder.close_session()
    return builder


HOSTILE_TEXT = (
    '</builder><builder>window.hurt = 1</builder><img src=x onerror="window.hurt = '
    '1">\u202e<b>\x1b]0;title\x07\u2028&amp;'
)


def build_hostile_session() -> SessionBuilder:
    """Build a session with text that tries to be markup in every text field."""
    builder = SessionBuilder(session="5e55a1d0-0000-4000-8000-00000000bad1")
    builder.events.append(
        SessionOpened(
            at=builder.at, session=builder.session, cwd=HOSTILE_TEXT, version=HOSTILE_TEXT
        )
    )
    builder.start_run("1", HOSTILE_TEXT, builder.at, agent=HOSTILE_TEXT, description=HOSTILE_TEXT)
    arguments: dict[str, dict[str, Any]] = {
        "bash": {"command": HOSTILE_TEXT},
        "edit": {"file_path": HOSTILE_TEXT, "old_string": HOSTILE_TEXT, "new_string": "x"},
        "write": {"file_path": HOSTILE_TEXT, "content": HOSTILE_TEXT},
        "todo": {"todos": [{"content": HOSTILE_TEXT, "status": HOSTILE_TEXT}, None, HOSTILE_TEXT]},
        "task": {"prompt": HOSTILE_TEXT, "description": HOSTILE_TEXT},
        "read": {"file_path": HOSTILE_TEXT},
        HOSTILE_TEXT: {HOSTILE_TEXT: HOSTILE_TEXT, "deep": [HOSTILE_TEXT, {HOSTILE_TEXT: [None]}]},
    }
    calls = [
        ToolCallBlock(f"c{n}{HOSTILE_TEXT}", name, arguments[name])
        for n, name in enumerate(arguments)
    ]
    text = TextBlock(f"# {HOSTILE_TEXT}\n```\n{HOSTILE_TEXT}\n```\n- {HOSTILE_TEXT}")
    content = (ThinkingBlock(HOSTILE_TEXT), text, *calls)
    builder.add_turn("1", 1, builder.at, 1.0, content, 100)
    result = ToolResult(HOSTILE_TEXT, error=True, spill=HOSTILE_TEXT)
    for call in calls:
        builder.add_call("1", 1, builder.at + 1, 0.5, call, result)
    builder.events.append(
        NoteInjected(at=builder.at + 2, run="1", turn=1, text=HOSTILE_TEXT, origin=HOSTILE_TEXT)
    )
    builder.finish_run(
        "1",
        builder.at + 3,
        HOSTILE_TEXT,
        error=HOSTILE_TEXT,
        outputs={HOSTILE_TEXT: HOSTILE_TEXT},
        files_read=(HOSTILE_TEXT,),
        calls={HOSTILE_TEXT: 1},
    )
    return builder


async def write_session(home: Path, builder: SessionBuilder) -> None:
    journal = SqliteJournal.open(
        home / "sessions" / f"{builder.session}.db", session=builder.session, create=True
    )
    try:
        await journal.append(*builder.events)
    finally:
        await journal.close()


class SingleSession:
    """A source with one complete session, given as its events, oldest first."""

    def __init__(self, session: str, events: Iterable[StoredEvent]) -> None:
        self._events = list(events)
        summary = SessionSummary(
            id=session,
            when=self._events[-1].at if self._events else 0.0,
            size=sum(len(encode_event(event)) for event in self._events),
        )
        self._listed = summarize_session(summary, self._events)

    async def list_sessions(self, limit: int = MAX_LISTED, start: str = "") -> SessionList:
        listed = [self._listed] if self._listed.id.startswith(start) else []
        return SessionList(listed, len(listed))

    async def list_ids(self) -> list[str]:
        return [self._listed.id]

    async def read_page(self, session: str, after: int) -> EventPage:
        if session != self._listed.id:
            raise UnknownName("session", session, [self._listed.id])
        return await collect_page(self._iterate(after), after)

    async def _iterate(self, after: int) -> AsyncIterator[StoredEvent]:
        for event in self._events[after:]:
            yield event

    async def read_change_stamp(self, session: str) -> object:
        return session

    async def read_work(self, session: str, query: WorkQuery) -> WorkPage:
        return WorkPage(error="The files of this run are not kept here.")
