"""Random run trees on virtual time: their records are replayed, whole and damaged."""

from __future__ import annotations

import asyncio
import random
import re
import tempfile
import uuid
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar
from unittest.mock import patch

from msgspec import Struct
from msgspec.structs import replace
from typing_extensions import TypeVarTuple

from mudroom import (
    AssistantMessage,
    Budget,
    Children,
    Compaction,
    Effect,
    Session,
    Tool,
    ToolContext,
    ToolResult,
    Usage,
    UsageError,
)
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel
from mudroom._core.events import RunFinished, RunStarted, StoredEvent
from mudroom._core.messages import AssistantBlock, StopReason, TextBlock, ToolCallBlock
from mudroom._core.ports import ApprovalDecision, ApprovalRequest
from mudroom._engine.compaction.summary import SUMMARY_PROMPT
from mudroom._session import build
from mudroom.errors import ContextOverflow, ModelRefused, SessionPaused
from mudroom.testing.clock import LoopClock, VirtualLoop

_T = TypeVar("_T")
_Ts = TypeVarTuple("_Ts")

MODEL = "anthropic:claude-sonnet-4-5"
"""A model with a price, so that limits in money hold."""

DELAYS = (0.0, 0.0, 0.01, 0.5, 3.0)
"""Seconds that answers and calls take: many end at the same moment as others."""

PAUSES = 3
MOMENTS = (0.0, 0.005, 0.01, 0.3, 0.5, 1.0, 3.0, 3.01, 6.0)
"""Seconds after which a tree is paused: also before the first request of the next process."""

_PATH = re.compile(r"/\S+")
"""The file that a compacted conversation names: its folder is another one each time."""

_STARTED = re.compile(r"Started ([\d.~a-z]+) in the background")


