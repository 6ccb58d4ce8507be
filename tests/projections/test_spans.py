"""Spans of sessions: ids, parents, times, usage, interruptions, content."""

import json
import random
from collections import Counter
from collections.abc import Iterable

import msgspec
import pytest

from mudroom import Reason, TextBlock, Usage
from mudroom._adapters.output_filters import Redactor
from mudroom._core.events import (
    Compacted,
    ModelCallRetried,
    NoteInjected,
    RunResumed,
    SessionClosed,
    SessionOpened,
    StoredEvent,
    TurnFailed,
)
from mudroom._projections.run_tree import RunTree
from mudroom._projections.spans import MAX_BYTES, ContentCapture, SessionSpans, Span
from mudroom._projections.trace_ids import SpanContext, TraceIds, parse_traceparent
from mudroom.testing.event_builders import (
    run_finished,
    run_started,
    tool_call,
    tool_call_events,
    tool_call_finished,
    tool_call_started,
    turn_events,
    turn_finished,
    turn_started,
)
from mudroom.testing.sample_events import every_event

SESSION = "5f3a"
OUTER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def opened(session: str = SESSION, at: float = 0.0, traceparent: str = "") -> SessionOpened:
    return SessionOpened(at=at, session=session, cwd="/w", version="1", traceparent=traceparent)


def fold(events: Iterable[StoredEvent], capture: ContentCapture | None = None) -> list[Span]:
    return SessionSpans(capture=capture).apply_all(events)


def select(spans: Iterable[Span], name: str, run: str) -> list[Span]:
    """Return the spans of a run whose names begin so, in their order."""
    return [
        span
        for span in spans
        if span.name.startswith(name) and span.attributes["mudroom.run.id"] == run
    ]


def make_random_run(
    random: random.Random, run: str, parent: str, call_id: str, at: float
) -> list[StoredEvent]:
    """Return the events of a run with up to three turns, and of the runs below it."""
    events: list[StoredEvent] = [run_started(run, parent, call_id=call_id, at=at)]
    for turn in range(1, random.randint(1, 3) + 1):
        usage = Usage(random.randint(1, 999), random.randint(1, 99), random.randint(0, 9))
        calls = [
            tool_call(f"c{turn}.{n}", random.choice(["task", "read", "mcp__git__log"]))
            for n in range(random.randint(0, 3))
        ]
        events.append(turn_started(run, turn, at=at + turn))
        events.append(turn_finished(run, *calls, turn=turn, usage=usage, at=at + turn + 0.1))
        branches: list[list[StoredEvent]] = []
        for number, call in enumerate(calls, 1):
            events.append(tool_call_started(run, call, at=at + turn + 0.2))
            below: list[StoredEvent] = []
            if call.name == "task" and run.count(".") < 6:
                child = f"{run}.{turn}.{number}"
                below = make_random_run(random, child, run, call.id, at + turn + 0.3)
            end = tool_call_finished(run, call.id, name=call.name, at=at + turn + 9)
            branches.append([*below, end])
        while branches:  # children work at the same time
            branch = random.choice(branches)
            events.append(branch.pop(0))
            branches = [each for each in branches if each]
    events.append(run_finished(run, at=at + 20))
    return events


def test_the_tree_of_spans_is_the_tree_of_runs() -> None:
    for seed in range(500):
        events = [opened(), *make_random_run(random.Random(seed), "1", "", "", 1.0)]
        spans = fold(events)
        by_id = {span.context.span_id: span for span in spans}
        assert len(by_id) == len(spans), seed
        assert len({span.context.trace_id for span in spans}) == 1
        tree = RunTree.from_events(events)
        runs = [span for span in spans if span.name.startswith("invoke_agent")]
        assert {span.attributes["mudroom.run.id"] for span in runs} == set(tree.runs)
        for span in runs:
            view = tree.runs[str(span.attributes["mudroom.run.id"])]
            if not view.parent:
                assert span.parent_id == 0
                continue
            call = by_id[span.parent_id]
            assert call.name == "execute_tool task"
            assert call.attributes["gen_ai.tool.call.id"] == view.call_id
            assert by_id[call.parent_id].attributes["mudroom.run.id"] == view.parent
        for span in spans:
            if not span.name.startswith("invoke_agent"):
                above = by_id[span.parent_id]
                assert above.attributes["mudroom.run.id"] == span.attributes["mudroom.run.id"]


