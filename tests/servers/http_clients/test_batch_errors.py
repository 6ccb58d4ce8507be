"""Errors while a batch works: results stay, and what may work later is done again."""

from __future__ import annotations

import asyncio
import os
import socket
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import openai
import pytest
from openai import AsyncOpenAI
from openai.types import Batch
from tests.waiting import SECONDS, wait_until

from mudroom.servers.http.batches.views import make_batch_id
from mudroom.servers.http.records.file_store import FileStore
from mudroom.servers.http.session_routes import make_session_id
from mudroom.testing import Request

from .conftest import MakeSite, Site
from .test_batches import (
    CHAT,
    answer,
    encode,
    finish,
    make_line,
    read_results,
    start,
    wait_for_results,
)
from .test_openai_client import open_client

ONE_AT_A_TIME = {"per_owner": 1, "retry_seconds": 0.05}


@contextmanager
def break_state(site: Site, *changes: str) -> Generator[None]:
    """Let the state file refuse changes in the block, as one that is locked."""
    with closing(sqlite3.connect(Path(site.home, "serve.sqlite3"))) as connection:
        for number, change in enumerate(changes):
            connection.execute(
                f"CREATE TRIGGER broken_{number} BEFORE {change}"
                f" BEGIN SELECT RAISE(ABORT, 'no {change} now'); END"
            )
        connection.commit()
        yield
        for number in range(len(changes)):
            connection.execute(f"DROP TRIGGER broken_{number}")
        connection.commit()


def is_open(name: str) -> bool:
    """Return whether this process has a file with the name open."""
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            if name in os.readlink(entry):
                return True
    return False


async def wait_for_count(official: AsyncOpenAI, batch: Batch, count: int) -> None:
    """Wait until the progress of a batch has a number of completed lines."""
    async with asyncio.timeout(SECONDS):
        while not batch.request_counts or batch.request_counts.completed < count:
            await asyncio.sleep(0.02)
            batch = await official.batches.retrieve(batch.id)


async def test_results_stay_when_the_input_changes_while_a_batch_works(
    make_site: MakeSite,
) -> None:
    lines = [make_line(name, name * 100_000) for name in ("a", "b", "c")]
    inside_third = len(encode(*lines[:2])) + 50_000

    def change(request: Request) -> str:
        (path,) = Path(site.home, "serve-files").glob("file-*")
        with path.open("r+b") as file:
            file.seek(inside_third)
            file.write(b"\0")
        return "Done."

    site = make_site(change, options=ONE_AT_A_TIME)
    async with open_client(site) as (official, _):
        batch = await finish(official, await start(official, *lines))
        assert (batch.status, batch.completed_at) == ("failed", None)
        assert batch.failed_at
        assert batch.request_counts
        assert batch.request_counts.completed == 1
        assert batch.errors
        (error,) = batch.errors.data or []
        assert "line 3" in str(error.message)
        assert site.home not in str(error.message)
        assert set(await read_results(official, batch.output_file_id)) == {"a"}
        assert '"custom_id":"a"' in await wait_for_results(official, batch, 1)


async def test_a_batch_goes_on_when_the_disk_is_not_full_any_more(make_site: MakeSite) -> None:
    site = make_site(answer, options=ONE_AT_A_TIME)
    async with open_client(site) as (official, client):
        content = encode(make_line("a", "Do."), make_line("b", "Do."))
        file = await official.files.create(file=("in.jsonl", content), purpose="batch")
        session = make_session_id("ada", "batch", "key:k")
        Path(site.home, "serve-files", f".{session}.results.new").symlink_to("/dev/full")
        body = {"input_file_id": file.id, "endpoint": CHAT}
        status, created = await client.send("POST", "/v1/batches", body, key="k")
        assert (status, created["id"]) == (200, make_batch_id(session))
        batch = await finish(official, await official.batches.retrieve(created["id"]))
        assert batch.status == "completed", batch.errors
        assert set(await read_results(official, batch.output_file_id)) == {"a", "b"}
        (notice,) = site.notices
        assert "the results of the batch cannot be written: No space left" in notice
        assert len(site.model.requests) == 2


async def test_a_batch_waits_while_the_state_file_cannot_be_used(make_site: MakeSite) -> None:
    held = asyncio.Event()

    async def give(request: Request) -> str:
        if "Slow" in request.prompt:
            await held.wait()
        return "Done."

    site = make_site(give, options=ONE_AT_A_TIME)
    async with open_client(site, tokens_per_day=1_000_000) as (official, _):
        with break_state(site, "INSERT ON spending", "UPDATE OF progress ON batches"):
            batch = await start(official, make_line("a", "Do."), make_line("b", "Slow."))
            await wait_for_results(official, batch, 1)
            await wait_until(lambda: "no INSERT ON spending now" in str(site.notices))
            await wait_until(lambda: "no UPDATE OF progress ON batches now" in str(site.notices))
            assert len(site.model.requests) == 1
        await wait_for_count(official, batch, 1)
        held.set()
        batch = await finish(official, batch)
        assert batch.status == "completed", batch.errors
        assert set(await read_results(official, batch.output_file_id)) == {"a", "b"}
        assert len(site.model.requests) == 2


