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
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from mudroom import (
    Agent,
    AnyEvent,
    Budget,
    Effect,
    JournalError,
    Reason,
    Report,
    Session,
    TextBlock,
    Tool,
    ToolCallBlock,
    ToolResult,
)
from mudroom._adapters.journals.sqlite.journal import SqliteJournal
from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call
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
from mudroom.testing.clock import run_virtual
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest
from mudroom.testing.strict_provider import strict_script

from ..waiting import wait_until
from .conftest import CheckRecord

MODEL = "anthropic:claude-sonnet-4-5"
UNLIMITED = Budget()
RECORDS: list[list[AnyEvent]] = []
"""Records that the test makes; they are checked at its end."""


class OpenSession:
    """A session with a strict provider, and its events."""

    def __init__(self, session: Session, server: ModelServer, folder: Path) -> None:
        self.session, self.server, self.folder = session, server, folder
        self.events: list[AnyEvent] = []
        session.watch(self.events.append)
        RECORDS.append(self.events)

    async def check_continues(self) -> None:
        """Check that the session answers another prompt."""
        report = await self.session.run("AGAIN")
        assert (report.reason, report.text) == (Reason.GOAL, "I continue."), report.error

    def list_results(self, name: str) -> list[str]:
        return [
            event.result.text
            for event in self.events
            if isinstance(event, ToolCallFinished) and event.name == name
        ]


@asynccontextmanager
async def open_session(
    folder: Path,
    answer: Callable[[ServerRequest], ServerAnswer | Awaitable[ServerAnswer]],
    *,
    tools: Sequence[Tool] = (),
    agents: Sequence[Agent] = (),
) -> AsyncGenerator[OpenSession]:
    def answer_or_continue(asked: ServerRequest) -> ServerAnswer | Awaitable[ServerAnswer]:
        return "I continue." if b"AGAIN" in asked.body else answer(asked)

    async with ModelServer(strict_script(answer_or_continue)) as server:
        environ = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        async with Session(
            model=MODEL,
            environ=environ,
            cwd=str(folder),
            home=str(folder.parent / "home"),
            journal="memory",
            tools=tools,
            agents=agents,
        ) as session:
            yield OpenSession(session, server, folder)


@pytest.fixture
def work(tmp_path: Path, check_record: CheckRecord) -> Generator[Path]:
    folder = tmp_path / "work"
    folder.mkdir()
    RECORDS.clear()
    yield folder
    for events in RECORDS:
        asyncio.run(check_record(events, timed=False))


def answer_once(*blocks: ToolCallBlock | TextBlock) -> Callable[[ServerRequest], ServerAnswer]:
    """Return a script that answers with these blocks, then with `Done.`"""
    return lambda asked: blocks if not asked.turn else "Done."


def call_bash(command: str, id: str = "b") -> ToolCallBlock:
    return ToolCallBlock(id, "bash", {"command": command})


async def wait_for_file(folder: Path, name: str) -> None:
    """Wait until a command has made that file."""
    await wait_until((folder / name).exists)


async def test_f1_a_call_cut_off_by_an_interrupt_has_a_result(work: Path) -> None:
    async with open_session(
        work,
        answer_once(
            call_bash("touch wait_for_file; sleep 60"), ToolCallBlock("r", "todo", {"todos": []})
        ),
    ) as opened:
        running = asyncio.create_task(opened.session.run("Go."))
        await wait_for_file(work, "wait_for_file")
        opened.session.runs.cancel()
        assert (await running).reason is Reason.CANCELLED
        await opened.check_continues()


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
    async with open_session(
        work, answer_once(ToolCallBlock("c", "risky", {})), tools=[tool]
    ) as opened:
        assert (await opened.session.run("Go.")).text == "Done."
        assert "not allowed" in opened.list_results("risky")[0]
        await opened.check_continues()