class CountingJournal(MemoryJournal):
    """A journal that knows where a kill may cut it off: no append is stored in part.

    Attributes:
        ends: numbers of events after each append.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ends: list[int] = []

    async def append(self, *events: StoredEvent) -> int:
        position = await super().append(*events)
        self.ends.append(len(self.events))
        return position


class Tree(Struct, frozen=True):
    """A random tree: everything in it follows from the seed.

    Arguments:
        is_resumed: true if its process is killed at some event and another one continues.
    """

    seed: int
    is_resumed: bool = False

    def make_random(self, *place: object) -> random.Random:
        """Return the random numbers of a place of the tree, the same after a resume."""
        return random.Random(f"{self.seed} {place}")

    def make_budget(self) -> Budget:
        draw = self.make_random("budget")
        limits: dict[str, Any] = {
            "usd": draw.choice((0.02, 0.05, 0.2)),
            "total_tokens": draw.choice((4_000, 10_000, 40_000)),
            "seconds": draw.choice((0.2, 1.0, 4.0, 10.0)),
            "turns": draw.choice((1, 3, 8, 20)),
            "children": draw.choice((1, 3)),
        }
        names = draw.sample(sorted(limits), draw.choice((0, 0, 1, 1, 2)))
        return Budget(**{name: limits[name] for name in names})

    async def answer(self, request: Request) -> Answer:
        """Answer as a model that likes to delegate."""
        draw = self.make_random("answer", _PATH.sub("", request.prompt), request.turn)
        await asyncio.sleep(draw.choice(DELAYS))
        usage = Usage(draw.randint(300, 900), draw.randint(10, 200))
        depth = request.prompt.count(".")
        last = draw.choice((1, 2, 2, 3, 12 if depth else 3))
        if not request.tools or request.turn >= last or "final" in request.prompt:
            text = "" if draw.random() < 0.05 else f"words of {request.prompt[:20]} {request.turn}"
            return AssistantMessage((TextBlock(text),), StopReason.END, usage)
        count = 0 if draw.random() < 0.1 else draw.randint(1, 2 if depth > 1 else 5)
        started = _STARTED.findall(str(request.messages))
        blocks: list[AssistantBlock] = [TextBlock(f"step {request.turn}")]
        for place in range(count):
            name, arguments = self._draw_call(draw, request, place, depth, started)
            blocks.append(ToolCallBlock(f"c{request.turn}-{place}", name, arguments))
        stop = StopReason.CALLS if count else StopReason.END
        return AssistantMessage(tuple(blocks), stop, usage)

    def _draw_call(
        self, draw: random.Random, request: Request, place: int, depth: int, started: list[str]
    ) -> tuple[str, dict[str, Any]]:
        kind = draw.random()
        if kind < (0.5 if depth < 2 else 0.15) and "task" in request.tools:
            arguments: dict[str, Any] = {
                "prompt": f"{request.prompt.split(chr(10))[0]}.{request.turn}{place}",
                "description": "a part",
            }
            if draw.random() < 0.65:
                arguments["background"] = True
            if draw.random() < 0.25:
                arguments["name"] = draw.choice(("ann", "bob", "cid"))
            if draw.random() < 0.4:
                arguments["max_turns"] = draw.choice((1, 1, 2, 4))
            return "task", arguments
        if kind < 0.8 or not started:
            names = ("act", "act", "look", "look", "ask", "nothing", "todo")
            name = draw.choice(names)
            if name == "todo":
                return name, {"todos": [{"content": "step", "status": "pending"}]}
            return name, {"seconds": draw.choice(DELAYS)}
        if kind < 0.86:
            return "wait", {"timeout": draw.choice((0, 1, 5)), "until": draw.choice(("any", "all"))}
        if kind < 0.93:
            how = draw.choice(("wrap_up", "now"))
            return "task_stop", {"to": draw.choice(started), "how": how}
        receiver = draw.choice(("ann", "bob", "cid", "parent", "*"))
        return "send_message", {"to": receiver, "message": f"from {request.prompt[:20]}"}

    def make_tools(self) -> list[Tool]:
        """Return tools that take time: one with effects, a pure one, and one that users deny."""

        async def run(_: object, arguments: dict[str, Any]) -> ToolResult:
            await asyncio.sleep(float(arguments["seconds"]))
            return ToolResult(f"took {arguments['seconds']}", reads=("a.txt",))

        act = Tool(
            name="act",
            description="",
            parameters={"type": "object"},
            parse=dict,
            run=run,
            is_parallel=self.seed % 2 == 0,
        )
        look = replace(act, name="look", effect=Effect.PURE)
        return [act, look, replace(act, name="ask", needs_confirmation=True)]

    async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
        """Answer a question after a while."""
        draw = self.make_random("approval", request.run_id, request.call_id)
        await asyncio.sleep(draw.choice(DELAYS))
        return ApprovalDecision(draw.random() < 0.5, "the user said so")

    def open(self, folder: Path, journal: MemoryJournal, **options: Any) -> Session:
        draw = self.make_random("options")
        return Session(
            model=ScriptedModel(self.answer, MODEL),
            cwd=str(folder),
            home=str(folder / "home"),
            environ={},
            sandbox="off",
            journal=journal,
            budget=self.make_budget(),
            children=Children(turns=draw.choice((1, 4, 30)), parallel=draw.choice((1, 2, 64))),
            tools=self.make_tools(),
            approver=self,
            **options,
        )

    async def disturb(self, session: Session, journal: MemoryJournal) -> None:
        """Send messages, cancel and wrap up runs at random moments."""
        draw = self.make_random("disturb", session.id if self.is_resumed else "")
        for number in range(draw.choice((0, 0, 1, 2, 3))):
            await asyncio.sleep(draw.choice((0.0, 0.01, 0.3, 1.0, 4.0)))
            ended = {event.run for event in journal.events if isinstance(event, RunFinished)}
            begun = [event.run for event in journal.events if isinstance(event, RunStarted)]
            works = [run for run in begun if run not in ended]
            if not works:
                continue
            run = draw.choice(works)
            acts: list[Callable[[], object]] = [
                lambda run=run, number=number: session.runs.send(run, f"message {number}"),
                lambda run=run: session.runs.cancel(run),
                lambda run=run: session.runs.wrap_up(run),
                lambda: session.runs.detach(),
                lambda: session.interrupt() and session.runs.send("1", "Go on."),
            ]
            draw.choice(acts)()

    def record(self) -> list[StoredEvent]:
        return _run_in_folder(self._record)

    async def _record(self, folder: Path) -> list[StoredEvent]:
        journal = CountingJournal()
        # Ids of sessions are random, and nothing of a record must be.
        session_id = str(uuid.UUID(int=self.seed, version=4))
        async with self.open(folder, journal, id=session_id) as session:
            disturbing = asyncio.create_task(self.disturb(session, journal))
            await session.run("R")
            if self.make_random("second").random() < 0.3:
                await session.run("S final")
            disturbing.cancel()
        events = journal.events
        start = next(n for n, event in enumerate(events) if isinstance(event, RunStarted))
        cuts = [end for end in journal.ends if start < end < len(events) - 1]
        if not self.is_resumed or not cuts:
            return events
        cut = self.make_random("cut").choice(cuts)
        journal = MemoryJournal()
        await journal.append(*events[:cut])
        async with self.open(folder, journal, resume=session_id) as session:
            await session.resume_unfinished()
        return journal.events

    def record_paused(self) -> list[StoredEvent]:
        """Run the tree, which is paused up to three times, and return its record."""
        return _run_in_folder(self._record_paused)

    async def _record_paused(self, folder: Path) -> list[StoredEvent]:
        draw = self.make_random("pauses")
        session_id = str(uuid.UUID(int=self.seed, version=4))
        events: list[StoredEvent] = []
        for process in range(PAUSES + 1):
            journal = MemoryJournal()
            await journal.append(*events)
            options = {"resume": session_id} if process else {"id": session_id}
            async with self.open(folder, journal, **options) as session:
                pausing = asyncio.create_task(_pause(session, draw.choice(MOMENTS)))
                if process == PAUSES:
                    pausing.cancel()
                with suppress(SessionPaused):
                    await (session.resume_unfinished() if process else session.run("R"))
                pausing.cancel()
                has_ended = not session.unfinished_runs
            events = journal.events
            if has_ended and any(isinstance(event, RunFinished) for event in events):
                break
        return events


class _ThreadlessLoop(VirtualLoop):
    """Loop without threads, whose order depends on the machine: it calls each function itself."""

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*_Ts], _T], *args: *_Ts
    ) -> asyncio.Future[_T]:
        future: asyncio.Future[_T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001  the caller gets it, as from a thread
            future.set_exception(error)
        return future


def _run_in_folder(
    work: Callable[[Path], Coroutine[Any, Any, list[StoredEvent]]],
) -> list[StoredEvent]:
    """Run on virtual time, also that of the events: nothing depends on the machine's speed."""
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(build, "SystemClock", LoopClock),
        asyncio.Runner(loop_factory=_ThreadlessLoop) as runner,
    ):
        return runner.run(work(Path(folder)))


