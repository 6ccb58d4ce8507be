"""Scripted model server with the Anthropic Messages API, in its own process.

It is quick enough not to affect a measurement. Its answer depends on the marker in the first prompt
of a conversation and on the number of requests so far:

  bench:RUN:parent:CHILDREN:TURNS:MS:KEEP:PIECES:TOOL
                        CHILDREN calls of `task`, then an end
  bench:RUN:7:CHILDREN:TURNS:MS:KEEP:PIECES:TOOL
                        TURNS calls of TOOL, `read` or `glob`, each with another file, then an end
                        of 80 characters or of PIECES pieces

Every answer starts after MS milliseconds, or after a time in a range such as 500-2500 that depends
on the child and the turn. It is streamed, one chunk per event. Without PIECES all
chunks leave in one packet; PIECES leave one at a time, 50 in a second. With KEEP, requests are
kept. GET /RUN returns the record of a run: requests, bytes, most in flight, time of the first
request, and the kept bodies. The first line of output has two ports: plain and, with the arguments
CERTIFICATE and KEY, TLS.
"""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import sys
import time
from collections import defaultdict
from heapq import heappop, heappush
from itertools import count
from typing import Any
from zlib import crc32

_MARKER = re.compile(rb"bench:(\w+):(\w+):((\d+):(\d+):(\d+(?:-\d+)?):(\d):(\d+):(read|glob))")
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_END_TEXT = "The child has read what it was asked to read, and all of it was as was expected."
_PIECE = 24
_PIECE_SECONDS = 0.02
_TICK = 0.001


def _encode_chunk(name: str, **fields: Any) -> bytes:
    data = json.dumps({"type": name, **fields}, separators=(",", ":"))
    event = f"event: {name}\ndata: {data}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(event), event)


def _split_text(text: str) -> list[str]:
    return [text[at : at + _PIECE] for at in range(0, len(text), _PIECE)]


def _encode_text(index: int, text: str) -> bytes:
    deltas = (
        _encode_chunk(
            "content_block_delta", index=index, delta={"type": "text_delta", "text": piece}
        )
        for piece in _split_text(text)
    )
    start = _encode_chunk(
        "content_block_start", index=index, content_block={"type": "text", "text": ""}
    )
    return start + b"".join(deltas) + _encode_chunk("content_block_stop", index=index)


def _call(index: int, call_id: str, name: str, arguments: dict[str, str]) -> bytes:
    start = _encode_chunk(
        "content_block_start",
        index=index,
        content_block={"type": "tool_use", "id": call_id, "name": name, "input": {}},
    )
    deltas = (
        _encode_chunk(
            "content_block_delta",
            index=index,
            delta={"type": "input_json_delta", "partial_json": piece},
        )
        for piece in _split_text(json.dumps(arguments))
    )
    return start + b"".join(deltas) + _encode_chunk("content_block_stop", index=index)


def _answer(blocks: bytes, stop: str) -> bytes:
    usage = {"input_tokens": 1000, "output_tokens": 1}
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "bench",
        "content": [],
        "stop_reason": None,
        "usage": usage,
    }
    end = {"stop_reason": stop, "stop_sequence": None}
    after = _encode_chunk("message_delta", delta=end, usage={"output_tokens": 20}) + _encode_chunk(
        "message_stop"
    )
    return _HEAD + _encode_chunk("message_start", message=message) + blocks + after + b"0\r\n\r\n"


_END = _answer(_encode_text(0, _END_TEXT), "end_turn")
_PIECES_PART = _encode_chunk(
    "content_block_delta", index=0, delta={"type": "text_delta", "text": "a piece "}
)
_PIECES_START, _, _PIECES_END = _answer(_encode_text(0, "a piece "), "end_turn").partition(
    _PIECES_PART
)
_CALLS = {
    b"read": _answer(_call(0, "toolu_0000000", "read", {"path": "notes-00.txt"}), "tool_use"),
    b"glob": _answer(_call(0, "toolu_0000000", "glob", {"pattern": "**/notes-00"}), "tool_use"),
}


def _choose_delay(written: str, request: str) -> float:
    """Return the milliseconds before the answer to a request; always the same for it."""
    least, _, most = written.partition("-")
    share = crc32(request.encode()) / 2**32 if most else 0.0
    return int(least) + share * (int(most or least) - int(least))


def _use_tool(tool: bytes, turn: int) -> bytes:
    """Return a call for another file each time, so that no loop is detected."""
    return (
        _CALLS[tool]
        .replace(b"toolu_0000000", b"toolu_%07d" % turn, 1)
        .replace(b"notes-00", b"notes-%02d" % (turn % 100), 1)
    )


