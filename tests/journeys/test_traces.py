"""Traces of a run that is killed with kill -9 and resumed: at an OTLP receiver on loopback."""

from collections import Counter
from collections.abc import Iterable

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from mudroom.testing.model_server import ModelServer

from ..integrations.tracing.otlp_receiver import get_attributes, receive_otlp
from .conftest import Mudroom
from .test_resume import FamilyStory, run_and_kill


def select(spans: Iterable[Span], name: str) -> list[Span]:
    """Return the spans with a name, in the order of their start."""
    found = [span for span in spans if span.name == name]
    return sorted(found, key=lambda span: span.start_time_unix_nano)


async def test_a_run_that_is_killed_and_resumed_is_one_trace(mudroom: Mudroom) -> None:
    story = FamilyStory()
    async with receive_otlp() as receiver, ModelServer(story) as server:
        mudroom.env["OTEL_EXPORTER_OTLP_ENDPOINT"] = receiver.url
        await run_and_kill(mudroom, server, story)
        first = list(receiver.spans)
        story.hangs = False
        done = await mudroom("resume", url=server.url)
        assert done.code == 0, done.err
        live = list(receiver.spans)
        receiver.spans.clear()
        sent = await mudroom("export", "--format", "otel")
        assert sent.code == 0, sent.err
        every = list(receiver.spans)

    # The process that was killed delivers every few seconds: it may have delivered less, or none.
    resumed = live[len(first) :]
    by_id = {span.span_id: span for span in every}
    assert len(by_id) == len(every)
    assert Counter(span.span_id for span in live).most_common(1)[0][1] == 1
    for span in live:
        # A record does not say where the server of a model was.
        known = [each for each in span.attributes if not each.key.startswith("server.")]
        del span.attributes[:]
        span.attributes.extend(known)
    assert all(span == by_id[span.span_id] for span in live)

    assert len({span.trace_id for span in every}) == 1
    assert all(span.end_time_unix_nano >= span.start_time_unix_nano > 0 for span in every)
    assert all(span.parent_span_id in {*by_id, b""} for span in every)

    before, after = select(resumed, "invoke_agent main")
    assert [span.parent_span_id for span in (before, after)] == [b"", b""]
    assert [(link.trace_id, link.span_id) for link in after.links] == [
        (before.trace_id, before.span_id)
    ]
    assert get_attributes(before)["error.type"] == "interrupted" and before.status.code == 2
    assert "error.type" not in get_attributes(after)
    assert before.end_time_unix_nano <= after.start_time_unix_nano

    # The third child was cut off; its call has one span, which ends in the second process.
    calls = select(every, "execute_tool task")
    assert len(calls) == 3 and {span.parent_span_id for span in calls} == {before.span_id}
    children = select(every, "invoke_agent general")
    assert len(children) == 4
    assert {span.parent_span_id for span in children} == {span.span_id for span in calls}
    assert [get_attributes(span).get("error.type") for span in children].count("interrupted") == 1