def test_model_calls_have_all_tokens_and_a_run_has_its_own() -> None:
    for seed in range(50):
        events = make_random_run(random.Random(seed), "1", "", "", 1.0)
        spans = fold([opened(), *events])
        tree = RunTree.from_events(events)
        tokens: Counter[str] = Counter()
        for span in spans:
            if span.is_request:
                for kind in ("input_tokens", "output_tokens", "cache_read.input_tokens"):
                    tokens[kind] += int(span.attributes.get(f"gen_ai.usage.{kind}", 0))  # type: ignore[call-overload]
        total = tree.runs["1"].total_usage
        assert tokens["input_tokens"] == total.input_tokens
        assert tokens["output_tokens"] == total.output_tokens
        assert tokens["cache_read.input_tokens"] == total.cache_read_tokens
        for span in spans:
            if span.name.startswith("invoke_agent"):
                own = tree.runs[str(span.attributes["mudroom.run.id"])].usage
                assert span.attributes["gen_ai.usage.input_tokens"] == own.input_tokens


def test_events_one_by_one_and_all_at_once_give_the_same_spans() -> None:
    events = [opened(), *make_random_run(random.Random(7), "1", "", "", 1.0)]
    encoded = [msgspec.convert(msgspec.to_builtins(each), StoredEvent) for each in events]
    one_by_one = SessionSpans("another id")
    live = [span for event in events for span in one_by_one.apply(event)] + one_by_one.finish()
    assert live == fold(encoded)


def test_each_prompt_has_a_trace_and_a_link_to_the_one_before() -> None:
    spans = fold(
        [
            opened(),
            run_started("1", at=1),
            run_finished("1", at=2),
            run_started("2", continues="1", at=3),
            run_finished("2", at=4),
        ]
    )
    first, second = spans
    assert first.context.trace_id != second.context.trace_id
    assert second.links == (first.context,)
    assert {span.attributes["session.id"] for span in spans} == {SESSION}
    assert {span.attributes["gen_ai.conversation.id"] for span in spans} == {SESSION}


def test_a_killed_run_that_is_resumed_has_two_linked_spans_in_one_trace() -> None:
    call = tool_call("c1", "task")
    before = [
        opened(at=0),
        run_started("1", at=1),
        turn_started("1", 1, at=2),
        turn_finished("1", call, turn=1, at=3, usage=Usage(10, 1)),
        tool_call_started("1", call, at=4),
        run_started("1.1.1", "1", call_id="c1", at=5),
        turn_started("1.1.1", 1, at=6),
    ]
    after = [
        opened(at=100),
        RunResumed(at=101, run="1"),
        RunResumed(at=102, run="1.1.1"),
        *turn_events("1.1.1", TextBlock("ok"), turn=1, at=103),
        run_finished("1.1.1", at=104),
        tool_call_finished("1", "c1", name="task", at=105),
        *turn_events("1", TextBlock("ok"), turn=2, at=106, usage=Usage(20, 2)),
        run_finished("1", at=107),
        SessionClosed(at=108),
    ]
    spans = fold(before + after)
    assert len({span.context.span_id for span in spans}) == len(spans)
    assert len({span.context.trace_id for span in spans}) == 1
    first, second = (
        each
        for each in spans
        if each.name.startswith("invoke_agent") and each.attributes["mudroom.run.id"] == "1"
    )
    assert (first.ended_at, first.attributes["error.type"], first.has_failed) == (
        6,
        "interrupted",
        True,
    )
    assert (second.started_at, second.ended_at, second.has_failed) == (101, 107, False)
    assert second.links == (first.context,)
    assert first.attributes["gen_ai.usage.input_tokens"] == 10
    assert second.attributes["gen_ai.usage.input_tokens"] == 20
    (task,) = select(spans, "execute_tool task", "1")
    assert (task.started_at, task.ended_at, task.parent_id) == (4, 105, first.context.span_id)
    children = [
        each
        for each in spans
        if each.name == "invoke_agent explore" and each.attributes["mudroom.run.id"] == "1.1.1"
    ]
    assert [each.parent_id for each in children] == [task.context.span_id] * 2
    cut, again = (
        each for each in spans if each.is_request and each.attributes["mudroom.run.id"] == "1.1.1"
    )
    assert (cut.ended_at, cut.attributes["error.type"]) == (6, "interrupted")
    assert not again.has_failed
    # The process that was killed delivered what had ended; the next one delivers all the rest.
    killed = SessionSpans()
    delivered = [span for event in before for span in killed.apply(event)]
    resumed = SessionSpans()
    for event in before:
        resumed.apply(event)
    delivered += [span for event in after for span in resumed.apply(event)]
    assert delivered + resumed.finish() == spans


