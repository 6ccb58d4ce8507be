"""Batches over HTTP: the official client of OpenAI uploads lines, and reads their results."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types import Batch
from tests.waiting import SECONDS

from mudroom import Usage
from mudroom._core.messages import AssistantMessage, TextBlock
from mudroom.errors import ModelRefused
from mudroom.testing import ModelServer, Request, ServerRequest
from mudroom.testing.model_server import ServerAnswer

from .conftest import Client, Line, MakeSite
from .program import make_token, start_server
from .test_images import IMAGE
from .test_openai_client import open_client

CHAT: Any = "/v1/chat/completions"
RESPONSES: Any = "/v1/responses"


def make_line(name: str, prompt: str, **body: Any) -> Line:
    """Return a line for chat completions."""
    message = {"role": "user", "content": prompt}
    body = {"model": "mudroom", "messages": [message], **body}
    return {"custom_id": name, "method": "POST", "url": CHAT, "body": body}


def encode(*lines: Line) -> bytes:
    """Return lines as a file."""
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


async def start(official: AsyncOpenAI, *lines: Line, endpoint: Any = CHAT, **fields: Any) -> Batch:
    """Upload lines, and start a batch."""
    file = await official.files.create(file=("in.jsonl", encode(*lines)), purpose="batch")
    return await official.batches.create(
        input_file_id=file.id, endpoint=endpoint, completion_window="24h", **fields
    )


async def finish(official: AsyncOpenAI, batch: Batch) -> Batch:
    """Wait until a batch has ended."""
    async with asyncio.timeout(SECONDS):
        while batch.status not in ("completed", "failed", "cancelled"):
            await asyncio.sleep(0.02)
            batch = await official.batches.retrieve(batch.id)
    return batch


async def wait_for_results(official: AsyncOpenAI, batch: Batch, count: int) -> str:
    """Wait until lines have results; return all of them."""
    path = f"/batches/{batch.id}/output"
    async with asyncio.timeout(SECONDS):
        while (text := await official.get(path, cast_to=str)).count("\n") < count:  # noqa: ASYNC110
            await asyncio.sleep(0.02)  # clients get no notice
    return text


async def read_results(official: AsyncOpenAI, file: str | None) -> dict[str, Line]:
    """Return the lines of a file with results, by the ids of their inputs."""
    assert file
    lines = (await official.files.content(file)).text.splitlines()
    results = {each["custom_id"]: each for each in map(json.loads, lines)}
    assert len(results) == len(lines)
    return results


def answer(request: Request) -> Any:
    """Answer a line, or fail at one."""
    if "Fail" in request.prompt:
        raise ModelRefused("It is refused.")
    return f"Answer to {request.prompt}"


async def test_the_official_client_runs_a_batch(make_site: MakeSite) -> None:
    async with open_client(make_site(answer)) as (official, client):
        lines = [make_line(f"line {number}", f"Do {number}.") for number in range(5)]
        lines.append(make_line("reader", "Read.", model="reader"))
        lines.append(make_line("bad", "Fail."))
        batch = await start(official, *lines, metadata={"job": "night"})
        assert batch.status in ("validating", "in_progress")
        batch = await finish(official, batch)
        assert (batch.status, batch.metadata) == ("completed", {"job": "night"}), batch.errors
        assert batch.request_counts
        counts = batch.request_counts
        assert (counts.total, counts.completed, counts.failed) == (7, 6, 1)
        results = await read_results(official, batch.output_file_id)
        assert set(results) == {*(f"line {number}" for number in range(5)), "reader"}
        body = results["line 3"]["response"]["body"]
        assert body["choices"][0]["message"]["content"] == "Answer to Do 3."
        errors = await read_results(official, batch.error_file_id)
        assert errors["bad"]["error"]["code"] == "ERROR"
        assert "It is refused." in errors["bad"]["error"]["message"]
        status, text = await client.send("GET", f"/v1/batches/{batch.id}/output")
        assert (status, len(text.splitlines())) == (200, 7)
        assert [each.id for each in (await official.batches.list()).data] == [batch.id]
        names = [each.filename for each in (await official.files.list()).data]
        assert names == [f"{batch.id}_error.jsonl", f"{batch.id}_output.jsonl", "in.jsonl"]
        assert (await official.files.delete(batch.input_file_id)).deleted
        session = (await client.get("/v1/sessions"))["data"][0]
        assert batch.id == f"batch_{session['id']}"
        assert session["tokens"] > 0
        refused = await client.send(
            "POST", f"/v1/sessions/{session['id']}/events", {"type": "user.message", "text": "x"}
        )
        assert (refused[0], refused[1]["error"]["code"]) == (409, "session_of_batch")


async def test_a_batch_of_responses_has_responses(make_site: MakeSite) -> None:
    async with open_client(make_site(answer)) as (official, _):
        body = {"model": "mudroom", "input": "Say it."}
        line = {"custom_id": "a", "method": "POST", "url": RESPONSES, "body": body}
        batch = await finish(official, await start(official, line, endpoint=RESPONSES))
        result = (await read_results(official, batch.output_file_id))["a"]["response"]["body"]
        assert result["object"] == "response"
        assert openai.types.responses.Response.construct(**result).output_text  # type: ignore[truthy-function]
        assert result["output"][0]["content"][0]["text"] == "Answer to Say it."


async def test_wrong_lines_are_named_and_nothing_runs(make_site: MakeSite) -> None:
    site = make_site(answer)
    async with open_client(site, agents=("reader",)) as (official, client):
        lines = [
            make_line("a", "Do.", model="reader"),
            make_line("a", "Do.", model="reader"),
        ]
        batch = await start(official, *lines)
        assert batch.status == "failed"
        assert batch.errors
        assert [each.line for each in batch.errors.data or ()] == [2]
        wrong: list[tuple[Line, str]] = [
            ({"custom_id": "x"}, "no request"),
            (
                {**make_line("x", "Do."), "url": RESPONSES},
                "the batch is for POST /v1/chat/completions",
            ),
            (make_line("x", "Do.", tools=[{"type": "function"}]), "tools cannot be used"),
            (make_line("x", "Do.", stream=True), "stream cannot be used"),
            (make_line("x", " "), "prompt"),
            (make_line("x", "", messages=[{"role": "user", "content": [IMAGE]}]), "images cannot"),
            (make_line("", "Do."), "the id is ''"),
            (make_line("x", "Do."), "no agent 'mudroom'; it may use: reader"),
        ]
        for line, message in wrong:
            batch = await start(official, line)
            assert batch.errors
            assert batch.errors.data
            assert message in str(batch.errors.data[0].message)
            assert batch.errors.data[0].line == 1
            assert site.home not in str(batch.errors.data[0].message)
        empty = await official.files.create(file=("e", b"\n"), purpose="batch")
        batch = await official.batches.create(
            input_file_id=empty.id, endpoint=CHAT, completion_window="24h"
        )
        assert batch.status == "failed"
        with pytest.raises(openai.BadRequestError, match="purpose"):
            await official.files.create(file=("e", b"x"), purpose="assistants")
        with pytest.raises(openai.NotFoundError):
            await official.batches.create(
                input_file_id="file-x", endpoint=CHAT, completion_window="24h"
            )
        for body, kind in (
            (b"x", "text/plain"),
            (b"--x\r\nbad", "multipart/form-data; boundary=x"),
        ):
            status, _ = await client.send("POST", "/v1/files", body, **{"Content-Type": kind})
            assert status == 400, site.notices
        assert (await client.get("/v1/sessions"))["data"] == []
        assert site.model.requests == []


async def test_a_repeated_request_starts_one_batch(make_site: MakeSite) -> None:
    site = make_site(answer)
    async with open_client(site) as (official, client):
        batch = await finish(official, await start(official, make_line("a", "Do.")))
        body = {"input_file_id": batch.input_file_id, "endpoint": CHAT}
        first = await client.send("POST", "/v1/batches", body, key="k")
        again = await client.send("POST", "/v1/batches", body, key="k")
        assert first[1]["id"] == again[1]["id"] != batch.id
        changed = await client.send("POST", "/v1/batches", {**body, "mode": "plan"}, key="k")
        assert changed[0] == 409


async def test_a_cancelled_batch_keeps_its_results(make_site: MakeSite) -> None:
    opened = asyncio.Event()

    async def wait(request: Request) -> str:
        if "Slow" in request.prompt:
            opened.set()
            await asyncio.Event().wait()
        return "Done."

    site = make_site(wait, options={"parallel": 2, "per_owner": 2})
    async with open_client(site) as (official, _):
        names = ["fast", *(f"Slow {number}" for number in range(8))]
        batch = await start(official, *(make_line(name, f"{name}.") for name in names))
        await opened.wait()
        assert "fast" in await wait_for_results(official, batch, 1)
        with pytest.raises(openai.ConflictError, match="a batch reads this file"):
            await official.files.delete(batch.input_file_id)
        cancelled = await official.batches.cancel(batch.id)
        assert cancelled.status in ("cancelling", "cancelled")
        batch = await finish(official, cancelled)
        assert (batch.status, batch.error_file_id) == ("cancelled", None)
        assert set(await read_results(official, batch.output_file_id)) == {"fast"}
        assert len(site.model.requests) == 3


async def test_a_batch_shares_places_and_ends_with_the_budget_of_the_day(
    make_site: MakeSite,
) -> None:
    opened = asyncio.Event()

    async def give(request: Request) -> AssistantMessage | str:
        if "Few" in request.prompt:
            return "Quick."
        await opened.wait()
        return AssistantMessage((TextBlock("Done."),), model="m", usage=Usage(60_000, 0))

    site = make_site(give, options={"parallel": 4, "per_owner": 3})
    async with open_client(site, owner="many", tokens_per_day=100_000) as (official, client):
        lines = [make_line(f"{number}", f"Many {number}.") for number in range(20)]
        batch = await start(official, *lines)
        few = Client(client._http, client.url, site.add_token("few"))
        session = (await few.create(prompt="Few."))["id"]
        assert (await few.finish(session))["last"]["reason"] == "GOAL"
        opened.set()
        batch = await finish(official, batch)
        assert batch.status == "completed"
        assert batch.request_counts
        assert batch.request_counts.total == 20
        errors = await read_results(official, batch.error_file_id)
        codes = [each["error"]["code"] for each in errors.values()]
        assert codes.count("budget_used_up") >= 17
        assert len(site.model.requests) <= 4
        with pytest.raises(openai.RateLimitError, match="budget of this day"):
            await start(official, make_line("a", "Do."))


@pytest.mark.timeout(300)
async def test_a_batch_of_a_killed_server_continues(tmp_path: Path) -> None:
    asked: list[str] = []
    held = asyncio.Event()
    is_dead = False

    async def give(request: ServerRequest) -> ServerAnswer:
        prompt = str(request.messages[-1]["content"])
        asked.append(prompt)
        if "Slow" in prompt and not is_dead:
            held.set()
            await asyncio.Event().wait()
        return "Done."

    token = make_token(tmp_path)
    lines = [make_line(f"f{number}", f"Quick {number}.") for number in range(6)]
    lines += [make_line(f"s{number}", f"Slow {number}.") for number in range(6)]
    flags = ("--parallel", "6", "--parallel-owner", "4")
    async with ModelServer(give) as model:
        async with (
            start_server(tmp_path, model.url, *flags) as (process, url),
            AsyncOpenAI(base_url=f"{url}/v1", api_key=token, max_retries=0) as official,
        ):
            batch = await start(official, *lines)
            await wait_for_results(official, batch, 6)
            async with asyncio.timeout(SECONDS):
                await held.wait()
            process.kill()
            await process.wait()
        is_dead = True
        async with (
            start_server(tmp_path, model.url, *flags) as (process, url),
            AsyncOpenAI(base_url=f"{url}/v1", api_key=token, max_retries=0) as official,
        ):
            batch = await finish(official, batch)
            assert batch.status == "completed", batch.errors
            results = await read_results(official, batch.output_file_id)
            assert set(results) == {line["custom_id"] for line in lines}
            assert batch.error_file_id is None
    quick = [prompt for prompt in asked if "Quick" in prompt]
    assert len(quick) == len(set(quick)) == 6


async def test_files_have_limits(make_site: MakeSite) -> None:
    site = make_site(answer, options={"max_file": 1_000, "max_file_bytes": 1_500})
    async with open_client(site) as (official, _):
        with pytest.raises(openai.APIStatusError, match="at most 1,000 bytes"):
            await official.files.create(file=("a", b"x" * 1_001), purpose="batch")
        created = await asyncio.gather(
            *(official.files.create(file=("a", b"x" * 999), purpose="batch") for _ in range(4)),
            return_exceptions=True,
        )
        refused = [each for each in created if isinstance(each, openai.RateLimitError)]
        assert len(refused) == 2
        with pytest.raises(openai.RateLimitError, match="Delete some"):
            await official.files.create(file=("a", b"x"), purpose="batch")
        folder = Path(site.home, "serve-files")
        assert len(list(folder.iterdir())) == 2
        assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
