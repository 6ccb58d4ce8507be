"""J1 and J5: kills, signals and changes while a batch runs; a reader beside it."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.signals import send_signal
from tests.waiting import is_alive, wait_until

from mudroom import Reason, ToolCallBlock
from mudroom._cli.batches.status import RequestCounter
from mudroom.events import ModelCallRetried, TurnFailed
from mudroom.testing import Fault, ModelServer, ServerRequest
from mudroom.testing.event_builders import run_finished
from mudroom.testing.model_server import ServerAnswer

LONG = bool(os.environ.get("MUDROOM_LONG"))
LINES = 2_000 if LONG else 60
KILLS = 20 if LONG else 3
PARALLEL = 500 if LONG else 12
BATCH_FLAGS = ("in.jsonl", "-m", "anthropic:claude-sonnet-4-5")


class BatchProcess:
    """A folder with an input, and processes of `mudroom batch` that work on it."""

    def __init__(self, folder: Path, server: ModelServer, lines: int) -> None:
        self.folder = folder
        self.output = folder / "out.jsonl"
        self.ids = [f"id-{number}" for number in range(lines)]
        values = [{"id": name, "prompt": f"Do {name}."} for name in self.ids]
        (folder / "in.jsonl").write_text("".join(json.dumps(value) + "\n" for value in values))
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "user"),
            "MUDROOM_HOME": str(folder / "home"),
            "XDG_CONFIG_HOME": str(folder / "etc"),
            "LANG": "C.UTF-8",
            "ANTHROPIC_API_KEY": "k",
            "ANTHROPIC_BASE_URL": server.url,
        }

    async def start(self, *words: str) -> Process:
        flags = ("in.jsonl", "--parallel", str(PARALLEL), "-m", "anthropic:claude-sonnet-4-5")
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mudroom", "batch", "--out", "out.jsonl", *(words or flags)),
            cwd=self.folder,
            env=self.environ,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
        )

    async def start_with_stdin(self, lines: bytes) -> Process:
        model = ("-m", "anthropic:claude-sonnet-4-5", "--parallel", "5")
        command = (sys.executable, "-m", "mudroom", "batch", "-", "--out", "out.jsonl", *model)
        process = await asyncio.create_subprocess_exec(
            *command, cwd=self.folder, env=self.environ, stdin=PIPE, stderr=DEVNULL
        )
        assert process.stdin
        process.stdin.write(lines)
        process.stdin.close()
        return process

    async def command(self, *words: str) -> str:
        process = await self.start(*words)
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return out.decode()

    def read(self, *, is_written: bool = False) -> list[dict[str, Any]]:
        """Return the lines of the output.

        Raises ValueError for half a line, except for the last one of a process that writes or was
        killed: the kernel shows a long write page by page, and ends it between two pages.
        """
        text = self.output.read_bytes() if self.output.exists() else b""
        lines = text.splitlines()
        if is_written and not text.endswith(b"\n"):
            lines = lines[:-1]
        else:
            assert not text or text.endswith(b"\n")
        return [json.loads(line) for line in lines]

    def check_complete(self) -> None:
        counts = Counter(each["custom_id"] for each in self.read())
        assert counts == Counter(self.ids)


async def answer_late(request: ServerRequest) -> str:
    await asyncio.sleep(0.02)
    return "It is done. " * 20


@asynccontextmanager
async def hold_answers(
    folder: Path, lines: int
) -> AsyncGenerator[tuple[ModelServer, BatchProcess, asyncio.Event]]:
    """Start a server that answers when the event is set, for a batch of this many lines."""
    go_on = asyncio.Event()

    async def answer(request: ServerRequest) -> str:
        await go_on.wait()
        return "It is done."

    async with ModelServer(answer, record=False) as server:
        yield server, BatchProcess(folder, server, lines), go_on


@pytest.mark.timeout(900)
async def test_j1_after_kills_each_line_has_one_result_and_few_answers_are_bought_again(
    tmp_path: Path,
) -> None:
    """J5, too: each line that a reader of the output sees ended is whole."""
    chance = random.Random(1)
    async with ModelServer(answer_late, record=False) as server:
        batch = BatchProcess(tmp_path, server, LINES)
        kills = 0
        for _ in range(KILLS):
            before = server.request_count
            process = await batch.start()
            wanted = before + chance.randrange(1, max(2, (LINES - before) // 2))
            ending = asyncio.create_task(process.wait())
            while server.request_count < wanted and not ending.done():
                batch.read(is_written=True)
                await asyncio.sleep(0.002)
            if process.returncode is None:
                process.kill()
                kills += 1
            await process.communicate()
            batch.read(is_written=True)
        process = await batch.start()
        ending = asyncio.create_task(process.communicate())
        while not ending.done():
            batch.read(is_written=True)
            await asyncio.sleep(0.002)
        _, err = await ending
        assert process.returncode == 0, err.decode()
        batch.check_complete()
        assert kills
        assert server.request_count <= LINES + kills * PARALLEL


@pytest.mark.parametrize("times", [1, 2])
async def test_ctrl_c_once_lets_the_running_lines_end_and_twice_stops_them(
    tmp_path: Path, times: int
) -> None:
    lines = PARALLEL + 28
    async with hold_answers(tmp_path, lines) as (server, batch, go_on):
        process = await batch.start()
        await wait_until(lambda: server.in_flight == PARALLEL)
        send_signal(process, signal.SIGINT)
        assert process.stderr
        while b"no further lines start" not in await process.stderr.readline():
            pass
        if times == 1:
            go_on.set()
        else:
            send_signal(process, signal.SIGINT)
        _, err = await process.communicate()
        assert process.returncode == 130
        assert times == 2 or b"left; the same command continues" in err
        ended = ["GOAL"] * PARALLEL if times == 1 else []
        assert [each["reason"] for each in batch.read()] == ended
        go_on.set()
        process = await batch.start()
        await process.communicate()
        assert process.returncode == 0
        batch.check_complete()
        assert server.request_count == lines + PARALLEL - len(ended), "no answer is bought twice"


async def test_another_terminal_shows_the_only_batch_that_runs(tmp_path: Path) -> None:
    async with hold_answers(tmp_path, 40) as (server, batch, _):
        process = await batch.start("in.jsonl", "--parallel", "2", "-m", "anthropic:claude-x")
        await wait_until(lambda: server.in_flight == 2)
        (file,) = (tmp_path / "home" / "batches").glob("*/status.json")
        await wait_until(lambda: json.loads(file.read_bytes())["running"] == 2)
        shown = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "mudroom", "batch", "status"),
            cwd=tmp_path,
            env=batch.environ,
            stdout=PIPE,
        )
        out, _ = await shown.communicate()
        assert out.decode().startswith(f"{batch.output}: running\n0 of 40 done, 2 running\n")
        process.kill()
        await process.communicate()
        status = json.loads(await batch.command("status", "--json"))
        assert (status["state"], status["running"]) == ("interrupted", 2)


async def test_a_retry_that_was_killed_gives_each_line_one_result_without_the_flag_too(
    tmp_path: Path,
) -> None:
    held = asyncio.Event()
    go_on = asyncio.Event()

    async def answer(request: ServerRequest) -> ServerAnswer:
        if server.request_count <= 2:
            return Fault("", status=400)
        held.set()
        await go_on.wait()
        return "It is done."

    async with ModelServer(answer, record=False) as server:
        batch = BatchProcess(tmp_path, server, 2)
        process = await batch.start()
        await process.communicate()
        assert [each["reason"] for each in batch.read()] == ["ERROR", "ERROR"]
        process = await batch.start(*BATCH_FLAGS, "--parallel", "1", "--retry", "ERROR")
        await held.wait()
        process.kill()
        await process.communicate()
        go_on.set()
        process = await batch.start(*BATCH_FLAGS, "--ordered")
        _, err = await process.communicate()
        assert b"2 of 2 done, 1 failed (1 ERROR), 0 running" in err
        assert process.returncode == 1
        assert [each["reason"] for each in batch.read()] == ["GOAL", "ERROR"]
        status = json.loads(await batch.command("status", "--json"))
        assert status["reasons"] == {"GOAL": 1, "ERROR": 1}


async def test_a_second_process_for_the_same_output_is_refused(tmp_path: Path) -> None:
    async with hold_answers(tmp_path, 40) as (server, batch, go_on):
        long = "word " * 1_000  # so that not all lines are read at once
        lines = [json.dumps({"id": each, "prompt": f"{each}: {long}"}) for each in batch.ids]
        process = await batch.start_with_stdin("\n".join(lines).encode())
        await wait_until(lambda: server.in_flight == 5)
        second = await batch.start()
        _, err = await second.communicate()
        assert second.returncode == 1
        text = " ".join(err.decode().split())
        assert f"process {process.pid} runs this batch" in text
        assert "mudroom batch status" in text
        third = await batch.start_with_stdin(b'"another line"\n')
        assert await third.wait() == 1
        go_on.set()
        assert await process.wait() == 0, "its stdin has changed"
        batch.check_complete()


async def test_an_unreachable_provider_ends_the_batch_with_exit_code_75(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mudroom import Session
    from mudroom._cli.batches.batch import Batch, BatchFlags, BatchPlan, BatchRecord
    from mudroom._cli.batches.input_file import InputFile
    from mudroom._cli.batches.results import ResultFile
    from mudroom.errors import ModelUnavailable
    from mudroom.testing import ScriptedModel

    model = ScriptedModel(lambda request: ModelUnavailable("the server is overloaded"))
    path = tmp_path / "in.jsonl"
    path.write_text('"a"\n' * 100)
    async with Session(model=model, journal="memory", cwd=str(tmp_path), environ={}) as session:
        with ResultFile(tmp_path / "out.jsonl") as results:
            results.publish(Counter())
            flags = BatchFlags(file=str(path), parallel=3)
            plan = BatchPlan(flags, 100, InputFile(path).read, "out.jsonl")
            batch = Batch(session, plan, BatchRecord(), results)
            await batch.run()
    assert batch.is_unavailable
    assert batch.stop_cause.startswith("the provider refused 20 lines in a row")
    assert 20 <= batch.done <= 23


def test_lines_whose_time_is_over_while_the_provider_refuses_them_count_as_refused() -> None:
    requests = RequestCounter()
    failed = TurnFailed(error="the model fell silent", run="1", turn=1, at=2.0)
    requests.observe(failed)
    assert not requests.unavailable, "its own limit can have ended it"
    retried = ModelCallRetried(attempt=1, delay=9.0, error="overloaded", run="1", turn=1, at=1.0)
    requests.observe(retried)
    assert requests.repeated == {"1": 1}
    requests.observe(failed)
    assert (requests.unavailable, requests.repeated) == ({"1"}, {})


def test_nothing_is_kept_of_children_that_have_ended() -> None:
    requests = RequestCounter()
    retried = ModelCallRetried(attempt=1, delay=9.0, error="overloaded", run="1.1", turn=1, at=1.0)
    requests.observe(retried)
    requests.observe(TurnFailed(error="overloaded", transient=True, run="1.1", turn=1, at=2.0))
    requests.observe(retried)
    requests.observe(run_finished("1.1", Reason.LOST))
    assert (requests.unavailable, requests.repeated) == (set(), {})


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_batch_that_is_told_to_end_pauses_its_lines_and_the_same_command_goes_on(
    tmp_path: Path, number: signal.Signals
) -> None:
    go_on = asyncio.Event()
    lines = PARALLEL + 3

    async def answer(request: ServerRequest) -> ServerAnswer:
        if request.turn == 0:
            return [ToolCallBlock("t", "glob", {"pattern": "*.jsonl"})]
        if not go_on.is_set():
            await go_on.wait()
        return "It is done."

    previous = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup makes children ignore it
    try:
        async with ModelServer(answer) as server:
            batch = BatchProcess(tmp_path, server, lines)
            process = await batch.start()

            def is_second_turn() -> bool:
                return sum(each.turn == 1 for each in server.requests) == PARALLEL

            await wait_until(is_second_turn)
            send_signal(process, number)
            _, err = await process.communicate()
            assert process.returncode == 128 + number, err.decode()
            assert b"Traceback" not in err and batch.read() == []
            go_on.set()
            process = await batch.start()
            _, err = await process.communicate()
            assert process.returncode == 0, err.decode()
            batch.check_complete()
            first = sum(each.turn == 0 for each in server.requests)
            assert first == lines, "the answers from before the signal were not bought again"
    finally:
        signal.signal(signal.SIGHUP, previous)


WORKER_LINES = 12
WORKER_FLAGS = ("in.jsonl", "--parallel", "6", "-m", "anthropic:claude-x", "--worker", "process:2")


async def list_workers(batch: BatchProcess) -> list[dict[str, Any]]:
    """Return the worker processes that `mudroom fleet status` shows."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mudroom", "fleet", "status", "--json"),
        env=batch.environ,
        stdout=PIPE,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return [worker for status in json.loads(out) for worker in status["workers"]]