async def test_f3_repeated_call_ids_are_replaced(work: Path) -> None:
    same = ToolCallBlock("same", "todo", {"todos": []})
    async with open_session(
        work, lambda asked: (same, same) if asked.turn % 3 < 2 else "Done."
    ) as opened:
        for _ in range(2):
            assert (await opened.session.run("Go.")).ok
        await opened.check_continues()


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

    async with open_session(work, answer, agents=[agent]) as opened:
        assert (await opened.session.run("Go.")).ok
    assert (
        len(tools) == 3
        and all(len(set(names)) == len(names) for names in tools)
        and "read" in tools[1]
    )


async def test_f5_an_empty_block_of_a_stream_is_not_sent_back(work: Path) -> None:
    async with open_session(
        work,
        answer_once(
            TextBlock(""),
            TextBlock("  \n"),
            ToolCallBlock("c", "todo", {"todos": []}),
            TextBlock(""),
        ),
    ) as opened:
        assert (await opened.session.run("Go.")).text == "Done."
        await opened.check_continues()


async def record_session(
    folder: Path, script: Callable[[Request], Answer]
) -> tuple[Path, list[StoredEvent]]:
    """Record a whole session; return its file and its events."""
    async with Session(
        model=ScriptedModel(script), cwd=str(folder), home=str(folder.parent / "home")
    ) as session:
        assert (await session.run("PARENT")).ok
        path = folder.parent / "home" / "sessions" / f"{session.id}.db"
    return path, list(open_reader(path).read())


def answer_as_family(request: Request) -> Answer:
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


async def test_f6_a_torn_tail_loses_nothing_acknowledged(work: Path, tmp_path: Path) -> None:
    journal = SqliteJournal.open(tmp_path / "a.db", session="s1", create=True)
    _, events = await record_session(work, answer_as_family)
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


async def test_f7_damage_inside_a_record_is_an_error_that_names_its_place(
    work: Path, tmp_path: Path
) -> None:
    path, events = await record_session(work, answer_as_family)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE events SET body = zeroblob(length(body)) WHERE seq = 5")
    connection.close()
    with pytest.raises(JournalDamaged, match="record 5 is damaged"):
        list(open_reader(path).read())
    with pytest.raises(JournalError, match="record 5"):
        async with Session(
            model=ScriptedModel(answer_as_family), home=str(tmp_path / "home"), resume=path.stem
        ):
            pass
    assert len(events) > 5