async def _pause(session: Session, seconds: float) -> None:
    await asyncio.sleep(seconds)
    session.pause()


def damage(events: list[StoredEvent], draw: random.Random) -> list[StoredEvent]:
    """Return a record that is cut off, or with events removed, doubled, or in another order."""
    events = list(events)
    kind = draw.choice(("cut", "remove", "double", "swap", "move"))
    place = draw.randrange(1, len(events))
    if kind == "cut":
        return events[:place]
    if kind == "remove":
        del events[place]
    elif kind == "double":
        events.insert(draw.randrange(place, len(events)), events[place])
    elif kind == "swap":
        other = draw.randrange(1, len(events))
        events[place], events[other] = events[other], events[place]
    else:
        events.insert(draw.randrange(1, len(events)), events.pop(place))
    return events


SUMMARIES = ("the notes", "the notes", "the notes, at length. " * 200, "")

STOPS = ("kill", "kill", "pause", "none")
"""How a process of a wide tree ends. One that is neither killed nor paused runs to its end."""


class WideTree(Tree, frozen=True):
    """A random tree of up to four processes, with long conversations and commands.

    Its windows are small: conversations are cleared and compacted. Commands go on in the
    background, the model fails, each process may be killed at any event or paused at any moment,
    and the user sends messages, cancels and interrupts in each.
    """

    async def answer(self, request: Request) -> Answer:
        """Answer as other trees do, at greater length; or fail, or summarise."""
        draw = self.make_random("wide", _PATH.sub("", request.prompt), request.turn)
        if SUMMARY_PROMPT in str(request.messages[-1]):
            await asyncio.sleep(draw.choice(DELAYS))
            return draw.choice(SUMMARIES)
        kind = draw.random()
        if kind < 0.03:
            return ContextOverflow("the prompt is too long")
        if kind < 0.05:
            return ModelRefused("no more answers")
        answer = await super().answer(request)
        assert isinstance(answer, AssistantMessage)
        if draw.random() < 0.3:
            text = TextBlock("thought " * draw.choice((10, 500, 2_500)))
            answer = replace(answer, content=(text, *answer.content))
        return answer

    def _draw_call(
        self, draw: random.Random, request: Request, place: int, depth: int, started: list[str]
    ) -> tuple[str, dict[str, Any]]:
        kind = draw.random()
        if kind < 0.12:
            return "work", {"seconds": draw.choice(DELAYS)}
        if kind < 0.16:
            return "compact", {}
        return super()._draw_call(draw, request, place, depth, started)

    def make_tools(self) -> list[Tool]:
        """Return the tools of other trees with longer results, and one that starts commands."""

        async def work(seconds: float) -> ToolResult:
            await asyncio.sleep(seconds)
            return ToolResult(f"worked {seconds}", reads=("b.txt",), changes=("c.txt",))

        async def begin(context: ToolContext, arguments: dict[str, Any]) -> ToolResult:
            seconds = float(arguments["seconds"])
            return context.run_in_background(f"work of {seconds} s", work(seconds))

        async def read(_: object, arguments: dict[str, Any]) -> ToolResult:
            await asyncio.sleep(float(arguments["seconds"]))
            return ToolResult("line\n" * int(500 * float(arguments["seconds"])), reads=("a.txt",))

        act, look, ask = super().make_tools()
        return [act, replace(look, run=read), ask, replace(act, name="work", run=begin)]

    def open(self, folder: Path, journal: MemoryJournal, **options: Any) -> Session:
        window = self.make_random("window").choice((None, 9_000, 12_000, 20_000))
        compaction = Compaction(context_window=window)
        return super().open(folder, journal, compaction=compaction, **options)

    async def _record(self, folder: Path) -> list[StoredEvent]:
        draw = self.make_random("processes")
        session_id = str(uuid.UUID(int=self.seed, version=4))
        events: list[StoredEvent] = []
        for process in range(PAUSES + 1):
            journal = CountingJournal()
            await journal.append(*events)
            options = {"resume": session_id} if process else {"id": session_id}
            stop = draw.choice(STOPS) if process < PAUSES else "none"
            async with self.open(folder, journal, **options) as session:
                others = [asyncio.create_task(self.disturb(session, journal))]
                if stop == "pause":
                    others.append(asyncio.create_task(_pause(session, draw.choice(MOMENTS))))
                with suppress(SessionPaused):
                    await self._prompt(session, draw, process)
                for other in others:
                    other.cancel()
            start = next(n for n, each in enumerate(journal.events) if type(each) is RunStarted)
            cuts = [end for end in journal.ends[1:] if max(start, len(events)) < end]
            events = journal.events
            if stop == "kill" and cuts:
                events = events[: draw.choice(cuts)]
            elif stop == "none":
                break
        return events

    async def _prompt(self, session: Session, draw: random.Random, process: int) -> None:
        if not process:
            await session.run("R")
        await session.resume_unfinished()
        if draw.random() < 0.2:
            with suppress(UsageError):  # its last prompt is interrupted
                await session.compact()
        if draw.random() < 0.4:
            await session.run(f"S{process} final")


