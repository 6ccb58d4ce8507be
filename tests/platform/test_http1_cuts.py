"""Tests that the result of a response depends on its bytes, not on how they were cut."""

from __future__ import annotations

import asyncio
import socket
import time
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mudroom._platform.http1.connection import Connection, make_shared_parts
from mudroom._platform.http1.parser import (
    ConnectionLost,
    HttpError,
    MalformedResponse,
    ResponseParser,
)

from ..long_form import count_examples
from ..waiting import SECONDS

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
KIB = 1024
LAST = b"0\r\n\r\n"

Result = tuple[int, dict[str, str], bytes, bool, bool, bool, type[HttpError] | None]


def read(parts: list[bytes]) -> Result:
    """Return all that a parser says about a response and the end of its connection."""
    parser = ResponseParser()
    body = b"".join([parser.feed(part) for part in parts])
    state = (parser.is_complete, parser.is_reusable, parser.has_surplus)
    error: type[HttpError] | None = None
    try:
        parser.feed_end()
    except (MalformedResponse, ConnectionLost) as failure:
        error = type(failure)
    return parser.status, parser.headers, body, *state, error


# Each list has what a server may send at one place of a response, right and wrong.
LINE_END = st.sampled_from([b"\r\n"] * 8 + [b"\n", b"\r", b""])
STATUS = st.sampled_from(
    [b"HTTP/1.1 200 OK"] * 8
    + [b"HTTP/1.0 200", b"HTTP/1.1 204 No", b"HTTP/1.1 OK", b"HTTP/2 200", b"", b"SSH-2.0-x"]
)
INTERIM = st.sampled_from(
    [b""] * 3
    + [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 E\r\nA: b\n\n"]
    + [b"HTTP/1.1 101 S\r\n\r\n", b"HTTP/1.1 1000\r\n\r\n", b"HTTP/1.1 100 C\r\n\r\n" * 17]
)
HEADER = st.sampled_from(
    [b"A: b", b"Content-Length: 5", b"Content-Length: 0", b"Connection: close"]
    + [b"Transfer-Encoding: chunked"] * 6
    + [b"Transfer-Encoding: gzip", b" folded", b"no colon", b"Content-Length: x", b": x"]
)
CHUNK = st.sampled_from(
    [b"5\r\nhello\r\n"] * 6
    + [b"05\nhello\n", b"2;a=b\r\nhe\r\n", b"4\r\n\r\n\r\n\r\n", b"2\r\nhello\r\n", b"xyz\r\n"]
    + [LAST, b"0\r\nX: y\r\n\r\n", b"0;e\n\n", b"\r\n", b"5\r\n", b"5 \r\nhello\r\n", b"-1\r\n"]
    + [b"5;" + b"e" * 4094 + b"\r\nhello\r\n", b"5;" + b"e" * 4095 + b"\r\nhello\r\n"]
)


@st.composite
def make_response(draw: st.DrawFn) -> bytes:
    """Return a response that may be malformed anywhere."""
    data = draw(INTERIM) + draw(STATUS) + draw(LINE_END)
    for header in draw(st.lists(HEADER, max_size=4)):
        data += header + draw(LINE_END)
    data += draw(LINE_END)
    data += b"".join(draw(st.lists(CHUNK, max_size=6)))
    return data + draw(st.sampled_from([LAST, b"", b"rest"]))


@settings(max_examples=count_examples(400, 20_000), deadline=None)
@given(data=make_response(), cuts=st.lists(st.integers(0, 400), max_size=8))
@example(data=CHUNKED + b"5\r\nhello\r\n" + LAST + b"5\r\nagain\r\n", cuts=[])
@example(data=CHUNKED + LAST + b"5\r\nagain\r\n" + LAST, cuts=[])
@example(data=CHUNKED + b"5\r\nhello\r\nnonsense\r\n", cuts=[])
def test_every_response_reads_the_same_however_it_is_cut(data: bytes, cuts: list[int]) -> None:
    edges = [0, *sorted({cut for cut in cuts if cut < len(data)}), len(data)]
    pieces = [data[start:end] for start, end in pairwise(edges)]
    whole = read([data])
    assert read(pieces) == whole
    assert read([data[at : at + 1] for at in range(len(data))]) == whole


def repeat(unit: bytes, size: int) -> bytes:
    return unit * (size // len(unit) + 1)


ENDLESS = {
    "a status line": (b"HTTP/1.1 200 ", b"a"),
    "one header": (OK + b"A: ", b"a"),
    "headers": (OK, b"A: b\r\n"),
    "empty headers": (OK, b"a:\n"),
    "a folded header": (OK + b"A: b\r\n", b" c\n"),
    "interim responses": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "interim responses with line feeds": (b"", b"HTTP/1.1 100\n\n"),
    "headers of an interim response": (b"HTTP/1.1 103 Hints\r\n", b"A: b\r\n"),
    "a chunk size": (CHUNKED, b"0"),
    "a chunk extension": (CHUNKED + b"5;", b"e"),
    "chunk extensions": (CHUNKED, b"1;" + b"e" * 1000 + b"\r\nx\r\n"),
    "a trailer": (CHUNKED + b"0\r\nA: ", b"a"),
    "trailers": (CHUNKED + b"0\r\n", b"A: b\r\n"),
    "the end of a chunk": (CHUNKED + b"1\r\nx", b"x"),
}
"""A part of a response that never ends: what comes before it, and what is repeated."""


@pytest.mark.parametrize("size", [1, 1460, 256 * KIB])
@pytest.mark.parametrize("name", ENDLESS)
def test_what_is_not_the_body_ends_at_a_limit(name: str, size: int) -> None:
    begin, unit = ENDLESS[name]
    data = begin + repeat(unit, 256 * KIB)
    parser = ResponseParser()
    received = 0
    started = time.process_time()
    while parser.error is None and received < len(data):
        parser.feed(data[received : received + size])
        received += size
    used = time.process_time() - started
    assert parser.error is not None
    assert size > 64 * KIB or received <= 80 * KIB
    assert used < 0.5  # of a CPU; the smallest pieces need most of it


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("surplus", [-1, 0, 1])
def test_a_head_of_the_largest_size_is_read_however_it_is_cut(count: int, surplus: int) -> None:
    """The interim responses count, too."""
    interim = b"HTTP/1.1 103 Hints\r\n\r\n" * (count - 1)
    head = interim + OK + b"Content-Length: 5\r\nA: "
    head += b"a" * (64 * KIB - len(head) - 1 + surplus) + b"\r"
    data = head + b"\n\r\nhello"
    whole = read([data])
    assert whole[0] == (0 if surplus > 0 else 200)
    assert all(read([data[:cut], data[cut:]]) == whole for cut in range(len(head) - 9, len(data)))
    assert read([data[at : at + 1] for at in range(len(data))]) == whole


RESPONSES = {
    "whole": CHUNKED + b"5\r\nhello\r\n" + LAST,
    "whole, then more": CHUNKED + b"5\r\nhello\r\n" + LAST + b"HTTP/1.1 500 No\r\n\r\n",
    "malformed after some content": CHUNKED + b"5\r\nhello\r\nnonsense\r\n",
    "malformed before any content": CHUNKED + b"nonsense\r\n",
    "an error status with a malformed body": CHUNKED.replace(b"200", b"429") + b"nonsense\r\n",
    "a malformed head": OK + b"nonsense\r\n\r\n",
    "a length that is none": OK + b"Content-Length: x\r\n\r\nhello",
    "ended in the head": OK,
    "ended after the head": OK + b"Content-Length: 5\r\n\r\n",
    "ended in the body": OK + b"Content-Length: 5\r\n\r\nhe",
    "not HTTP": b"SSH-2.0-OpenSSH_9.6\r\n",
}


async def receive(pieces: list[bytes]) -> tuple[int, bytes, type[HttpError] | None]:
    """Return what a reader gets from a connection: the status, the body, the error."""
    own, other = socket.socketpair()
    connection = Connection(make_shared_parts(lambda _: None))
    await asyncio.get_running_loop().create_connection(lambda: connection, sock=own)
    connection.send(b"GET / HTTP/1.1\r\n\r\n", b"")

    async def answer() -> None:
        with other:
            for piece in pieces:
                other.send(piece)
                for _ in range(3):  # The event loop reads the piece before the next one is sent.
                    await asyncio.sleep(0)

    answering = asyncio.create_task(answer())
    status, body = 0, b""
    try:
        async with asyncio.timeout(SECONDS):
            status = (await connection.read_head()).status
            while data := await connection.read():
                body += data
    except HttpError as error:
        return status, body, type(error)
    finally:
        await asyncio.gather(answering, return_exceptions=True)
        connection.abort()
        await asyncio.sleep(0)
    return status, body, None


@pytest.mark.parametrize("name", RESPONSES)
async def test_a_reader_gets_the_same_however_the_response_arrives(name: str) -> None:
    data = RESPONSES[name]
    whole = await receive([data])
    assert await receive([data[at : at + 1] for at in range(len(data))]) == whole
    for cut in range(1, len(data), 7):
        assert await receive([data[:cut], data[cut:]]) == whole


async def test_content_before_an_error_is_delivered() -> None:
    malformed = RESPONSES["malformed after some content"]
    assert await receive([malformed]) == (200, b"hello", MalformedResponse)
    assert await receive([RESPONSES["ended in the body"]]) == (200, b"he", ConnectionLost)


async def test_a_reader_learns_the_status_before_an_error() -> None:
    response = RESPONSES["an error status with a malformed body"]
    assert await receive([response]) == (429, b"", MalformedResponse)