async def test_f8_a_second_process_is_refused_with_the_pid_of_the_first(work: Path) -> None:
    home = str(work.parent / "home")
    async with Session(model="offline", cwd=str(work), home=home) as session:
        await session.run("hello")
        code = (
            "import sys; from mudroom._adapters.journals.sqlite.journal import SqliteJournal as S; "
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
            async with Session(model="offline", cwd=str(work), home=home, resume=session.id):
                pass


@pytest.mark.parametrize("part", [3, 5, 7, 9])
async def test_f9_a_call_of_a_stream_that_was_cut_never_runs(work: Path, part: int) -> None:
    blocks = (
        TextBlock("I will."),
        call_bash("echo x >> effects.txt"),
        call_bash("echo y >> effects.txt", "b2"),
    )

    def answer(asked: ServerRequest) -> ServerAnswer:
        return (
            Fault(blocks, cut_after=part * 180)
            if asked.number == 1
            else blocks
            if asked.number == 2
            else "Done."
        )

    async with open_session(work, answer) as opened:
        assert (await opened.session.run("Go.")).ok
        assert (work / "effects.txt").read_text() == "x\ny\n" and opened.server.request_count == 3
        await opened.check_continues()


async def test_f10_a_call_that_waits_its_turn_does_not_run_after_a_cancel(work: Path) -> None:
    async with open_session(
        work, answer_once(call_bash("touch wait_for_file; sleep 60"), call_bash("touch late", "b2"))
    ) as opened:
        running = asyncio.create_task(opened.session.run("Go."))
        await wait_for_file(work, "wait_for_file")
        opened.session.runs.cancel()
        await running
        await asyncio.sleep(0.2)
        assert not (work / "late").exists()
        await opened.check_continues()


async def test_f11_a_grandchild_that_keeps_the_pipe_open_blocks_no_call(work: Path) -> None:
    began = time.monotonic()
    async with open_session(
        work, answer_once(call_bash("echo out; sleep 50 & (setsid sleep 50 &)"))
    ) as opened:
        assert (await opened.session.run("Go.")).ok
        [output] = opened.list_results("bash")
        assert output.startswith("out\n[ended 2 processes left in the background")
        assert time.monotonic() - began < 45


def count_states(folder: Path) -> Counter[str]:
    """Count the count_states of child processes and of all processes that work in the folder."""
    states_count: Counter[str] = Counter()
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
                states_count[status[0]] += 1
        except OSError:
            continue
    return states_count


async def test_f12_no_zombie_remains(work: Path) -> None:
    others = count_states(work)["Z"]  # of tests before, in this process
    async with open_session(
        work, answer_once(*(call_bash(f"true & exit {n}", f"b{n}") for n in range(20)))
    ) as opened:
        assert (await opened.session.run("Go.")).ok
        await wait_until(lambda: count_states(work)["Z"] <= others)


async def test_f13_processes_of_a_session_do_not_outlive_it(work: Path) -> None:
    async with open_session(
        work,
        answer_once(
            call_bash("nohup sleep 500 >/dev/null 2>&1 & setsid sleep 500 & disown -a; touch ended")
        ),
    ) as opened:
        assert (await opened.session.run("Go.")).ok
    await wait_until(
        lambda: (
            not any(
                os.path.realpath(link) == str(work) for link in Path("/proc").glob("[0-9]*/cwd")
            )
        )
    )


async def test_f14_a_program_without_its_terminal_ends(work: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 80, 0, 0))
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(work),
        "MUDROOM_HOME": str(work / "home"),
        "TERM": "xterm",
        "PROMPT_TOOLKIT_NO_CPR": "1",
    }

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    words = (sys.executable, "-m", "mudroom", "--model", "offline")
    process = await asyncio.create_subprocess_exec(
        *words,
        cwd=work,
        env=env,
        preexec_fn=take_terminal,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    await asyncio.to_thread(os.read, ours, 1)
    await asyncio.sleep(0.5)
    os.close(ours)
    async with asyncio.timeout(60):
        await process.wait()


async def look(_context: object, arguments: dict[str, str]) -> ToolResult:
    return ToolResult(Path(arguments["path"]).read_text() if "path" in arguments else "nothing new")


LOOK = Tool(
    name="look",
    description="",
    parameters={"type": "object"},
    parse=dict,
    run=look,
    effect=Effect.PURE,
)
"""A tool without threads: virtual time does not advance while a thread works."""


def on_virtual_time(
    folder: Path,
    script: Callable[[Request], Answer | Awaitable[Answer]],
    budget: Budget = UNLIMITED,
) -> tuple[Report, list[StoredEvent]]:
    """Run a scripted model on virtual time; return its report and its record."""
    events: list[AnyEvent] = []

    async def work() -> Report:
        async with (
            asyncio.timeout(5_000),
            Session(
                model=ScriptedModel(script),
                tools=[LOOK],
                cwd=str(folder),
                home=str(folder.parent / "home"),
                journal="memory",
                budget=budget,
            ) as session,
        ):
            session.watch(events.append)
            return await session.run("PARENT")

    report = run_virtual(work())
    RECORDS.append(events)
    return report, [event for event in events if not isinstance(event, Delta)]


def test_f15_a_parent_gets_every_report_in_any_order_of_ends(work: Path) -> None:
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


def test_f16_a_child_without_an_answer_of_its_model_ends(work: Path) -> None:
    async def script(request: Request) -> Answer:
        if request.prompt != "PARENT":
            await asyncio.Event().wait()
        return [call("task", prompt="CHILD")] if request.turn == 0 else request.results[0].text

    assert "TIMEOUT: the model fell silent" in on_virtual_time(work, script)[0].text


def test_f17_a_child_that_fails_does_not_affect_its_siblings(work: Path) -> None:
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


async def resume_copy(
    work: Path, cut: Callable[[StoredEvent], bool], script: Callable[[Request], Answer]
) -> tuple[list[str], list[StoredEvent]]:
    """Resume from a copy of the record that ends before the first event that is `cut`.

    Returns the requests after the resume, and the new record.
    """
    path, events = await record_session(work, answer_as_family)
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
            await session.resume_unfinished() or pytest.fail("no run is unfinished")
        ).text == "PARENT is done."
        assert (await session.run("AGAIN")).ok
    record = list(open_reader(path).read())
    RECORDS.append([*record])
    return [f"{request.prompt} {request.turn}" for request in model.requests], record


