"""Tests of the parser for server-sent events."""

import pytest

from mudroom._adapters.models._http import SseParser

STREAM = (
    'event: a\ndata: {"x": "é漢"}\n\n: comment\n\ndata:one\ndata: two\n\nid: 7\nretry: 5\n'
    "data: last\n\n"
).encode()
EVENTS = ['{"x": "é漢"}'.encode(), b"one\ntwo", b"last"]


def read(chunks: list[bytes]) -> list[bytes]:
    sse = SseParser()
    return [event for chunk in chunks for event in sse.feed(chunk)] + sse.flush()


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_any_split_of_the_bytes_gives_the_same_events(newline: bytes) -> None:
    stream = STREAM.replace(b"\n", newline)
    for at in range(len(stream) + 1):
        assert read([stream[:at], stream[at:]]) == EVENTS, at
    assert read([stream[at : at + 1] for at in range(len(stream))]) == EVENTS


@pytest.mark.parametrize("chunks", [[b"\n", b"\n"], [b"\n", b"\r", b"\n"], [b"\r", b"\n\r", b"\n"]])
def test_an_event_is_returned_with_the_last_byte_of_its_blank_line(chunks: list[bytes]) -> None:
    sse = SseParser()
    events = [sse.feed(chunk) for chunk in (b"data: x", *chunks)]
    assert events[-1] == [b"x"]


def test_a_byte_order_mark_is_ignored() -> None:
    stream = b"\xef\xbb\xbfdata: x\n\n"
    assert read([stream]) == [b"x"]
    assert read([stream[at : at + 1] for at in range(len(stream))]) == [b"x"]


def test_the_last_event_needs_no_blank_line() -> None:
    sse = SseParser()
    assert sse.feed(b"data: [DONE]") == []
    assert sse.flush() == [b"[DONE]"]


def test_events_without_data_are_ignored() -> None:
    assert read([b"event: ping\n\n: keep-alive\n\n\n\n"]) == []


def test_a_long_line_in_many_chunks_is_joined() -> None:
    assert read([b"data: ", *[b"x" * 1000] * 2000, b"\n\n"]) == [b"x" * 2_000_000]


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (b"event: a\ndata: 1\n\ndata: 2\n\n", [b"1", b"2"]),
        (b"data: 1\ndata: 2\n\ndata: 3\n\n", [b"1\n2", b"3"]),
        (b"data: 1\ndata: 2\n\n: comment\n\n", [b"1\n2"]),
        (b"data: 1\n\nevent: b\n\ndata: 3\n\n", [b"1", b"3"]),
        (b"data: 1\nid: 7\n\ndata:2\n\n", [b"1", b"2"]),
        (b"data:0\ndata: 1\n\n", [b"0\n1"]),
        (b"data: 1\n\n\n\ndata: data: 2\n\n", [b"1", b"data: 2"]),
        (b"data: \n\ndata: 2\n\n", [b"", b"2"]),
    ],
)
def test_unusual_events_are_read_beside_usual_ones(text: bytes, events: list[bytes]) -> None:
    assert SseParser().feed(text) == events
    single = SseParser()
    parts = [single.feed(text[at : at + 1]) for at in range(len(text))]
    assert [event for part in parts for event in part] == events