def test_work_without_an_end_ends_with_the_last_event() -> None:
    events = [
        opened(),
        run_started("1", at=1),
        turn_started("1", 1, at=2),
        turn_finished("1", tool_call("c1"), at=3),
        tool_call_started("1", tool_call("c1"), at=4),
    ]
    spans = fold(events)
    assert [span.name for span in spans] == [
        "chat offline",
        "execute_tool read",
        "invoke_agent explore",
    ]
    assert [span.ended_at for span in spans] == [3, 4, 4]
    assert [span.attributes.get("error.type") for span in spans] == [
        None,
        "interrupted",
        "interrupted",
    ]


def test_a_fork_has_a_trace_of_its_own() -> None:
    first = [opened(), run_started("1", at=1), turn_started("1", 1, at=2)]
    fork = [opened("fork", at=10), RunResumed(at=11, run="1"), run_finished("1", at=12)]
    original = fold(first)
    spans = fold(first + fork)
    assert spans[:2] == original
    assert spans[2].context.trace_id == TraceIds("fork").make_trace_id("1")
    assert spans[2].links == (original[1].context,)
    assert spans[2].attributes["session.id"] == "fork"


def test_runs_belong_to_the_span_of_the_program_that_started_mudroom() -> None:
    spans = fold([opened(traceparent=OUTER), run_started("1", at=1), run_finished("1", at=2)])
    (run,) = spans
    assert f"{run.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"
    assert f"{run.parent_id:016x}" == "b7ad6b7169203331"
    assert run.has_outer_parent
    ids = TraceIds(SESSION, OUTER)
    assert ids.make_call_traceparent("1", "c1").startswith("00-0af7651916cd43dd8448eb211c80319c-")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "00",
        "00-0-0-0",
        f"ff{OUTER[2:]}",
        OUTER.upper(),
        OUTER.replace("b7ad6b7169203331", "0" * 16),
        OUTER.replace("0af7651916cd43dd8448eb211c80319c", "0" * 32),
    ],
)
def test_a_wrong_traceparent_names_no_span(text: str) -> None:
    assert parse_traceparent(text) is None


def test_a_traceparent_can_be_read_and_written() -> None:
    context = parse_traceparent(f" {OUTER}\n")
    assert isinstance(context, SpanContext) and str(context) == OUTER
    not_sampled = parse_traceparent(f"{OUTER[:-2]}00")
    assert not_sampled and not not_sampled.is_sampled


def test_failures_have_a_kind_and_tool_results_are_no_message() -> None:
    calls = [tool_call("c1", "bash"), tool_call("c2"), tool_call("c3", "nope")]
    events: list[StoredEvent] = [
        opened(),
        run_started("1", at=1),
        turn_started("1", 1, at=1),
        ModelCallRetried(at=2, run="1", attempt=1, delay=0.5, status=529),
        TurnFailed(at=3, run="1", turn=1, error="too long", overflow=1000),
        turn_started("1", 2, at=4),
        TurnFailed(at=5, run="1", turn=2, error="gone\x1b[31m", transient=True),
        *turn_events("1", *calls, turn=3, at=6),
        *tool_call_events("1", calls[0], "SECRET RESULT", error=True),
        *tool_call_events("1", calls[1], "fine"),
        tool_call_finished("1", "c3", name="nope", error=True, refused=True),
        tool_call_finished("1", "c3", name="nope", at=8),
        run_finished("1", Reason.TIMEOUT, error="no time left", at=9),
    ]
    spans = fold(events)
    kinds = [(span.name, span.attributes.get("error.type"), span.error) for span in spans]
    assert kinds == [
        ("chat offline", "context_overflow", "too long"),
        ("chat offline", "unavailable", "gone"),
        ("chat offline", None, ""),
        ("execute_tool bash", "tool_error", ""),
        ("execute_tool read", None, ""),
        ("execute_tool nope", "refused", ""),
        ("invoke_agent explore", "TIMEOUT", "no time left"),
    ]
    (retry,) = spans[0].events
    assert retry.attributes["http.response.status_code"] == 529
    assert "SECRET" not in repr(spans)


