"""A model server in a bad mood: every way an answer can be wrong, on each of three wires, and how a run must take it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from .._core.agents import Reason
from .._core.messages import Call, StopReason, Text, Usage
from . import wire_formats
from .model_server import Fault, Said
from .wire_formats import Block, Reply

DIALECTS = ("anthropic", "openai", "google")
_STREAM = "text/event-stream"
_STREAMS = {
    "anthropic": wire_formats.anthropic_stream,
    "openai": wire_formats.openai_stream,
    "google": wire_formats.google_stream,
}
_PLACE = "~"


class Mood(Struct, frozen=True):
    """One bad mood.

    Arguments:
        said: what the server says to one request after the other, before it is well again.
        reason: how the run ends. error: a part of what its report says went wrong. requests: how many it takes in all.
        text: the run's last words where it is a GOAL.
    """

    said: Sequence[Said]
    reason: Reason = Reason.GOAL
    error: str = ""
    requests: int | None = None
    text: str = "Well again."


def moods(dialect: str) -> Mapping[str, Mood]:
    """Every mood on one wire, by name. The run has the tools `read` and `todo`."""
    return MappingProxyType(
        {
            **dict(_statuses()),
            **dict(_connections(dialect)),
            **dict(_garbled(dialect)),
            **dict(_odd(dialect)),
        }
    )


def _error(text: str) -> bytes:
    return b'{"error": {"type": "some_error", "message": "%b"}}' % text.encode()


def _statuses() -> Iterator[tuple[str, Mood]]:
    for status in (400, 401, 402, 403, 404, 413, 422):
        yield (
            f"{status}",
            Mood([Fault(status=status, body=_error("no"))], Reason.ERROR, f"HTTP {status}", 1),
        )
    for status in (408, 409, 429, 500, 502, 503, 504, 529):
        yield f"{status}", Mood([Fault(status=status, body=_error("wait"))] * 2, requests=3)
    for status in (429, 503, 529):
        yield (
            f"{status} with Retry-After",
            Mood(
                [Fault(status=status, body=_error("wait"), headers={"Retry-After": "7"})],
                requests=2,
            ),
        )
    hour = Fault(status=429, body=_error("wait"), headers={"Retry-After": "3600"})
    yield "429 for an hour", Mood([hour], Reason.ERROR, "asks to wait 3600 s", 1)
    yield (
        "429 with a Retry-After that is none",
        Mood([Fault(status=429, headers={"Retry-After": "soon"})], requests=2),
    )
    yield "500 for ever", Mood([Fault(status=500)] * 8, Reason.ERROR, "tried 8 times", 8)
    yield (
        "307",
        Mood([Fault(status=307, headers={"Location": "/elsewhere"})], Reason.ERROR, "redirects", 1),
    )
    html = b"<html><title>Bad gateway</title></html>"
    yield "502 in HTML", Mood([Fault(status=502, body=html, kind="text/html")], requests=2)


def _connections(dialect: str) -> Iterator[tuple[str, Mood]]:
    words = "I shall read the file and then tell you all of it."
    for end in ("close", "reset", "eof"):
        for cut in (0, 1, 150):
            yield f"{end} after {cut} bytes", Mood([Fault(words, cut=cut, end=end)], requests=2)
    yield "stall", Mood([Fault(words, cut=150, end="stall")], requests=2)
    call = (Call("c", "todo", {"todos": []}),)
    whole = len(b"".join(_stream(dialect, call)))
    yield "close in a call", Mood([Fault(call, cut=whole * 2 // 3)], requests=2)
    yield "byte by byte", Mood([Fault("Slowly.", drip=1)], requests=1, text="Slowly.")
    yield (
        "seven seconds a byte",
        Mood([Fault("Slowly.", drip=64, pause=7.0)], requests=1, text="Slowly."),
    )


def _garbled(dialect: str) -> Iterator[tuple[str, Mood]]:
    html = b"<!doctype html><title>Log in</title>"
    yield (
        "HTML",
        Mood([Fault(body=html, kind="text/html")], Reason.ERROR, "does not speak the protocol", 1),
    )
    yield (
        "JSON and no stream",
        Mood(
            [Fault(body=b"{}", kind="application/json")],
            Reason.ERROR,
            "does not speak the protocol",
            1,
        ),
    )
    yield (
        "a stream that is no JSON",
        Mood(
            [Fault(body=b"data: {oops\n\n", kind=_STREAM)],
            Reason.ERROR,
            "does not speak the protocol",
            1,
        ),
    )
    yield "an empty stream", Mood([Fault(body=b"", kind=_STREAM)] * 8, Reason.ERROR, requests=8)
    yield (
        "comments only",
        Mood([Fault(body=b": keep-alive\n\n" * 9, kind=_STREAM)] * 8, Reason.ERROR, requests=8),
    )
    twice = b"".join(_stream(dialect, (Text("First."),))) + b"".join(
        _stream(dialect, (Text("Second."),))
    )
    yield (
        "two messages in one stream",
        Mood([Fault(body=twice, kind=_STREAM)], text="First.", requests=1),
    )


def _odd(dialect: str) -> Iterator[tuple[str, Mood]]:
    todo: dict[str, object] = {"todos": []}
    google = (
        dialect == "google"
    )  # its arguments are an object on the wire: anything else is not its protocol
    wrong = (
        Mood([_malformed(dialect)], Reason.ERROR, "does not speak", 1)
        if google
        else Mood([_malformed(dialect)], requests=2)
    )
    yield "arguments that are no object", wrong
    yield "an unknown tool", Mood([(Call("c", "no_such_tool", {}),)], requests=2)
    yield "a call that lacks all arguments", Mood([(Call("c", "read", {}),)], requests=2)
    yield (
        "an id twice",
        Mood([(Call("c", "todo", todo), Call("c", "read", {"file_path": "a"}))], requests=2),
    )
    yield (
        "an id again",
        Mood([(Call("c", "todo", todo),), (Call("c", "read", {"file_path": "a"}),)], requests=3),
    )
    yield (
        "ids that are empty",
        Mood([(Call("", "todo", todo), Call("", "read", {"file_path": "a"}))], requests=2),
    )
    yield (
        "ids that look alike",
        Mood([(Call("c.1", "todo", todo), Call("c_1", "read", {"file_path": "a"}))], requests=2),
    )
    yield (
        "10 MB of arguments",
        Mood(
            [_filled(dialect, Call("c", "read", {"file_path": _PLACE}), b"x" * 10_000_000)],
            requests=2,
        ),
    )
    yield "no content", Mood([Fault(())], text="", requests=1)
    yield "blank content", Mood([" \n "], text="", requests=1)
    yield (
        "calls that are no stop",
        Mood([Fault((Call("c", "todo", todo),), stop=StopReason.END)], requests=2),
    )
    yield (
        "a stop for calls without one",
        Mood([Fault("Done.", stop=StopReason.CALLS)], text="Done.", requests=1),
    )
    yield (
        "a stop for calls without anything",
        Mood([Fault((), stop=StopReason.CALLS)], text="", requests=1),
    )
    yield (
        "too long",
        Mood([Fault("So fa", stop=StopReason.LENGTH)], Reason.ERROR, "output limit", 1),
    )
    yield (
        "a call that is cut at the limit",
        Mood([Fault((Call("c", "todo", todo),), stop=StopReason.LENGTH)], requests=2),
    )
    yield "a refusal", Mood([Fault("No.", stop=StopReason.REFUSAL)], Reason.ERROR, "refused", 1)
    for name, raw in (
        ("invalid UTF-8", b"\xff\xfe\xc3"),
        ("a lone surrogate", b"\\ud83d"),
        ("a null character", b"\\u0000"),
    ):
        yield (
            f"{name} in words",
            Mood([_filled(dialect, Text(f"a{_PLACE}b"), raw)], text="a", requests=1),
        )
        inner = raw.replace(b"\\", b"\\\\") if not google else raw
        yield (
            f"{name} in arguments",
            Mood(
                [_filled(dialect, Call("c", "read", {"file_path": f"a{_PLACE}b"}), inner)],
                requests=2,
            ),
        )


def _filled(dialect: str, block: Block, filling: bytes) -> Fault:
    return Fault(
        body=b"".join(_stream(dialect, (block,))).replace(_PLACE.encode(), filling), kind=_STREAM
    )


def _malformed(dialect: str) -> Fault:
    if dialect != "google":
        return Fault((Call("c", "read", {}, malformed='{"file_path": "a.t'),))
    whole = b"".join(_stream(dialect, (Call("c", "read", {"file_path": _PLACE}),)))
    return Fault(body=whole.replace(b'{"file_path":"~"}', b'"a.txt"'), kind=_STREAM)


def _stream(dialect: str, blocks: tuple[Block, ...]) -> Iterator[bytes]:
    stop = StopReason.CALLS if any(isinstance(block, Call) for block in blocks) else StopReason.END
    return iter(
        list(_STREAMS[dialect](Reply(blocks, "some-model", "msg_odd", Usage(10, 10), stop)))
    )