def _encode_tasks(run: str, children: int, settings: str) -> bytes:
    prompts = (f"bench:{run}:{child}:{settings}" for child in range(children))
    calls = (
        _call(at, f"toolu_{at}", "task", {"prompt": prompt, "description": "bench"})
        for at, prompt in enumerate(prompts)
    )
    return _answer(b"".join(calls), "tool_use")


class Seen:
    """Record of one run."""

    def __init__(self) -> None:
        self.first = time.monotonic()
        self.requests = self.size = self.in_flight = self.most = 0
        self.asked: defaultdict[str, int] = defaultdict(int)
        self.kept: list[tuple[str, str]] = []

    def to_json(self) -> dict[str, Any]:
        """Return all of it, for JSON."""
        return {
            "first": self.first,
            "requests": self.requests,
            "bytes": self.size,
            "most": self.most,
            "kept": self.kept,
        }


class Streams:
    """Answers that leave in pieces. One timer serves all; each stream starts where it may."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[float, int, asyncio.Transport, int]] = []
        self._numbers = count()

    def start(self, transport: asyncio.Transport, pieces: int) -> None:
        """Send the head of an answer now, and its pieces one after the other."""
        transport.write(_PIECES_START)
        if not self._waiting:
            self._loop.call_later(_TICK, self._send)
        self._plan(self._loop.time() + _PIECE_SECONDS, transport, pieces)

    def _plan(self, when: float, transport: asyncio.Transport, left: int) -> None:
        heappush(self._waiting, (when, next(self._numbers), transport, left))

    def _send(self) -> None:
        now = self._loop.time()
        while self._waiting and self._waiting[0][0] <= now:
            when, _, transport, left = heappop(self._waiting)
            transport.write(_PIECES_PART if left else _PIECES_END)
            if left:
                self._plan(when + _PIECE_SECONDS, transport, left - 1)
        if self._waiting:
            self._loop.call_later(_TICK, self._send)


class Connection(asyncio.Protocol):
    """One client: requests in, answers out, in order."""

    def __init__(self, runs: dict[str, Seen], streams: Streams) -> None:
        self._runs, self._buffer, self._streams = runs, bytearray(), streams
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to answer."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer every request that is whole."""
        buffer = self._buffer
        buffer += data
        while (at := buffer.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(buffer, 0, at + 2)
            end = at + 4 + (int(length[1]) if length else 0)
            if len(buffer) < end:
                return
            head, body = bytes(buffer[:at]), bytes(buffer[at + 4 : end])
            del buffer[:end]
            self._tell(head) if head.startswith(b"GET") else self._converse(body)

    def _tell(self, head: bytes) -> None:
        seen = self._runs.get(head.split(b" ", 2)[1].decode().strip("/"))
        body = json.dumps(seen.to_json() if seen else None).encode()
        self._transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
            % (len(body), body)
        )

    def _converse(self, body: bytes) -> None:
        marker = _MARKER.search(body)
        assert marker, "a request without a marker"
        run, name, settings = (marker[group].decode() for group in (1, 2, 3))
        children, turns, keep, pieces = (int(marker[group]) for group in (4, 5, 7, 8))
        seen = self._runs.get(run) or self._runs.setdefault(run, Seen())
        seen.requests, seen.size, seen.in_flight = (
            seen.requests + 1,
            seen.size + len(body),
            seen.in_flight + 1,
        )
        seen.most = max(seen.most, seen.in_flight)
        seen.asked[name] = asked = seen.asked[name] + 1
        if keep:
            seen.kept.append((name, body.decode()))
        if name == "parent":
            answer = _encode_tasks(run, children, settings) if asked == 1 else _END
        elif pieces and asked > turns:
            seen.in_flight -= 1
            self._streams.start(self._transport, pieces)
            return
        else:
            answer = _use_tool(marker[9], asked) if asked <= turns else _END
        if delay := _choose_delay(marker[6].decode(), f"{name}:{asked}"):
            self._loop.call_later(delay / 1000, self._send, seen, answer)
        else:
            self._send(seen, answer)

    def _send(self, seen: Seen, answer: bytes) -> None:
        seen.in_flight -= 1
        self._transport.write(answer)


async def _serve() -> None:
    runs: dict[str, Seen] = {}
    streams = Streams()
    contexts: list[ssl.SSLContext | None] = [None]
    if sys.argv[1:]:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*sys.argv[1:])
        contexts.append(tls)
    servers = [
        await asyncio.get_running_loop().create_server(
            lambda: Connection(runs, streams), "127.0.0.1", 0, backlog=8192, ssl=context
        )
        for context in contexts
    ]
    sys.stdout.write(" ".join(str(each.sockets[0].getsockname()[1]) for each in servers) + "\n")
    sys.stdout.flush()
    await asyncio.gather(*(each.serve_forever() for each in servers))


if __name__ == "__main__":
    asyncio.run(_serve())
