"""One test for each known fault of other systems (F1 to F26), with a strict provider."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import random
import re
import resource
import shutil
import sqlite3
import struct
import sys
import termios
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from mudroom import (
    Agent,
    AnyEvent,
    Budget,
    Effect,
    JournalError,
    Reason,
    Session,
    TextBlock,
    Tool,
    ToolCallBlock,
    ToolResult,
)
from mudroom._core.events import (
    Delta,
    RunFinished,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
)
from mudroom._engine.loop_detection import STOP_AFTER
from mudroom.errors import JournalBusy, JournalDamaged, ModelRefused
from mudroom.journals.sqlite.journal import SqliteJournal
from mudroom.journals.sqlite.reader import open_reader
from mudroom.models.scripted import Answer, Request, ScriptedModel, call
from mudroom.testing.clock import run_virtual
from mudroom.testing.invariants import find_violations
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest
from mudroom.testing.strict_provider import strict_script

MODEL = "anthropic:claude-sonnet-4-5"


class House:
    """A session at a strict provider, what it asked, and what happened."""

    def __init__(self, session: Session, server: ModelServer, folder: Path) -> None:
        self.session, self.server, self.folder = session, server, folder
        self.events: list[AnyEvent] = []
        session.watch(self.events.append)

    async def goes_on(self) -> None:
        """The session takes another prompt, and its record is in order."""
        report = await self.session.run("AGAIN")
        assert (report.reason, report.text) == (Reason.GOAL, "I go on."), report.error
        assert not find_violations(event for event in self.events if not isinstance(event, Delta))

    def results(self, name: str) -> list[str]:
        return [
            event.result.text
            for event in self.events
            if isinstance(event, ToolCallFinished) and event.name == name
        ]


@asynccontextmanager
async def house(
    folder: Path,
    answer: Callable[[ServerRequest], ServerAnswer | Awaitable[ServerAnswer]],
    **settings: Any,
) -> AsyncGenerator[House]:
    def answered(asked: ServerRequest) -> ServerAnswer | Awaitable[ServerAnswer]:
        return "I go on." if b"AGAIN" in asked.body else answer(asked)

    async with ModelServer(strict_script(answered)) as server:
        environ = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        wanted: dict[str, Any] = {
            "model": MODEL,
            "environ": environ,
            "cwd": str(folder),
            "home": str(folder.parent / "home"),
            "journal": "memory",
        }
        async with Session(**(wanted | settings)) as session:
            yield House(session, server, folder)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


def once(*blocks: ToolCallBlock | TextBlock) -> Callable[[ServerRequest], ServerAnswer]:
    """A model that says this first, and then that it is done."""
    return lambda asked: blocks if not asked.turn else "Done."


def bash(command: str, id: str = "b") -> ToolCallBlock:
    return ToolCallBlock(id, "bash", {"command": command})


async def begun(folder: Path, name: str) -> None:
    """Wait until a command has made that file."""
    async with asyncio.timeout(20):
        while not (folder / name).exists():  # noqa: ASYNC110  nothing tells of files
            await asyncio.sleep(0.01)


async def test_f1_a_call_cut_off_by_an_interrupt_has_a_result(work: Path) -> None:
    async with house(
        work, once(bash("touch begun; sleep 60"), ToolCallBlock("r", "todo", {"todos": []}))
    ) as at:
        running = asyncio.create_task(at.session.run("Go."))
        await begun(work, "begun")
        at.session.cancel()
        assert (await running).reason is Reason.CANCELLED
        await at.goes_on()


async def test_f2_a_call_that_was_denied_has_a_result_and_its_call(work: Path) -> None:
    async def run(_context: object, _arguments: object) -> ToolResult:
        raise AssertionError("it was denied")

    tool = Tool(
        name="risky",
        description="",
        parameters={"type": "object"},
        parse=dict,
        run=run,
        needs_confirmation=True,
    )
    async with house(work, once(ToolCallBlock("c", "risky", {})), tools=[tool]) as at:
        assert (await at.session.run("Go.")).text == "Done."
        assert "not allowed" in at.results("risky")[0]
        await at.goes_on()


async def test_f3_call_ids_that_come_again_are_made_new(work: Path) -> None:
    same = ToolCallBlock("same", "todo", {"todos": []})
    async with house(work, lambda asked: (same, same) if asked.turn % 3 < 2 else "Done.") as at:
        for _ in range(2):
            assert (await at.session.run("Go.")).ok
        await at.goes_on()


async def test_f4_no_tool_is_offered_twice(work: Path) -> None:
    agent = Agent(name="odd", tools=("read", "Read", "re*", "read_file", "grep", "*"))
    tools: list[list[str]] = []

    def answer(asked: ServerRequest) -> ServerAnswer:
        tools.append(asked.tools)
        return (
            (ToolCallBlock("t", "task", {"prompt": "CHILD", "agent": "odd"}),)
            if "task" in asked.tools and not asked.turn
            else "Done."
        )

    async with house(work, answer, agents=[agent]) as at:
        assert (await at.session.run("Go.")).ok
    assert (
        len(tools) == 3
        and all(len(set(names)) == len(names) for names in tools)
        and "read" in tools[1]
    )


async def test_f5_an_empty_block_of_a_stream_is_not_sent_back(work: Path) -> None:
    async with house(
        work,
        once(
            TextBlock(""),
            TextBlock("  \n"),
            ToolCallBlock("c", "todo", {"todos": []}),
            TextBlock(""),
        ),
    ) as at:
        assert (await at.session.run("Go.")).text == "Done."
        await at.goes_on()


async def recorded(
    folder: Path, script: Callable[[Request], Answer]
) -> tuple[Path, list[StoredEvent]]:
    """A session that is over: its file and its events."""
    async with Session(
        model=ScriptedModel(script), cwd=str(folder), home=str(folder.parent / "home")
    ) as session:
        assert (await session.run("PARENT")).ok
        path = folder.parent / "home" / "sessions" / f"{session.id}.db"
    return path, list(open_reader(path).read())


def family(request: Request) -> Answer:
    if request.prompt == "PARENT":
        return (
            [call("task", prompt=f"CHILD {n}") for n in "abc"]
            if request.turn == 0
            else "PARENT is done."
        )
    return (
        [call("bash", command=f"echo {request.prompt[-1]} >> effects.txt")]
        if request.turn == 0
        else f"report of {request.prompt}"
    )


async def test_f6_a_torn_tail_costs_nothing_that_was_acknowledged(
    work: Path, tmp_path: Path
) -> None:
    journal = SqliteJournal.open(tmp_path / "a.db", session="s1", create=True)
    _, events = await recorded(work, family)
    for event in events:
        await journal.append(event)
    whole = {suffix: Path(f"{journal.path}{suffix}").read_bytes() for suffix in ("", "-wal")}
    await journal.close()
    for torn in (1, 100, 4096):
        copy = tmp_path / f"torn{torn}.db"
        copy.write_bytes(whole[""])
        Path(f"{copy}-wal").write_bytes(whole["-wal"] + os.urandom(torn))
        assert list(open_reader(copy).read()) == events
        again = SqliteJournal.open(copy, session="s1", create=False)
        await again.append(events[0])
        await again.close()
        assert list(open_reader(copy).read()) == [*events, events[0]]


async def test_f7_damage_inside_is_loud_and_names_its_place(work: Path, tmp_path: Path) -> None:
    path, events = await recorded(work, family)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE events SET body = zeroblob(length(body)) WHERE seq = 5")
    connection.close()
    with pytest.raises(JournalDamaged, match="record 5 is damaged"):
        list(open_reader(path).read())
    with pytest.raises(JournalError, match="record 5"):
        async with Session(
            model=ScriptedModel(family), home=str(tmp_path / "home"), resume=path.stem
        ):
            pass
    assert len(events) > 5


async def test_f8_a_second_process_is_refused_with_the_pid_of_the_first(work: Path) -> None:
    settings: dict[str, Any] = {
        "model": "offline",
        "cwd": str(work),
        "home": str(work.parent / "home"),
    }
    async with Session(**settings) as session:
        await session.run("hello")
        code = (
            "import sys; from mudroom.journals.sqlite.journal import SqliteJournal as S; "
            "S.open(sys.argv[1], session=sys.argv[2], create=False)"
        )
        words = code, str(work.parent / "home" / "sessions" / f"{session.id}.db"), session.id
        other = await asyncio.create_subprocess_exec(
            sys.executable, "-c", *words, stderr=asyncio.subprocess.PIPE
        )
        _, err = await other.communicate()
        assert (
            other.returncode == 1
            and f"process {os.getpid()} is writing this session".encode() in err
        )
        with pytest.raises(JournalBusy):
            async with Session(**settings, resume=session.id):
                pass


@pytest.mark.parametrize("part", [3, 5, 7, 9])
async def test_f9_a_call_of_a_stream_that_was_cut_never_runs(work: Path, part: int) -> None:
    blocks = (
        TextBlock("I shall."),
        bash("echo x >> effects.txt"),
        bash("echo y >> effects.txt", "b2"),
    )

    def answer(asked: ServerRequest) -> ServerAnswer:
        return (
            Fault(blocks, cut_after=part * 180)
            if asked.number == 1
            else blocks
            if asked.number == 2
            else "Done."
        )

    async with house(work, answer) as at:
        assert (await at.session.run("Go.")).ok
        assert (work / "effects.txt").read_text() == "x\ny\n" and at.server.request_count == 3
        await at.goes_on()


async def test_f10_a_call_that_waits_its_turn_does_not_run_after_a_cancel(work: Path) -> None:
    async with house(work, once(bash("touch begun; sleep 60"), bash("touch late", "b2"))) as at:
        running = asyncio.create_task(at.session.run("Go."))
        await begun(work, "begun")
        at.session.cancel()
        await running
        await asyncio.sleep(0.2)
        assert not (work / "late").exists()
        await at.goes_on()


async def test_f11_a_grandchild_that_holds_the_pipe_holds_nobody_up(work: Path) -> None:
    began = time.monotonic()
    async with house(work, once(bash("echo out; sleep 50 & (setsid sleep 50 &)"))) as at:
        assert (await at.session.run("Go.")).ok
        assert at.results("bash") == ["out"] and time.monotonic() - began < 20


def states(folder: Path) -> Counter[str]:
    """States of this process's children, and of all processes that work in the folder."""
    found: Counter[str] = Counter()
    for process in Path("/proc").iterdir():
        try:
            status = (
                (process / "stat").read_text().rpartition(")")[2].split()
                if process.name.isdecimal()
                else []
            )
            if status and (
                int(status[1]) == os.getpid() or os.readlink(process / "cwd") == str(folder)
            ):
                found[status[0]] += 1
        except OSError:
            continue
    return found