class LostEndTree(WideTree, frozen=True):
    """A wide tree whose process is killed when a run has reached its end, before that is stored.

    Many runs end by themselves without reaching their goal. The next process stops the run, or any
    other one, before or after it has ended it again; or lets it end again.
    """

    async def answer(self, request: Request) -> Answer:
        """Answer as wide trees do, or in a way that ends the run now or soon."""
        draw = self.make_random("ends", _PATH.sub("", request.prompt), request.turn)
        kind = draw.random()
        if not request.tools or SUMMARY_PROMPT in str(request.messages[-1]) or kind >= 0.35:
            return await super().answer(request)
        await asyncio.sleep(draw.choice(DELAYS))
        usage = Usage(draw.randint(300, 900), draw.randint(10, 200))
        if kind < 0.2:
            return AssistantMessage((TextBlock(""),), StopReason.END, usage)
        if kind < 0.3:
            reason = draw.choice((StopReason.LENGTH, StopReason.REFUSAL, StopReason.OTHER))
            return AssistantMessage((TextBlock("a part"),), reason, usage)
        return ModelRefused("no more answers")

    async def disturb(self, session: Session, journal: MemoryJournal) -> None:
        """Stop a run soon after a process has begun; the first process stops none."""
        ended = {event.run for event in journal.events if isinstance(event, RunFinished)}
        begun = [event.run for event in journal.events if isinstance(event, RunStarted)]
        works = [run for run in begun if run not in ended]
        draw = self.make_random("disturb", len(journal.events))
        if not works or draw.random() < 0.2:
            return
        run = draw.choice(works)
        for _ in range(draw.choice((0, 1, 2, 3, 5, 8, 20, 60))):
            await asyncio.sleep(0)
        acts: list[Callable[[], object]] = [
            lambda: session.runs.cancel(run),
            lambda: session.runs.cancel(),
            lambda: session.runs.wrap_up(run),
            lambda: session.runs.send(run, "one more thing"),
            lambda: session.interrupt() and session.runs.send(run.split(".")[0], "Go on."),
        ]
        draw.choice(acts)()

    async def _record(self, folder: Path) -> list[StoredEvent]:
        draw = self.make_random("kills")
        session_id = str(uuid.UUID(int=self.seed, version=4))
        events: list[StoredEvent] = []
        for process in range(PAUSES + 1):
            journal = CountingJournal()
            await journal.append(*events)
            options = {"resume": session_id} if process else {"id": session_id}
            async with self.open(folder, journal, **options) as session:
                disturbing = asyncio.create_task(self.disturb(session, journal))
                await self._prompt(session, draw, process)
                disturbing.cancel()
            cuts = [
                end
                for end in journal.ends[1:]
                if len(events) < end < len(journal.events)
                and isinstance(journal.events[end], RunFinished)
            ]
            events = journal.events
            if not cuts or process == PAUSES:
                break
            events = events[: draw.choice(cuts)]
        return events