def describe_results(batch: BatchProcess) -> dict[str, dict[str, Any]]:
    """Return the results by id, without what differs from run to run."""
    changing = ("custom_id", "run", "seconds")
    return {
        line["custom_id"]: {key: line[key] for key in line if key not in changing}
        for line in batch.read()
    }


async def test_lines_run_in_both_worker_processes_and_end_as_without_them(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    async with hold_answers(tmp_path / "a", WORKER_LINES) as (server, batch, go_on):
        process = await batch.start(*WORKER_FLAGS)
        await wait_until(lambda: server.in_flight == 6)
        workers = await list_workers(batch)
        assert [len(worker["running"]) for worker in workers] == [3, 3]
        pids = {worker["pid"] for worker in workers}
        assert len(pids) == 2
        assert process.pid not in pids
        go_on.set()
        _, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        await wait_until(lambda: not any(map(is_alive, pids)))
        local = BatchProcess(tmp_path / "b", server, WORKER_LINES)
        process = await local.start(*WORKER_FLAGS[:-2])
        await process.communicate()
        assert process.returncode == 0
        batch.check_complete()
        assert describe_results(batch) == describe_results(local)


async def test_a_killed_batch_with_worker_processes_is_continued(tmp_path: Path) -> None:
    async with hold_answers(tmp_path, WORKER_LINES) as (server, batch, go_on):
        process = await batch.start(*WORKER_FLAGS)
        await wait_until(lambda: server.in_flight == 6)
        pids = [worker["pid"] for worker in await list_workers(batch)]
        process.kill()
        await process.communicate()
        await wait_until(lambda: not any(map(is_alive, pids)))
        go_on.set()
        process = await batch.start(*WORKER_FLAGS)
        _, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        batch.check_complete()
        assert server.request_count <= WORKER_LINES + 6