async def test_f12_no_zombie_is_left(work: Path) -> None:
    async with house(work, once(*(bash(f"true & exit {n}", f"b{n}") for n in range(20)))) as at:
        assert (await at.session.run("Go.")).ok
        assert states(work)["Z"] == 0


async def test_f13_what_a_session_started_does_not_outlive_it(work: Path) -> None:
    async with house(
        work,
        once(bash("nohup sleep 50 > /dev/null 2>&1 & setsid sleep 50 & disown -a; touch begun")),
    ) as at:
        assert (await at.session.run("Go.")).ok
    deadline = time.monotonic() + 2
    while any(os.path.realpath(link) == str(work) for link in Path("/proc").glob("[0-9]*/cwd")):
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)


async def test_f14_a_program_whose_terminal_is_gone_ends(work: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 80, 0, 0))
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(work),
        "MUDROOM_HOME": str(work / "home"),
        "TERM": "xterm",
        "PROMPT_TOOLKIT_NO_CPR": "1",
    }

    def own_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    words = (sys.executable, "-m", "mudroom", "--model", "offline")
    terminal: dict[str, Any] = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    process = await asyncio.create_subprocess_exec(
        *words, cwd=work, env=env, preexec_fn=own_terminal, **terminal
    )
    os.close(theirs)
    await asyncio.to_thread(os.read, ours, 1)
    await asyncio.sleep(0.5)
    os.close(ours)
    async with asyncio.timeout(10):
        await process.wait()