def test_texts_are_left_out_unless_they_are_wanted() -> None:
    events = [
        opened(),
        run_started("1", prompt="MARK prompt", description="MARK title", at=1),
        NoteInjected(at=1, run="1", text="MARK note"),
        turn_started("1", 1),
        turn_finished("1", tool_call("c1", "read", file_path="MARK path"), text="MARK answer"),
        *tool_call_events("1", tool_call("c1", "read", file_path="MARK path"), "MARK result"),
        *turn_events("1", TextBlock("MARK last"), turn=2, at=8),
        run_finished("1", text="MARK report", at=9),
    ]
    assert "MARK" not in repr(fold(events))
    spans = fold(events, ContentCapture(str))
    first, call, second, run = spans
    assert json.loads(str(first.attributes["gen_ai.input.messages"])) == [
        {"role": "user", "parts": [{"type": "text", "content": "MARK prompt"}]},
        {"role": "user", "parts": [{"type": "text", "content": "MARK note"}]},
    ]
    (answer,) = json.loads(str(first.attributes["gen_ai.output.messages"]))
    assert answer["finish_reason"] == "stop"
    assert [part["type"] for part in answer["parts"]] == ["text", "tool_call"]
    assert json.loads(str(call.attributes["gen_ai.tool.call.arguments"])) == {
        "file_path": "MARK path"
    }
    assert call.attributes["gen_ai.tool.call.result"] == "MARK result"
    (message,) = json.loads(str(second.attributes["gen_ai.input.messages"]))
    assert message["parts"] == [
        {"type": "tool_call_response", "id": "c1", "response": "MARK result"}
    ]
    assert "MARK report" in str(run.attributes["gen_ai.output.messages"])
    assert run.attributes["mudroom.run.description"] == "MARK title"


def test_texts_have_no_secrets_and_a_limit() -> None:
    key = "sk-ant-" + "api03-" + "x1" * 30
    long = "é" * 500_000
    capture = ContentCapture(Redactor({"SOME_TOKEN": "abcDEF123456"}))
    events = [
        opened(),
        run_started("1", prompt=f"{key} abcDEF123456 {long}", at=1),
        turn_started("1", 1),
        turn_finished("1", tool_call("c1", "write", content=key, more=[long] * 5), text=long),
        *tool_call_events("1", tool_call("c1", "write", content=key, more=[long] * 5), key + long),
        run_finished("1", text=long, at=9),
    ]
    spans = fold(events, capture)
    for span in spans:
        for name, value in span.attributes.items():
            assert len(str(value).encode()) <= MAX_BYTES, name
            if name.endswith(("messages", "arguments")):
                json.loads(str(value))
    text = repr(spans)
    assert key not in text and "abcDEF123456" not in text
    assert "[redacted" in text and "[cut]" in text


def test_many_texts_that_do_not_fit_leave_valid_json() -> None:
    call = tool_call("c1", "read", **{f"k{n}": "x" * 90 for n in range(2000)})
    events = [opened(), run_started("1"), *turn_events("1", call), run_finished("1")]
    spans = fold(events, ContentCapture(str))
    (value,) = (each.attributes["gen_ai.output.messages"] for each in spans if each.is_request)
    assert "cut" in json.loads(str(value))


def test_every_event_can_be_added() -> None:
    spans = fold(every_event(), ContentCapture(str))
    assert spans and all(span.ended_at >= span.started_at for span in spans)
    compacted = Compacted(at=5, run="1", messages=(), cause="size", before=9, after=1)
    events = [opened(), run_started("1"), compacted, run_finished("1")]
    (run,) = fold(events)
    assert run.events[0].name == "mudroom.compacted"


def test_events_of_unknown_runs_are_ignored() -> None:
    assert fold([opened(), *turn_events("1"), run_finished("1")]) == []


def test_a_child_of_an_unknown_parent_has_the_parent_that_it_would_have() -> None:
    ids = TraceIds(SESSION)
    (called,) = fold([opened(), run_started("1.2.1", "1", call_id="c9"), run_finished("1.2.1")])
    assert called.parent_id == ids.make_call_span_id("1", "c9")
    (started,) = fold([opened(), run_started("1.2.1", "1"), run_finished("1.2.1")])
    assert started.parent_id == ids.make_run_span_id("1", 1)
