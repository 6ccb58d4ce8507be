"""Sessions over HTTP: prompts, events, streams and their feed, controls, questions."""

from __future__ import annotations

import asyncio
import gc
import socket
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.waiting import SECONDS, wait_until

from mudroom._core.events import Delta, NoteInjected
from mudroom.testing import Request, call
from mudroom_serve.feed import SessionFeed
from mudroom_serve.served_session import ServedSession

from ..gate import Gate
from .conftest import Client, Line, MakeSite, is_idle


def get_kinds(messages: list[Line]) -> list[str]:
    return [each["event"] for each in messages if "id" in each]


async def test_a_prompt_runs_and_its_events_are_streamed(make_site: MakeSite) -> None:
    async with make_site(["It is about mud."]).connect() as client:
        session = await client.create(prompt="What is it about?")
        assert session["input"]["state"] == "waiting"
        messages = await client.wait_until(session["id"], is_idle)
        kinds = get_kinds(messages)
        assert kinds[:2] == ["session_opened", "run_started"]
        assert kinds[-1] == "run_finished"
        last = messages[-1]["data"]["last"]
        assert (last["run"], last["reason"], last["error"]) == ("1", "GOAL", "")
        events = await client.list_events(session["id"])
        assert [event["type"] for event in events] == kinds
        assert events[-1]["report"]["text"] == "It is about mud."


async def test_a_conversation_continues_after_its_session_was_closed(make_site: MakeSite) -> None:
    site = make_site(["One.", "Two."], options={"idle_seconds": 0.0})
    async with site.connect() as client:
        session = (await client.create(prompt="First."))["id"]
        await client.finish(session)
        await client.post(session, "user.message", text="Second.")
        assert (await client.finish(session))["last"]["run"] == "2"
        assert [plan.is_recorded for plan in site.plans] == [False, True]
        assert len(site.model.requests[1].messages) == 3


async def test_a_stream_resumes_after_its_cursor(make_site: MakeSite) -> None:
    async with make_site(["One.", "Two."]).connect() as client:
        session = (await client.create(prompt="First."))["id"]
        whole = await client.wait_until(session, is_idle)
        stored = [each for each in whole if "id" in each]
        for number, message in enumerate(stored[:-1]):
            rest = await client.wait_until(
                session, lambda each: each["event"] == "run_finished", last_id=message["id"]
            )
            assert [each["id"] for each in rest] == [each["id"] for each in stored[number + 1 :]]
        last_id = stored[-1]["id"]
        async with asyncio.timeout(SECONDS), client.open_stream(session, last_id=last_id) as stream:
            await client.post(session, "user.message", text="Second.")
            async for message in stream:
                if "id" in message:
                    assert message["data"]["run"] in ("", "2")
                if message["event"] == "run_finished":
                    break


async def test_streamed_text_comes_on_demand(make_site: MakeSite) -> None:
    gate = Gate()
    async with make_site(gate).connect() as client:
        session = (await client.create(prompt="Go."))["id"]
        async with (
            asyncio.timeout(SECONDS),
            client.open_stream(session, deltas="1") as loud,
            client.open_stream(session) as quiet,
        ):
            await gate.asked.wait()
            async for message in loud:
                if message["event"] == "run_started":
                    break
            gate.opened.set()
            text = ""
            async for message in loud:
                if message["event"] == "delta":
                    text += message["data"]["text"]
                    assert "id" not in message
                if is_idle(message):
                    break
            assert text == "Answer 1."
            async for message in quiet:
                assert message["event"] != "delta"
                if is_idle(message):
                    break


async def test_events_are_filtered(make_site: MakeSite) -> None:
    script = [[call("task", prompt="Look.", agent="reader")], "Child.", "Parent."]
    async with make_site(script).connect() as client:
        session = (await client.create(prompt="Ask."))["id"]
        await client.finish(session)
        finished = await client.list_events(session, "?kinds=run_finished")
        assert [event["report"]["text"] for event in finished] == ["Child.", "Parent."]
        child = finished[0]["run"]
        below = await client.list_events(session, f"?run={child}")
        assert {event["run"] for event in below} == {child}
        status, error = await client.send("GET", f"/v1/sessions/{session}/events?kinds=finish")
        assert status == 400
        assert "run_finished" in error["error"]["message"]


async def test_pages_have_no_gap(make_site: MakeSite) -> None:
    async with make_site(["One."]).connect() as client:
        session = await client.run("Go.")
        events = await client.read_pages(f"/v1/sessions/{session}/events", limit=2)
        assert [each["event"] for each in events] == await client.list_events(session)
        created = [session, *[(await client.create())["id"] for _ in range(4)]]
        listed = await client.read_pages("/v1/sessions", limit=2)
        assert [each["id"] for each in listed] == created[::-1]