async def test_a_batch_is_created_and_cancelled_whole_or_not_at_all(make_site: MakeSite) -> None:
    async def wait(request: Request) -> str:
        await asyncio.Event().wait()
        return ""

    site = make_site(wait)
    async with open_client(site) as (official, client):
        first = await start(official, make_line("a", "Do."))
        await wait_until(lambda: site.model.requests)
        with break_state(site, "INSERT ON inputs"):
            with pytest.raises(openai.InternalServerError, match="INSERT ON inputs"):
                await start(official, make_line("b", "Do."))
            with pytest.raises(openai.InternalServerError, match="INSERT ON inputs"):
                await official.batches.cancel(first.id)
            assert (await official.batches.retrieve(first.id)).status == "in_progress"
        assert [each.id for each in (await official.batches.list()).data] == [first.id]
        assert len((await client.get("/v1/sessions"))["data"]) == 1
        (unused, used) = (await official.files.list()).data
        await official.files.delete(unused.id)
        assert used.id == first.input_file_id
        with sqlite3.connect(Path(site.home, "serve.sqlite3")) as connection:
            connection.execute("UPDATE batches SET cancelled = 1e9")  # and no event, as of a crash
        assert (await official.batches.retrieve(first.id)).status == "cancelling"
        await official.batches.cancel(first.id)
        assert (await finish(official, first)).status == "cancelled"


async def test_a_cancel_goes_on_when_its_client_disconnects(make_site: MakeSite) -> None:
    async def wait(request: Request) -> str:
        await asyncio.Event().wait()
        return ""

    site = make_site(wait)
    async with open_client(site) as (official, _):
        batch = await start(official, make_line("a", "Do."))
        await wait_until(lambda: site.model.requests)
        with closing(sqlite3.connect(Path(site.home, "serve.sqlite3"))) as connection:
            connection.execute("BEGIN IMMEDIATE")
            cancelling = asyncio.create_task(official.batches.cancel(batch.id))
            hosts = site.server._hosts if site.server else None
            await wait_until(lambda: hosts and hosts._aside)
            cancelling.cancel()
            await asyncio.wait([cancelling])
            connection.execute("ROLLBACK")
        assert (await finish(official, batch)).status == "cancelled"


async def test_lines_and_batches_that_wait_can_be_cancelled_alone(make_site: MakeSite) -> None:
    async def wait(request: Request) -> str:
        if "Slow" in request.prompt:
            await asyncio.Event().wait()
        return "Done."

    site = make_site(wait, options=ONE_AT_A_TIME)
    async with open_client(site) as (official, client):
        batch = await start(official, make_line("a", "Slow."), make_line("b", "Do."))
        await wait_until(lambda: site.model.requests)
        later = await start(official, make_line("c", "Do."))
        later = await official.batches.cancel(later.id)
        assert (later.status, later.failed_at, later.errors) == ("cancelled", None, None)
        assert later.cancelled_at
        assert later.cancelled_at == later.cancelling_at
        session = batch.id.removeprefix("batch_")
        assert (await client.post(session, "run.cancel", run="1"))["is_applied"]
        batch = await finish(official, batch)
        assert batch.status == "completed"
        errors = await read_results(official, batch.error_file_id)
        assert (list(errors), errors["a"]["error"]["code"]) == (["a"], "cancelled")
        assert set(await read_results(official, batch.output_file_id)) == {"b"}


async def test_a_slow_reader_of_a_file_is_cut_without_an_error(make_site: MakeSite) -> None:
    site = make_site(answer, options={"write_seconds": 0.1})
    async with open_client(site) as (official, client):
        file = await official.files.create(file=("a", b"x" * (8 << 20)), purpose="batch")
        host, port = client.url.removeprefix("http://").split(":")
        with socket.socket() as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.connect((host, int(port)))
            request = f"GET /v1/files/{file.id}/content HTTP/1.1\r\nHost: {host}:{port}\r\n"
            reader.sendall(f"{request}Authorization: Bearer {client.token}\r\n\r\n".encode())
            await wait_until(lambda: is_open(file.id))
            await wait_until(lambda: not is_open(file.id))
        await client.get("/v1/files")
        assert site.notices == []


def test_two_servers_can_remove_old_files_at_the_same_time(tmp_path: Path) -> None:
    class OtherServer(set[str]):
        """Names of no files. A file that is looked for is removed."""

        def __contains__(self, name: object) -> bool:
            Path(tmp_path, "serve-files", str(name)).unlink()
            return False

    files = FileStore(str(tmp_path))
    files.get_results_path("s").with_name("old").touch()
    files.remove_orphans(OtherServer())
    assert list(Path(tmp_path, "serve-files").iterdir()) == []


async def test_the_errors_of_a_batch_are_bounded(make_site: MakeSite) -> None:
    lines = [make_line(f"{number}", "Do.", model=f"{number}" * 5_000) for number in range(12)]
    async with open_client(make_site(answer)) as (official, _):
        batch = await start(official, *lines)
        assert batch.errors
        messages = [str(each.message) for each in batch.errors.data or []]
        assert len(messages) == 10
        assert max(map(len, messages)) < 500
        assert ["may use: mudroom, reader" in message for message in messages] == [
            True,
            *[False] * 9,
        ]
