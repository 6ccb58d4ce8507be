"""Sessions continue after kill -9, as a fork, by name, and never in two processes."""

import asyncio
import json
import os
import shutil
import signal
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom._core.events import RunFinished
from mudroom._core.messages import ToolCallBlock
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest

from ..waiting import wait_until
from .conftest import Mudroom
from .course import MODEL

JSON = ("-o", "json")


class FamilyStory:
    """Answers of a parent with three children that write files and run commands.

    The model of the third child hangs while `hangs` is set. `turns`: requests by run and turn.
    """

    def __init__(self) -> None:
        self.hangs = True
        self.turns = Counter[str]()

    def __call__(self, request: ServerRequest) -> ServerAnswer:
        if "task" in request.tools:
            self.turns[f"parent {request.turn}"] += 1
            children = [
                ToolCallBlock(f"t{name}", "task", {"prompt": f"CHILD {name}", "description": name})
                for name in "abc"
            ]
            return "all three are done" if request.turn else children
        name = next(name for name in "abc" if f"CHILD {name}" in request.body.decode())
        self.turns[f"{name} {request.turn}"] += 1
        if request.turn == 0:
            return [
                ToolCallBlock(
                    f"w{name}",
                    "write",
                    {"file_path": f"{name}.txt", "content": f"made by {name}\n"},
                )
            ]
        if request.turn == 1:
            return [ToolCallBlock(f"b{name}", "bash", {"command": f"echo {name} >> effects.txt"})]
        if name == "c" and self.hangs:
            return Fault(delay=60)
        return f"child {name} is done"


async def run_and_kill(
    mudroom: Mudroom, server: ModelServer, story: FamilyStory, *arguments: str
) -> None:
    """Run until two children have finished and the third one waits, and kill the process."""
    process = await mudroom.start("-p", "PARENT", *MODEL, *arguments, url=server.url)
    await wait_until(lambda: story.turns["c 2"] and _count_finished_runs(mudroom) == 2)
    process.send_signal(signal.SIGKILL)
    await process.wait()


def _count_finished_runs(mudroom: Mudroom) -> int:
    records = (mudroom.home / "sessions").glob("*.db")
    return sum(isinstance(e, RunFinished) for db in records for e in open_reader(db).read())


async def _list_sessions(mudroom: Mudroom) -> list[dict[str, Any]]:
    return json.loads((await mudroom("runs", "--json")).out)


async def test_s1_to_s4_resume_after_kill_9_finishes_the_run_and_prints_as_p_does(
    mudroom: Mudroom,
) -> None:
    story = FamilyStory()
    async with ModelServer(story) as server:
        await run_and_kill(mudroom, server, story)
        assert [item["state"] for item in await _list_sessions(mudroom)] == ["interrupted"]
        story.hangs = False
        done = await mudroom("resume", *JSON, url=server.url)
    result = json.loads(done.out)
    assert (
        done.code == 0
        and result["result"] == "all three are done"
        and result["subtype"] == "success"
    )
    assert story.turns.pop("c 2") == 2 and set(story.turns.values()) == {1}
    assert sorted((mudroom.project / "effects.txt").read_text().split()) == ["a", "b", "c"]
    assert sorted(report["text"] for report in result["reports"]) == [
        f"child {name} is done" for name in "abc"
    ]
    assert result["ledger"]["children"] == 3 and result["num_turns"] == 2
    assert [item["state"] for item in await _list_sessions(mudroom)] == ["finished"]
    again = await mudroom("resume", "--last", *JSON)
    assert json.loads(again.out)["result"] == "all three are done" and "last answer" in again.err
    assert (await mudroom("resume")).out == "all three are done\n"
    effects = (mudroom.project / "effects.txt").read_text()
    replayed = await mudroom("replay", "last")
    assert (
        replayed.code == 0
        and replayed.out == "all three are done\n"
        and "Replay matched: 4 runs" in replayed.err
    )
    assert (mudroom.project / "effects.txt").read_text() == effects


async def test_s9_limits_of_an_interrupted_run_still_hold(mudroom: Mudroom) -> None:
    story = FamilyStory()
    async with ModelServer(story) as server:
        await run_and_kill(mudroom, server, story, "--max-turns", "1", "--max-budget-usd", "5")
        story.hangs = False
        done = await mudroom("-c", "-p", "NEXT", *JSON, url=server.url)
    assert done.code == 0 and json.loads(done.out)["num_turns"] == 1
    shown = (await mudroom("show", "last")).out
    assert "Turn limit" in shown and "NEXT" in shown