async def look(_context: object, given: dict[str, Any]) -> ToolResult:
    return ToolResult(Path(given["path"]).read_text() if "path" in given else "nothing new")


LOOK = Tool(
    name="look",
    description="",
    parameters={"type": "object"},
    parse=dict,
    run=look,
    effect=Effect.PURE,
)
"""What looks at once: on virtual time nothing may wait for a thread."""


def on_virtual_time(
    folder: Path, script: Callable[[Request], Answer | Awaitable[Answer]], **settings: Any
) -> tuple[Any, list[StoredEvent]]:
    """The report of a run with a scripted model, and its record."""
    events: list[AnyEvent] = []

    async def work() -> Any:
        where: dict[str, Any] = {
            "tools": [LOOK],
            "cwd": str(folder),
            "home": str(folder.parent / "home"),
            "journal": "memory",
        }
        async with (
            asyncio.timeout(5_000),
            Session(model=ScriptedModel(script), **where, **settings) as session,
        ):
            session.watch(events.append)
            return await session.run("PARENT")

    report = run_virtual(work())
    record = [event for event in events if not isinstance(event, Delta)]
    assert not find_violations(record, timed=False)
    return report, record


def test_f15_a_parent_hears_of_every_child_in_whatever_order_they_end(work: Path) -> None:
    chance = random.Random(3)

    async def script(request: Request) -> Answer:
        if request.prompt == "PARENT":
            return (
                [call("task", prompt=f"CHILD {n}") for n in range(100)]
                if request.turn == 0
                else str(len(request.results))
            )
        await asyncio.sleep(chance.choice((0, 0, 1e-9, 0.5, chance.random())))
        return "done"

    assert on_virtual_time(work, script)[0].text == "100"