async def test_a_running_prompt_is_steered(make_site: MakeSite) -> None:
    first = Gate(lambda _: call("read", path="x.md"))
    second = Gate()

    async def answer(request: Request) -> Any:
        return await (first if request.number == 1 else second)(request)

    site = make_site(answer)
    async with site.connect() as client:
        session = (await client.create(prompt="Go."))["id"]
        await first.asked.wait()
        item = await client.post(session, "run.steer", text="Look at y.md, too.")
        assert (item["state"], item["is_applied"]) == ("done", True)
        first.opened.set()
        await second.asked.wait()
        assert (await client.post(session, "run.wrap_up"))["is_applied"]
        second.opened.set()
        await client.finish(session)
        assert "y.md" in str(site.model.requests[1].messages)


async def test_a_cancel_ends_the_prompts_that_wait_or_work(make_site: MakeSite) -> None:
    gate = Gate()
    async with make_site(gate, options={"parallel": 1, "per_owner": 1}).connect() as client:
        first = (await client.create(prompt="One."))["id"]
        await gate.asked.wait()
        second = (await client.create(prompt="Two."))["id"]
        assert (await client.get(f"/v1/sessions/{second}"))["status"] == "waiting"
        assert (await client.post(second, "run.cancel"))["is_applied"]
        assert (await client.get(f"/v1/sessions/{first}"))["status"] == "working"
        assert (await client.post(first, "run.cancel"))["is_applied"]
        assert (await client.finish(first))["last"]["reason"] == "CANCELLED"
        ended = await client.finish(second)
        assert ended["last"]["error"] == "it was cancelled before it started"
        assert await client.list_events(second) == []


async def test_controls_of_an_idle_session_have_no_effect(make_site: MakeSite) -> None:
    async with make_site([]).connect() as client:
        session = (await client.create())["id"]
        for kind in ("run.cancel", "user.interrupt", "run.wrap_up", "run.steer"):
            fields = {"text": "Faster."} if kind == "run.steer" else {}
            assert (await client.post(session, kind, **fields))["is_applied"] is False


async def test_a_client_answers_questions(make_site: MakeSite) -> None:
    def write(request: Request) -> Any:
        if request.number <= 3:
            return call("write", file_path=f"f{request.number}.md", content="x")
        return "Done."

    site = make_site(write)
    async with site.connect() as client:
        session = (await client.create(prompt="Write."))["id"]
        asked: list[str] = []
        async with asyncio.timeout(SECONDS), client.open_stream(session) as stream:
            async for message in stream:
                if message["event"] == "status" and message["data"]["questions"]:
                    question = message["data"]["questions"][0]
                    if question["id"] in asked:
                        continue
                    asked.append(question["id"])
                    assert question["tool"] == "write"
                    assert message["data"]["status"] == "asking"
                    answer = {"question": question["id"], "allow": len(asked) > 1}
                    if len(asked) == 2:
                        answer["always"] = True
                    item = await client.post(session, "question.answer", **answer)
                    assert item["is_applied"] is True
                if is_idle(message):
                    break
        assert len(asked) == 2
        assert sorted(path.name for path in site.project.iterdir()) == ["f2.md", "f3.md"]
        item = await client.post(session, "question.answer", question=asked[0], allow=True)
        assert item["is_applied"] is False


async def test_a_question_without_an_answer_is_denied(make_site: MakeSite) -> None:
    script = [[call("write", file_path="f.md", content="x")], "Done."]
    site = make_site(script, options={"answer_seconds": 0.0, "idle_seconds": 0.0})
    async with site.connect() as client:
        session = (await client.create(prompt="Write."))["id"]
        await client.finish(session)
        decided = await client.list_events(session, "?kinds=permission_decided")
        assert decided[0]["answer"] == "no one answered within 0 s"
        server = site.server
        await wait_until(lambda: server and not server._registry.count_open())
        with closing(sqlite3.connect(Path(site.home, "serve.sqlite3"))) as connection:
            noted = connection.execute("SELECT asking FROM sessions").fetchall()
        assert noted == [("",)], "other processes do not show a question that is closed"


async def test_outputs_are_emitted(make_site: MakeSite) -> None:
    emit = call("self.emitvalue", emit_variable_name="title", emit_variable_value="On Mud")
    script = [[emit], "Done."]
    async with make_site(script).connect() as client:
        session = await client.create(prompt="Title?", outputs={"title": "the title"})
        await client.finish(session["id"])
        events = await client.list_events(session["id"], "?kinds=run_finished")
        assert events[0]["report"]["outputs"] == {"title": "On Mud"}


async def test_an_agent_runs_the_prompts(make_site: MakeSite) -> None:
    site = make_site(["Read."])
    async with site.connect(modes=("plan",)) as client:
        body = {"agent": "reader", "mode": "plan", "workspace": "other", "budget": {"turns": 3}}
        session = await client.create(prompt="Go.", **body)
        assert session["budget"] == {"turns": 3}
        await client.finish(session["id"])
        assert site.plans[0].agent == "reader"
        assert site.plans[0].mode == "plan"
        assert site.model.requests[0].tools == ("read",)