async def test_continue_finishes_the_interrupted_run_before_the_prompt(mudroom: Mudroom) -> None:
    story = FamilyStory()
    async with ModelServer(story) as server:
        await run_and_kill(mudroom, server, story, "--name", "big job")
        story.hangs = False
        done = await mudroom("--resume", "big job", "-p", "NEXT", *MODEL, url=server.url)
        assert done.code == 0 and "interrupted" in done.err
        last = server.requests[-1].body.decode()
    assert "PARENT" in last and "all three are done" in last and "NEXT" in last
    assert [
        (item["name"], item["prompts"], item["state"]) for item in await _list_sessions(mudroom)
    ] == [("big job", 2, "finished")]


async def test_s5_a_second_process_is_refused_with_pid_and_remedy(mudroom: Mudroom) -> None:
    story = FamilyStory()
    async with ModelServer(story) as server:
        process = await mudroom.start("-p", "PARENT", *MODEL, url=server.url)
        await wait_until(lambda: story.turns["c 2"])
        assert [item["state"] for item in await _list_sessions(mudroom)] == ["live"]
        for words in (("-c", "-p", "x"), ("resume",), ("delete", "last", "--yes")):
            done = await mudroom(*words, url=server.url)
            assert (
                done.code == 1
                and f"process {process.pid} " in done.err
                and "--fork-session" in done.err
            )
        assert (await mudroom("rename", "last", "in use")).code == 0
        story.hangs = False
        forked = await mudroom("-c", "--fork-session", "-p", "PARENT", *MODEL, url=server.url)
        assert forked.code == 0 and forked.out == "all three are done\n"
        process.send_signal(signal.SIGKILL)
        await process.wait()
    states = {
        item["name"]: (item["state"], item["prompts"]) for item in await _list_sessions(mudroom)
    }
    assert states == {"in use": ("interrupted", 1), "": ("finished", 1)}


async def test_the_next_job_continues_what_the_runner_stopped(mudroom: Mudroom) -> None:
    story = FamilyStory()
    async with ModelServer(story) as server:
        process = await mudroom.start("-p", "PARENT", *MODEL, url=server.url)
        await wait_until(lambda: story.turns["c 2"] and _count_finished_runs(mudroom) == 2)
        process.send_signal(signal.SIGTERM)
        started = asyncio.get_running_loop().time()
        assert await process.wait() == 143
        assert asyncio.get_running_loop().time() - started < 5
        assert server.in_flight == 0
        cached = mudroom.home.with_name("cached")
        shutil.copytree(mudroom.home, cached)
        shutil.rmtree(mudroom.home)
        mudroom.env["MUDROOM_HOME"] = str(cached)
        story.hangs = False
        done = await mudroom("-c", "-p", "What was done?", *MODEL, *JSON, url=server.url)
    assert done.code == 0, done.err
    texts = str(server.requests[-1].messages)
    assert "PARENT" in texts
    assert "What was done?" in texts


async def test_a_fork_does_not_change_the_original(mudroom: Mudroom) -> None:
    async with ModelServer(lambda request: f"answer {request.turn}") as server:
        await mudroom("-p", "first", *MODEL, url=server.url)
        record = next(Path(mudroom.home, "sessions").glob("*.db"))
        before = record.read_bytes()
        chosen = "12345678-1234-4234-8234-123456789abc"
        done = await mudroom(
            "-c",
            "--fork-session",
            "--session-id",
            chosen,
            "-p",
            "second",
            *MODEL,
            *JSON,
            url=server.url,
        )
        assert (
            json.loads(done.out)["session_id"] == chosen
            and json.loads(done.out)["result"] == "answer 1"
        )
    assert record.read_bytes() == before
    assert {item["id"]: item["prompts"] for item in await _list_sessions(mudroom)} == {
        chosen: 2,
        record.stem: 1,
    }


async def test_a_session_continues_in_its_own_folder(mudroom: Mudroom, tmp_path: Path) -> None:
    async with ModelServer(lambda request: "ok") as server:
        first = json.loads((await mudroom("-p", "x", *MODEL, *JSON, url=server.url)).out)
        elsewhere = tmp_path / "elsewhere"
        elsewhere.mkdir()
        refused = await mudroom("-C", str(elsewhere), "-c", "-p", "y", *MODEL, url=server.url)
        assert refused.code == 2 and "no session of this folder" in refused.err
        words = ("-r", first["session_id"][:8], "-p", "y", "-o", "stream-json", *MODEL)
        done = await mudroom("-c", *words[2:], url=server.url)
        assert json.loads(done.out.splitlines()[0])["cwd"] == str(mudroom.project)
        done = await mudroom("-C", str(elsewhere), *words, url=server.url)
        assert json.loads(done.out.splitlines()[0])["cwd"] == str(elsewhere)
        assert f"goes on in {elsewhere}; before, it worked in {mudroom.project}" in done.err


