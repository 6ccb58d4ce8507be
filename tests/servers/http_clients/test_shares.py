"""Shares of owners: places for prompts, daily budgets, and the end of a server."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.waiting import SECONDS, wait_until

from mudroom import Usage
from mudroom._adapters.journals.sessions import open_store
from mudroom._core.messages import AssistantMessage, TextBlock
from mudroom.driving import FairSlots
from mudroom.errors import MudroomError
from mudroom.testing import Request, call
from mudroom.views import calculate_cost
from mudroom_serve.state.sessions import Amounts, SpendingRecords
from mudroom_serve.state.state_file import StateFile

from ..gate import Gate
from .conftest import Client, MakeSite, WrappedStore


async def test_places_go_to_the_owner_with_the_fewest() -> None:
    slots = FairSlots(4, 3)
    order: list[str] = []
    release = asyncio.Event()

    async def work(owner: str) -> None:
        async with slots.hold(owner):
            order.append(owner)
            await release.wait()
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(work("a")) for _ in range(20)]
    await asyncio.sleep(0)
    assert order == ["a"] * 3
    tasks += [asyncio.create_task(work("b")) for _ in range(2)]
    await asyncio.sleep(0.01)
    assert order == ["a"] * 3 + ["b"]
    release.set()
    await asyncio.gather(*tasks)
    assert order[4] == "b" or order[5] == "b"
    assert (slots.working, slots.waiting) == (0, 0)


async def test_a_place_that_becomes_free_right_after_a_cancel_goes_to_the_next_one() -> None:
    slots = FairSlots(1, 1)
    async with slots.hold("a"):
        gone, late, last = [asyncio.create_task(slots.hold("b").__aenter__()) for _ in range(3)]
        await asyncio.sleep(0)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        assert slots.waiting == 2
        late.cancel()  # it has not run since when the place becomes free
    await asyncio.gather(late, return_exceptions=True)
    await last
    assert (slots.working, slots.waiting) == (1, 0)


async def test_many_prompts_of_one_owner_do_not_delay_another(make_site: MakeSite) -> None:
    gate = Gate()

    async def answer(request: Request) -> str:
        return await gate(request) if "Many" in request.prompt else "Done."

    site = make_site(answer, options={"parallel": 4, "per_owner": 3})
    async with site.connect(owner="many") as many:
        few = Client(many._http, many.url, site.add_token("few"))
        sessions = [(await many.create(prompt="Many."))["id"] for _ in range(12)]
        for _ in range(5):
            session = (await few.create(prompt="Few."))["id"]
            assert (await few.finish(session))["last"]["reason"] == "GOAL"
        gate.opened.set()
        for session in sessions:
            assert (await many.finish(session))["last"]["reason"] == "GOAL"


@pytest.mark.skipif(not os.environ.get("MUDROOM_LONG"), reason="5,000 prompts take minutes")
@pytest.mark.timeout(1_800)
async def test_five_prompts_beside_5000_take_at_most_twice_their_time(make_site: MakeSite) -> None:
    gate = Gate()

    async def answer(request: Request) -> str:
        if "Many" in request.prompt:
            await gate(request)
        await asyncio.sleep(0.5)
        return "Done."

    site = make_site(answer, options={"parallel": 32, "per_owner": 24, "idle_seconds": 0.0})
    async with site.connect(owner="many") as many:
        few = Client(many._http, many.url, site.add_token("few"))

        async def measure() -> float:
            began = time.perf_counter()
            own = [(await few.create(prompt="Few."))["id"] for _ in range(5)]
            for session in own:
                await few.finish(session)
            return time.perf_counter() - began

        alone = await measure()
        for _ in range(5_000):
            await many.create(prompt="Many.")
        gate.opened.set()
        assert await measure() <= 2 * alone


def spend(tokens: int) -> Any:
    return AssistantMessage((TextBlock("Done."),), model="m", usage=Usage(tokens, 0))


async def test_the_budget_of_a_day_is_of_the_owner(make_site: MakeSite) -> None:
    site = make_site([spend(120_000)])
    async with site.connect(tokens_per_day=100_000) as client:
        session = await client.create(prompt="Go.")
        await client.finish(session["id"])
        other = Client(client._http, client.url, site.add_token(tokens_per_day=100_000))
        status, value = await other.send("POST", "/v1/sessions", {"prompt": "Go."})
        assert (status, value["error"]["code"]) == (429, "budget_used_up")
        assert "120,000 of 100,000 tokens" in value["error"]["message"]
        free = Client(client._http, client.url, site.add_token("eve", tokens_per_day=100_000))
        assert (await free.send("POST", "/v1/sessions", {}))[0] == 201


async def test_the_budget_of_a_day_ends_a_run(make_site: MakeSite) -> None:
    def read(request: Request) -> Any:
        if request.number > 20:
            return "Never."
        block = call("read", path=f"f{request.number}.md")
        return AssistantMessage((block,), model="m", usage=Usage(30_000, 0))

    site = make_site(read)
    async with site.connect(tokens_per_day=100_000) as client:
        session = (await client.create(prompt="Go."))["id"]
        ended = await client.finish(session)
        assert ended["last"]["reason"] == "BUDGET"
        assert 2 <= len(site.model.requests) < 10


async def test_an_answer_is_charged_at_the_price_of_the_model_that_gave_it(
    make_site: MakeSite,
) -> None:
    answer = AssistantMessage(
        (TextBlock("Done."),), usage=Usage(1_000, 1_000), answered_by="anthropic:claude-opus-4-5"
    )

    def give(_: Request) -> AssistantMessage:
        return answer

    site = make_site(give)
    async with site.connect(usd_per_day=1.0) as client:
        await client.finish((await client.create(prompt="Go."))["id"])
        spent = await SpendingRecords(StateFile(site.home)).read_today("ada")
    assert spent == Amounts(calculate_cost(answer.answered_by, answer.usage) or 0.0, 2_000)
    assert spent.usd > 0


async def test_too_many_waiting_prompts_are_refused(make_site: MakeSite) -> None:
    async with make_site(Gate(), options={"max_waiting": 2}).connect() as client:
        for _ in range(2):
            await client.create(prompt="Go.")
        status, value = await client.send("POST", "/v1/sessions", {"prompt": "Go."})
        assert (status, value["error"]["code"]) == (429, "too_many_waiting")


async def test_keys_do_not_lift_the_limits_of_an_owner(make_site: MakeSite) -> None:
    async with make_site(Gate(), options={"max_waiting": 2}).connect() as client:
        path = f"/v1/sessions/{(await client.create())['id']}/events"
        body = {"type": "user.message", "text": "Go."}
        answers = [await client.send("POST", path, body, key=f"k{n}") for n in range(4)]
        assert [status for status, _ in answers] == [202, 202, 429, 429]
        status, value = await client.send("POST", path, body, key="k0")
        assert (status, value["id"]) == (202, answers[0][1]["id"]), "it was accepted before"


async def test_a_response_that_is_asked_for_again_is_not_refused(make_site: MakeSite) -> None:
    gate = Gate()

    async def answer(request: Request) -> str:
        return await gate(request) if "Go on." in str(request.messages) else "One."

    site = make_site(answer, options={"max_waiting": 1})
    async with site.connect() as client:
        body = {"model": "mudroom", "input": "Go."}
        _, first = await client.send("POST", "/v1/responses", body)
        body |= {"previous_response_id": first["id"], "input": "Go on."}
        waiting = [
            asyncio.create_task(client.send("POST", "/v1/responses", body, key="k"))
            for _ in range(8)
        ]
        await gate.asked.wait()
        again = asyncio.create_task(client.send("POST", "/v1/responses", body, key="k"))
        status, value = await client.send("POST", "/v1/responses", body, key="other")
        assert (status, value["error"]["code"]) == (429, "too_many_waiting")
        gate.opened.set()
        answers = await asyncio.gather(*waiting, again)
        assert {(status, value["id"]) for status, value in answers} == {(200, answers[0][1]["id"])}


async def test_prompts_of_an_earlier_process_continue_after_any_error_of_the_look_for_them(
    make_site: MakeSite,
) -> None:
    gate = Gate()
    site = make_site(gate, options={"retry_seconds": 0.1, "poll_seconds": 0.05})
    async with site.connect() as client:
        session = (await client.create(prompt="Go."))["id"]
        await gate.asked.wait()
    store = open_store(site.home)

    async def fail_once(_: str) -> str:
        site.store.find_writer = store.find_writer
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    site.store = WrappedStore(store, find_writer=fail_once)
    gate.opened.set()
    async with site.connect() as client:
        await client.finish(session)
    assert site.notices == [
        "looking for prompts of other processes: OSError: [Errno 24] Too many open files"
    ]


@pytest.mark.parametrize("path", ["", "/events"])
async def test_a_key_has_its_effect_once(make_site: MakeSite, path: str) -> None:
    site = make_site(["One.", "Two."])
    async with site.connect() as client:
        body: Any = {"prompt": "Go."}
        if path:
            body = {"type": "user.message", "text": "Go."}
            path = f"/{(await client.create())['id']}{path}"
        answers = await asyncio.gather(
            *[client.send("POST", f"/v1/sessions{path}", body, key="k") for _ in range(8)]
        )
        assert len({value["id"] for _, value in answers}) == 1
        session = answers[0][1].get("session") or answers[0][1]["id"]
        await client.finish(session)
        assert len(site.model.requests) == 1
        body |= {"prompt": "Other."} if "prompt" in body else {"text": "Other."}
        status, value = await client.send("POST", f"/v1/sessions{path}", body, key="k")
        assert (status, value["error"]["code"]) == (409, "key_used")
        assert "the Idempotency-Key 'k'. Use a new key" in value["error"]["message"]


@pytest.mark.parametrize("is_slow", [False, True])
async def test_a_server_lets_prompts_end(make_site: MakeSite, is_slow: bool) -> None:
    gate = Gate()
    options = {"drain_seconds": 0.05 if is_slow else SECONDS, "parallel": 1, "per_owner": 1}
    site = make_site(gate, options=options)
    addresses: list[Any] = []
    server = site.make_server()
    serving = asyncio.create_task(server.serve(addresses.append))
    await wait_until(lambda: addresses)
    async with aiohttp.ClientSession() as http:
        client = Client(http, addresses[0].url, site.add_token())
        first = (await client.create(prompt="One."))["id"]
        await gate.asked.wait()
        second = (await client.create(prompt="Two."))["id"]
        async with asyncio.timeout(SECONDS), client.open_stream(first) as stream:
            assert server.stop()
            assert not server.stop()
            if not is_slow:
                for path in ("/health", "/ready"):
                    status, health = await client.send("GET", path)
                    assert (status, health["status"]) == (503, "draining")
                status, value = await client.send("POST", "/v1/sessions", {"prompt": "Three."})
                assert (status, value["error"]["code"]) == (503, "draining")
                gate.opened.set()
            await serving
            assert [message async for message in stream], "the end of the server ends its streams"
    gate.opened.set()
    async with site.connect() as client:
        for session in (first, second):
            assert (await client.finish(session))["last"]["reason"] == "GOAL"
            finished = await client.list_events(session, "?kinds=run_finished")
            assert [each["report"]["reason"] for each in finished] == ["GOAL"]


def test_a_state_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    state = StateFile(str(tmp_path))
    state.run_now(lambda connection: connection.execute("PRAGMA user_version = 9"))
    state.close()
    with pytest.raises(MudroomError, match="newer version"):
        StateFile(str(tmp_path))