async def test_a_slow_reader_is_cut_and_delays_no_one(make_site: MakeSite) -> None:
    site = make_site(["One.", "Two."], options={"write_seconds": 0.2, "max_body": 32 << 20})
    async with site.connect() as client:
        session = (await client.create(prompt="x" * (5 << 20)))["id"]
        await client.wait_until(session, is_idle, kinds="run_finished")
        host, port = client.url.removeprefix("http://").split(":")
        with socket.socket() as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.connect((host, int(port)))
            request = f"GET /v1/sessions/{session}/stream HTTP/1.1\r\nHost: {host}:{port}\r\n"
            reader.sendall(f"{request}Authorization: Bearer {client.token}\r\n\r\n".encode())
            other = (await client.create(prompt="Go."))["id"]
            assert (await client.finish(other))["last"]["reason"] == "GOAL"
            token = site.add_token("root", scopes=("admin",))
            admin = Client(client._http, client.url, token)
            async with asyncio.timeout(SECONDS):
                while "mudroom_streams_cut_total 1" not in (await admin.get("/metrics")):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)


async def test_closed_sessions_do_not_stay_in_memory(make_site: MakeSite) -> None:
    site = make_site(["Done."], options={"idle_seconds": 0.0})
    async with site.connect() as client:
        gc.disable()
        try:
            for _ in range(45):
                await client.finish((await client.create(prompt="Go."))["id"])
            kept = sum(isinstance(each, ServedSession) for each in gc.get_objects())
        finally:
            gc.enable()
    assert kept < 30


async def test_faults_are_errors_of_the_prompt(make_site: MakeSite) -> None:
    def fail(_: Request) -> str:
        raise ZeroDivisionError("a defect")

    site = make_site(fail)
    async with site.connect() as client:
        session = (await client.create(prompt="Go."))["id"]
        ended = await client.finish(session)
        assert "a defect" in ended["last"]["error"] + str(await client.list_events(session))
        session = (await client.create())["id"]
        site.project.rmdir()
        await client.post(session, "user.message", text="Go.")
        assert "no such directory" in (await client.finish(session))["last"]["error"]


async def test_unknown_paths_and_methods_are_json(make_site: MakeSite) -> None:
    async with make_site([]).connect() as client:
        for method, path, status in (
            ("GET", "/v2/sessions", 404),
            ("PUT", "/v1/sessions", 405),
            ("GET", "/v1/sessions/none", 404),
        ):
            answer = await client.send(method, path)
            assert answer[0] == status
            assert answer[1]["error"]["message"]
        assert (await client.get("/health"))["status"] == "ok"


def make_feed() -> SessionFeed:
    feed = SessionFeed("11111111")
    feed.streams = 1
    return feed


def show_events(feed: SessionFeed, first: int, *texts: str) -> None:
    """Show durable events; `first`: position of the first one."""
    feed.observe(first, [NoteInjected(at=0, run="1", text=text) for text in texts])


def join_feed(feed: SessionFeed, position: int) -> int:
    """Return the start of a stream that has the events up to a position."""
    start = feed.find_start(position)
    assert start is not None
    return start


def list_positions(feed: SessionFeed, number: int) -> list[int] | None:
    frames = feed.list_after(number)
    return None if frames is None else [frame.position for frame in frames]


def test_a_stream_joins_after_the_event_that_it_has() -> None:
    feed = make_feed()
    show_events(feed, 5, "five", "six")
    assert feed.find_start(3) is None
    assert list_positions(feed, join_feed(feed, 4)) == [5, 6]
    assert list_positions(feed, join_feed(feed, 5)) == [6]


def test_an_event_read_from_the_journal_before_it_is_shown_is_not_sent_again() -> None:
    feed = make_feed()
    show_events(feed, 5, "five")
    assert feed.find_start(6) is None  # the stream has read event 6, which is not shown yet
    show_events(feed, 6, "six")
    start = join_feed(feed, 6)
    assert list_positions(feed, start) == []
    show_events(feed, 7, "seven")
    assert list_positions(feed, start) == [7]


def test_streamed_text_after_the_last_event_of_a_stream_is_sent() -> None:
    feed = make_feed()
    show_events(feed, 5, "five")
    feed.show_delta(Delta(at=0, run="1", kind="text", text="a"))
    start = join_feed(feed, 5)
    frames = feed.list_after(start)
    assert frames
    assert [frame.kind for frame in frames] == ["delta"]


def test_a_stream_reads_the_journal_after_events_that_were_not_shown() -> None:
    feed = make_feed()
    show_events(feed, 5, "five")
    start = join_feed(feed, 5)
    feed.forget()  # event 6 is durable, but its append was cancelled
    show_events(feed, 7, "seven")
    assert list_positions(feed, start) is None
    assert feed.find_start(5) is None
    start = join_feed(feed, 6)
    assert list_positions(feed, start) == [7]


def test_a_stream_reads_the_journal_after_a_gap_in_what_is_shown() -> None:
    feed = make_feed()
    show_events(feed, 5, "five")
    start = join_feed(feed, 5)
    show_events(feed, 7, "seven")
    assert list_positions(feed, start) is None
    show_events(feed, 6, "six")
    assert list_positions(feed, start) is None