def continue_or_family(request: Request) -> Answer:
    return "I continue." if "AGAIN" in str(request.messages[-1]) else answer_as_family(request)


def second_turn_of_the_last_child(event: StoredEvent) -> bool:
    return isinstance(event, TurnFinished) and event.run == "1.1.3" and event.turn == 2


async def test_f18_a_resume_runs_no_finished_sibling_again(work: Path) -> None:
    asked, record = await resume_copy(work, second_turn_of_the_last_child, continue_or_family)
    assert "CHILD c 1" in asked and "CHILD c 0" not in asked, "its first answer was stored"
    finished = [event.run for event in record if isinstance(event, RunFinished)]
    assert sorted(Counter(finished)) == [
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
    conversations: list[str] = []

    def script(request: Request) -> Answer:
        if request.prompt == "PARENT":
            conversations.append(str(request.messages))
        return continue_or_family(request)

    await resume_copy(work, second_turn_of_the_last_child, script)
    # The evidence line of a report names the files that changed.
    histories = [re.sub(r"\[evidence: [^\]]*\]", "", messages) for messages in conversations]
    assert histories
    assert not any("effects.txt" in messages for messages in histories)


def test_f20_a_child_has_its_limit_and_its_report_names_it(work: Path) -> None:
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


def test_f22_failing_children_are_not_started_without_end(work: Path) -> None:
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
    async with open_session(work, lambda asked: Fault(status=status, body=body)) as opened:
        report = await opened.session.run("Go.")
        assert (
            report.reason is Reason.ERROR
            and "The conversation is too large: let the model read less" in report.error
            and opened.server.request_count == 1
        )
        await opened.check_continues()


def test_f24_a_run_that_repeats_a_call_ends(work: Path) -> None:
    def script(request: Request) -> Answer:
        return [call("look")] if request.tools else "I was going in circles."

    report, _ = on_virtual_time(work, script, budget=Budget(turns=5 * STOP_AFTER))
    assert (
        report.reason is Reason.LOOP
        and report.turns == STOP_AFTER + 1
        and report.text == "I was going in circles."
    )


def test_f24_polling_with_changing_results_is_no_loop(work: Path) -> None:
    def script(request: Request) -> Answer:
        (work / "state").write_text(f"{request.turn // 3} done")
        return (
            [call("look", path=str(work / "state"))]
            if request.turn < 3 * STOP_AFTER
            else "It is there."
        )

    assert on_virtual_time(work, script)[0].text == "It is there."


async def test_f25_endless_output_uses_no_memory(work: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with open_session(
        work, answer_once(*(call_bash("yes mud | head -c 30000000", f"b{n}") for n in range(3)))
    ) as opened:
        assert (await opened.session.run("Go.")).ok
        assert all(len(text) <= 50_000 for text in opened.list_results("bash"))
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < 32_000
        await opened.check_continues()


async def test_f26_output_that_is_not_text_is_accepted(work: Path) -> None:
    (work / "odd.txt").write_bytes(b"\xff\xfe\x00 \xed\xa0\xbd \x1b[31m caf\xe9")
    odd = ToolCallBlock("r", "read", {"file_path": "odd.txt"})
    async with open_session(
        work,
        answer_once(
            call_bash("printf '\\xff\\xed\\xa0\\xbd\\0 caf\\xe9'"),
            odd,
            call_bash("cat /dev/urandom | head -c 5000", "b2"),
        ),
    ) as opened:
        assert (await opened.session.run("Go.")).text == "Done."
        assert sum(isinstance(event, ToolCallStarted) for event in opened.events) == 3
        await opened.check_continues()