def test_f16_a_child_whose_model_never_answers_is_given_up(work: Path) -> None:
    async def script(request: Request) -> Answer:
        if request.prompt != "PARENT":
            await asyncio.Event().wait()
        return [call("task", prompt="CHILD")] if request.turn == 0 else request.results[0].text

    assert "TIMEOUT: the model fell silent" in on_virtual_time(work, script)[0].text


def test_f17_a_child_that_fails_costs_its_siblings_nothing(work: Path) -> None:
    async def script(request: Request) -> Answer:
        if request.prompt == "PARENT":
            return (
                [call("task", prompt=f"CHILD {n}") for n in range(5)]
                if request.turn == 0
                else str(request.results)
            )
        if request.prompt == "CHILD 2":
            return (
                ModelRefused("no") if request.number % 2 else RuntimeError("a fault of the adapter")
            )
        await asyncio.sleep(5)
        return f"report of {request.prompt}"

    report, _ = on_virtual_time(work, script)
    assert report.ok and [f"report of CHILD {n}" in report.text for n in range(5)] == [
        True,
        True,
        False,
        True,
        True,
    ]


async def resumed(
    work: Path, cut: Callable[[StoredEvent], bool], script: Callable[[Request], Answer]
) -> tuple[list[str], list[StoredEvent]]:
    """Record the family, go on from a copy that ends right before the first event that is `cut`.

    What was asked then, and the record.
    """
    path, events = await recorded(work, family)
    shutil.rmtree(work.parent / "home" / "sessions")
    end = next(n for n, event in enumerate(events) if cut(event))
    journal = SqliteJournal.open(path, session=path.stem, create=True)
    await journal.append(*events[:end])
    await journal.close()
    model = ScriptedModel(script)
    async with Session(
        model=model, cwd=str(work), home=str(work.parent / "home"), resume=path.stem
    ) as session:
        assert (
            await session.resume_unfinished() or pytest.fail("nothing was unfinished")
        ).text == "PARENT is done."
        assert (await session.run("AGAIN")).ok
    return [f"{request.prompt} {request.turn}" for request in model.requests], list(
        open_reader(path).read()
    )


def going_on(request: Request) -> Answer:
    return "I go on." if "AGAIN" in str(request.messages[-1]) else family(request)


def second_turn_of_the_last_child(event: StoredEvent) -> bool:
    return isinstance(event, TurnFinished) and event.run == "1.1.3" and event.turn == 2


async def test_f18_a_resume_runs_no_finished_sibling_again(work: Path) -> None:
    asked, record = await resumed(work, second_turn_of_the_last_child, going_on)
    assert "CHILD c 1" in asked and "CHILD c 0" not in asked, "its first answer was stored"
    finished = [event.run for event in record if isinstance(event, RunFinished)]
    assert not find_violations(record) and sorted(Counter(finished)) == [
        "1",
        "1.1.1",
        "1.1.2",
        "1.1.3",
        "2",
    ]
    for name in "ab":
        before = [
            n
            for n, event in enumerate(record)
            if isinstance(event, RunFinished) and event.report.text == f"report of CHILD {name}"
        ]
        assert (f"CHILD {name} 0" in asked) == (
            before[0] > asked.index("CHILD c 1") and f"CHILD {name} 0" in asked
        )
    assert Counter((work / "effects.txt").read_text().split()).most_common(1)[0][1] == 1, (
        "a command ran twice"
    )


