"""The use of prompt caches: the share that was read, and why the rest was not."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from mudroom import AnyEvent, Ledger, Reason, Session, Usage
from mudroom._adapters.models._http import HttpClient
from mudroom._adapters.models.anthropic import AnthropicModel
from mudroom._core.events import Compacted, ResultsCleared, RunFinished, StoredEvent
from mudroom._projections.cache_use import CacheUse, CacheUseFold, MissReason
from mudroom._projections.ledger import describe_ledger
from mudroom._projections.spans import SessionSpans
from mudroom._projections.stream_json import StreamJson
from mudroom.testing import Fault, MemoryJournal, ModelServer, PromptCache, ServerRequest
from mudroom.testing.clock import FakeClock
from mudroom.testing.event_builders import (
    run_finished,
    run_started,
    tool_call,
    turn_finished,
    turn_started,
)

MODEL = "claude-sonnet-5-5"


def answer(
    read: int,
    sent: int = 10_000,
    *,
    written: int = 0,
    hour: int = 0,
    at: float = 1.0,
    run: str = "1",
    model: str = MODEL,
    wire: str = "anthropic",
) -> AnyEvent:
    usage = Usage(sent, 10, read, written, cache_hour_tokens=hour)
    event = turn_finished(run, text="t", usage=usage, at=at)
    return replace(event, message=replace(event.message, model=model, wire=wire))


def make_misses() -> list[StoredEvent]:
    """Make the events of a session that misses the cache for each of the reasons."""
    no_tools = replace(turn_started("1"), summary_reason=Reason.TIMEOUT)
    events: list[AnyEvent] = [
        run_started("1"),
        answer(0, written=10_000),
        answer(9_990),
        answer(0, at=400.0),
        ResultsCleared(at=401.0, run="1", texts={}),
        answer(2_000, 8_000, at=402.0),
        answer(0, 8_100, model="claude-opus-5-5", at=403.0),
        answer(4_000, 8_200, model="claude-opus-5-5", at=404.0),
        no_tools,
        answer(0, model="claude-opus-5-5", at=405.0),
        run_finished("1"),
        run_started("2", continues="1"),
        answer(0, 12_000, run="2", model="claude-opus-5-5", at=5_000.0),
        run_started("2.1.1", "2"),
        answer(0, 900, run="2.1.1", model="silent"),
        answer(0, 2_000, run="2.1.1", model="silent"),
        answer(0, 3_000, run="2.1.1", model="silent"),
    ]
    return cast("list[StoredEvent]", events)


def test_a_session_can_miss_for_all_reasons() -> None:
    misses = Ledger.from_events(make_misses()).cache.misses
    assert set(misses) == {reason.value for reason in MissReason}


def measure(*events: AnyEvent) -> CacheUse:
    return Ledger.from_events([run_started("1"), *events]).cache


def test_what_is_new_in_a_request_is_no_miss() -> None:
    use = measure(answer(0, 5_000, written=5_000), answer(5_000, 9_000), answer(8_900, 9_500))
    assert use == CacheUse(
        share=0.5915, input_tokens=23_500, read_tokens=13_900, written_tokens=5_000
    )


NO_TOOLS = replace(turn_started("1"), summary_reason=Reason.TIMEOUT)


@pytest.mark.parametrize(
    ("wire", "events", "reason"),
    [
        ("anthropic", [answer(0, at=302.0)], "expired"),
        ("anthropic", [answer(0, at=300.0)], "not kept"),
        ("anthropic", [answer(0, at=302.0, wire="openai-responses")], "expired"),
        ("anthropic", [ResultsCleared(at=2.0, run="1", texts={}), answer(0)], "shortened"),
        ("anthropic", [Compacted(at=2.0, run="1", messages=()), answer(0)], "shortened"),
        ("anthropic", [answer(0, model="claude-opus-5-5")], "other model"),
        ("anthropic", [NO_TOOLS, answer(0)], "no tools"),
        ("anthropic, an hour", [answer(0, at=3_000.0)], "not kept"),
        ("anthropic, an hour", [answer(0, at=4_000.0)], "expired"),
        # OpenAI keeps entries longer, and reads them without tools.
        ("openai-responses", [answer(0, wire="openai-responses", at=1_700.0)], "not kept"),
        ("openai-responses", [NO_TOOLS, answer(0, wire="openai-responses")], "not kept"),
        ("openai-responses", [answer(0, wire="openai-responses", at=1_900.0)], "expired"),
        ("openai:openrouter.ai", [answer(0, wire="openai:openrouter.ai", at=400.0)], "expired"),
    ],
)
def test_each_miss_has_its_reason(wire: str, events: list[AnyEvent], reason: str) -> None:
    wire, _, lifetime = wire.partition(", ")
    first = answer(0, written=10_000, wire=wire, hour=10_000 if lifetime else 0)
    assert measure(first, *events).misses == {reason: 10_000}


@pytest.mark.parametrize(
    ("model", "smallest"),
    [
        (MODEL, 1_024),
        ("claude-opus-4-20250514", 1_024),
        ("claude-opus-4-8", 1_024),
        ("claude-opus-4-7", 2_048),
        ("claude-opus-4-5-20251101", 4_096),
        ("anthropic/claude-haiku-4.5", 4_096),
        ("claude-opus-5-5", 512),
        ("claude-fable-5-2", 512),
    ],
)
def test_prompts_below_the_smallest_size_are_no_fault_of_the_cache(
    model: str, smallest: int
) -> None:
    short = [answer(0, smallest - 1, model=model), answer(0, smallest + 500, model=model)]
    assert measure(*short).misses == {"too short": smallest - 1}


def test_a_model_that_never_reports_a_cache_is_told_apart() -> None:
    use = measure(answer(0), answer(0), answer(0))
    assert use.misses == {"not reported": 20_000}
    assert "cache" not in describe_ledger(Ledger.from_events([run_started("1"), answer(0)]))


def test_a_prompt_continues_the_conversation_of_the_one_before() -> None:
    events = [
        run_started("1"),
        answer(0, written=10_000),
        run_finished("1"),
        run_started("2", continues="1"),
        answer(0, 12_000, run="2", at=400.0),
    ]
    assert Ledger.from_events(events).cache.misses == {"expired": 10_000}


def test_each_run_has_a_figure_of_its_own() -> None:
    fold = CacheUseFold()
    for event in (
        run_started("1"),
        run_started("1.1.1", "1"),
        answer(0, run="1.1.1"),
        answer(9_990, run="1.1.1"),
        answer(0),
    ):
        fold.apply(event)
    assert fold.find_use("1.1.1").share == 0.4995
    assert fold.find_use("1").share == 0.0
    assert fold.find_use("2") == CacheUse()
    assert fold.use.share == 0.333


async def run_session(folder: Path, cache: PromptCache) -> list[StoredEvent]:
    """Run a parent with three turns against a server with a cache."""

    def respond(request: ServerRequest) -> Fault:
        usage = replace(cache.send(request.body, 0.0), output_tokens=5)
        call = tool_call(f"c{request.turn}", "glob", pattern=f"*{request.turn}")
        blocks: Any = (call,) if request.turn < 3 else ("Done.",)
        return Fault(blocks=blocks, usage=usage)

    async with ModelServer(respond) as server:
        http = HttpClient(clock=FakeClock())
        model = AnthropicModel(MODEL, http=http, base_url=server.url)
        journal = MemoryJournal()
        async with Session(
            model=model, cwd=str(folder), home=str(folder / "home"), journal=journal, sandbox="off"
        ) as session:
            assert (await session.run("Look at this. " + "word " * 2_000)).ok
    return list(journal.events)


async def test_a_run_against_a_caching_server_shows_its_share_everywhere(tmp_path: Path) -> None:
    events = await run_session(tmp_path, PromptCache("anthropic"))
    ledger = Ledger.from_events(events)
    assert ledger.cache.share is not None and 0.6 < ledger.cache.share < 0.8
    assert not ledger.cache.misses
    assert f"{ledger.cache.share:.0%} of the prompts" in describe_ledger(ledger)
    spans = SessionSpans().apply_all(events)
    shares = [span.attributes.get("mudroom.cache.read_share") for span in spans]
    assert [share for share in shares if share] == [ledger.cache.share]
    lines = StreamJson(session="s", cwd="/", model=MODEL, tools=[], agents=[])
    for event in events:
        list(lines.make_event_lines(event))
    report = next(event.report for event in events if isinstance(event, RunFinished))
    result = json.loads(json.dumps(lines.make_result_line(report, {})))
    assert result["report"]["cache"]["share"] == ledger.cache.share


async def test_a_wide_fan_out_keeps_the_cache_of_its_parent(tmp_path: Path) -> None:
    cache = PromptCache("anthropic")
    sent: list[tuple[str, Usage]] = []
    heads: dict[str, int] = {}

    def respond(request: ServerRequest) -> Fault:
        usage = cache.send(request.body, 0.0)
        kind = "parent" if "task" in request.tools else "child"
        sent.append((kind, usage))
        body = request.json
        heads[kind] = len(json.dumps([body["system"], body["tools"]], separators=(",", ":"))) // 4
        blocks: Any = ("A report. " * 20,)
        if kind == "parent" and request.turn in (0, 2):
            blocks = (tool_call(f"g{request.turn}", "glob", pattern="*"),)
        elif kind == "parent" and request.turn == 1:
            blocks = tuple(tool_call(f"t{n}", "task", prompt=f"Part {n}") for n in range(25))
        return Fault(blocks=blocks, usage=replace(usage, output_tokens=5))

    async with ModelServer(respond) as server:
        environ = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        folders: Any = {"cwd": str(tmp_path), "home": str(tmp_path / "home"), "journal": "memory"}
        async with Session(model=f"anthropic:{MODEL}", environ=environ, **folders) as session:
            assert (await session.run("Look at this. " + "word " * 2_000)).ok
    parent = [usage for kind, usage in sent if kind == "parent"]
    assert len(parent) == 4 and len(sent) == 29
    for before, usage in pairwise(parent):
        assert usage.cache_read_tokens == before.input_tokens
    # Few tokens before the prompt: a child below 620, its parent below 1,500.
    assert heads["child"] <= 620
    assert heads["parent"] <= 1_500


async def test_a_miss_is_named_in_the_trace_of_its_request(tmp_path: Path) -> None:
    class Forgetful(PromptCache):
        """A cache that loses what it has before the third request."""

        count = 0

        def send(self, body: bytes, now: float, model: str = "") -> Usage:
            self.count += 1
            return super().send(body, 10_000.0 if self.count == 3 else now, model)

    events = await run_session(tmp_path, Forgetful("anthropic"))
    spans = SessionSpans().apply_all(events)
    reasons = [span.attributes.get("mudroom.cache.miss_reason") for span in spans]
    assert [reason for reason in reasons if reason] == ["not kept"]