async def test_a_moved_project_continues_with_its_new_folder(
    mudroom: Mudroom, tmp_path: Path
) -> None:
    story = FamilyStory()
    async with ModelServer(story) as server:
        await run_and_kill(mudroom, server, story, "--permission-mode", "bypassPermissions")
        story.hangs = False
        project = mudroom.project
        new = mudroom.project = project.rename(tmp_path / "new")
        session = next((mudroom.home / "sessions").glob("*.db")).stem

        lost = await mudroom("resume", session, url=server.url)
        assert lost.code == 2 and str(project) in lost.err and "-C FOLDER" in lost.err
        guess = await mudroom("-c", "-p", "x", *MODEL, url=server.url)
        assert guess.code == 2 and f"mudroom -C . --resume {session[:8]}" in guess.err
        done = await mudroom("resume", session, "-C", str(new), url=server.url)
        assert done.code == 0 and done.out == "all three are done\n", done.err
        assert "goes on in" in done.err and str(project) in done.err
        assert sorted((new / "effects.txt").read_text().split()) == ["a", "b", "c"]
        assert not project.exists()

        copy = await mudroom(
            "-C", ".", "-r", session, "--fork-session", "-p", "x", *MODEL, url=server.url
        )
        assert copy.code == 0 and "goes on in" not in copy.err, copy.err
        last = await mudroom("-c", "-p", "x", *MODEL, url=server.url)
        assert last.code == 0, "it belongs to the new folder now"


async def test_wrong_session_flags_are_errors(mudroom: Mudroom) -> None:
    for words, says in [
        (("-c", "-p", "x"), "no session of this folder"),
        (("-r", "nobody", "-p", "x"), "unknown session 'nobody'"),
        (("--fork-session", "-p", "x"), "--continue or --resume"),
        (("--session-id", "7", "-p", "x"), "must be a UUID"),
        (("-r", "-p", "x"), "needs an ID"),
        (("--name", "abc", "-p", "x", "--model", "offline"), "looks like a session id"),
        (("resume",), "no session of this folder"),
        (("delete", "nobody"), "unknown session"),
        (("--max-budget-usd", "0", "-p", "x"), "0"),
    ]:
        done = await mudroom(*words)
        assert done.code == 2 and says in done.err, (words, done.err)


async def test_sessions_are_renamed_deleted_and_expire(mudroom: Mudroom) -> None:
    async with ModelServer(lambda request: "ok") as server:
        assert (await mudroom("board", "add", "a task")).code == 0
        (board,) = Path(mudroom.home, "boards").glob("*.db")
        for name in ("one", "two"):
            assert (
                await mudroom("-p", name, "-n", f"the {name}", *MODEL, url=server.url)
            ).code == 0
        taken = await mudroom("rename", "the one", "the two")
        assert taken.code == 2 and "already" in taken.err
        assert (await mudroom("rename", "the one", "first")).code == 0
        assert "[first] one" in (await mudroom("runs")).out
        unconfirmed = await mudroom("delete", "first", stdin=b"")
        assert unconfirmed.code == 2 and "--yes" in unconfirmed.err
        for session in await _list_sessions(mudroom):
            _store_answer(board, session["id"])
        assert _count_answers(board) == 2
        assert (await mudroom("delete", "first", "the two", "--yes")).code == 0
        assert _count_answers(board) == 0
        assert await _list_sessions(mudroom) == [] and not list(
            Path(mudroom.home, "sessions").iterdir()
        )
        await mudroom("-p", "old", *MODEL, url=server.url)
        (record,) = Path(mudroom.home, "sessions").iterdir()
        _store_answer(board, record.stem)
        os.utime(record, (1_000_000_000, 1_000_000_000))
        (mudroom.home / "config.toml").write_text("retention_days = 30\n")
        done = await mudroom("-p", "new", *MODEL, url=server.url)
        assert "deleted 1 session older than 30 days" in done.err
        assert _count_answers(board) == 0
    assert [item["prompt"] for item in await _list_sessions(mudroom)] == ["new"]


def _store_answer(board: Path, session: str) -> None:
    with sqlite3.connect(board) as connection:
        connection.execute("INSERT INTO op VALUES (?, '{}')", (f"{session}#1#1.1",))
    connection.close()


def _count_answers(board: Path) -> int:
    connection = sqlite3.connect(board)
    (count,) = connection.execute("SELECT count(*) FROM op").fetchone()
    connection.close()
    return count