async def test_f19_a_child_s_messages_never_get_into_its_parent_s_history(work: Path) -> None:
    heard: list[str] = []

    def script(request: Request) -> Answer:
        if request.prompt == "PARENT":
            heard.append(str(request.messages))
        return going_on(request)

    await resumed(work, second_turn_of_the_last_child, script)
    # The evidence line of a report names the files that changed.
    histories = [re.sub(r"\[evidence: [^\]]*\]", "", messages) for messages in heard]
    assert histories
    assert not any("effects.txt" in messages for messages in histories)


def test_f20_a_child_has_the_limit_that_was_set_and_says_so(work: Path) -> None:
    def script(request: Request) -> Answer:
        if request.prompt == "PARENT":
            return (
                [call("task", prompt="CHILD", max_turns=3)]
                if request.turn == 0
                else request.results[0].text
            )
        return [call("look", turn=request.turn)] if request.tools else "what I have"

    report, record = on_virtual_time(work, script)
    assert report.text.startswith(
        "[MAX_TURNS: stopped after 3 turns, its limit; what follows is its summary"
    )
    assert sum(isinstance(event, TurnFinished) and event.run == "1.1.1" for event in record) == 4


def test_f22_children_that_fail_are_not_made_for_ever(work: Path) -> None:
    def script(request: Request) -> Answer:
        if request.prompt != "PARENT":
            return ModelRefused("no")
        return (
            [call("task", prompt=f"CHILD {request.turn} {n}") for n in range(3)]
            if request.tools
            else "I give up."
        )

    report, record = on_virtual_time(work, script, budget=Budget(turns=20, children=7))
    children = {event.run for event in record if "." in event.run}
    assert (
        len(children) == 7
        and report.reason in (Reason.MAX_TURNS, Reason.LOOP)
        and report.turns <= 21
    )
    refused = [
        event.result.text
        for event in record
        if isinstance(event, ToolCallFinished) and "budget of 7 children" in event.result.text
    ]
    assert refused


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (413, "prompt is too long"),
        (400, "prompt is too long: 212345 tokens > 200000 maximum"),
        (400, "This model's maximum context length is 128000 tokens."),
        (400, "The input token count (1200000) exceeds the maximum number of tokens allowed"),
        (400, "the request exceeds the available context size, try increasing it"),
    ],
)
async def test_f23_a_conversation_that_is_too_large_ends_and_does_not_loop(
    work: Path, status: int, text: str
) -> None:
    body = f'{{"error": {{"message": "{text}"}}}}'.encode()
    async with house(work, lambda asked: Fault(status=status, body=body)) as at:
        report = await at.session.run("Go.")
        assert (
            report.reason is Reason.ERROR
            and "The conversation is too large: let the model read less" in report.error
            and at.server.request_count == 1
        )
        await at.goes_on()


def test_f24_the_same_call_again_and_again_is_ended(work: Path) -> None:
    def script(request: Request) -> Answer:
        return [call("look")] if request.tools else "I was going in circles."

    report, _ = on_virtual_time(work, script, budget=Budget(turns=5 * STOP_AFTER))
    assert (
        report.reason is Reason.LOOP
        and report.turns == STOP_AFTER + 1
        and report.text == "I was going in circles."
    )


def test_f24_polling_that_sees_a_change_is_no_circle(work: Path) -> None:
    def script(request: Request) -> Answer:
        (work / "state").write_text(f"{request.turn // 3} done")
        return (
            [call("look", path=str(work / "state"))]
            if request.turn < 3 * STOP_AFTER
            else "It is there."
        )

    assert on_virtual_time(work, script)[0].text == "It is there."


async def test_f25_endless_output_costs_no_memory(work: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with house(
        work, once(*(bash("yes mud | head -c 30000000", f"b{n}") for n in range(3)))
    ) as at:
        assert (await at.session.run("Go.")).ok
        assert all(len(text) <= 50_000 for text in at.results("bash"))
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < 32_000
        await at.goes_on()


async def test_f26_output_that_is_no_text_does_no_harm(work: Path) -> None:
    (work / "odd.txt").write_bytes(b"\xff\xfe\x00 \xed\xa0\xbd \x1b[31m caf\xe9")
    odd = ToolCallBlock("r", "read", {"file_path": "odd.txt"})
    async with house(
        work,
        once(
            bash("printf '\\xff\\xed\\xa0\\xbd\\0 caf\\xe9'"),
            odd,
            bash("cat /dev/urandom | head -c 5000", "b2"),
        ),
    ) as at:
        assert (await at.session.run("Go.")).text == "Done."
        assert sum(isinstance(event, ToolCallStarted) for event in at.events) == 3
        await at.goes_on()
