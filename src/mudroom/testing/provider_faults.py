"""A model server in a bad mood: every way an answer can be wrong, on each of three wires, and how a run must take it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from .._core.agents import Reason
from .._core.messages import StopReason, TextBlock, ToolCallBlock, Usage
from . import wire_formats
from .model_server import Fault, ServerAnswer
from .wire_formats import Block, WireAnswer

DIALECTS = ("anthropic", "openai", "google")
_STREAM = "text/event-stream"
_STREAMS = {
    "anthropic": wire_formats.anthropic_stream,
    "openai": wire_formats.openai_stream,
    "google": wire_formats.google_stream,
}
_PLACE = "~"


class FaultCase(Struct, frozen=True):
    """One bad mood.

    Arguments:
        said: what the server says to one request after the other, before it is well again.
        reason: how the run ends. error: a part of what its report says went wrong. requests: how many it takes in all.
        text: the run's last words where it is a GOAL.
    """

    answers: Sequence[ServerAnswer]
    reason: Reason = Reason.GOAL
    error: str = ""
    requests: int | None = None
    text: str = "Well again."


def fault_cases(dialect: str) -> Mapping[str, FaultCase]:
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


def _statuses() -> Iterator[tuple[str, FaultCase]]:
    for status in (400, 401, 402, 403, 404, 413, 422):
        yield (
            f"{status}",
            FaultCase([Fault(status=status, body=_error("no"))], Reason.ERROR, f"HTTP {status}", 1),
        )
    for status in (408, 409, 429, 500, 502, 503, 504, 529):
        yield f"{status}", FaultCase([Fault(status=status, body=_error("wait"))] * 2, requests=3)
    for status in (429, 503, 529):
        yield (
            f"{status} with Retry-After",
            FaultCase(
                [Fault(status=status, body=_error("wait"), headers={"Retry-After": "7"})],
                requests=2,
            ),
        )
    hour = Fault(status=429, body=_error("wait"), headers={"Retry-After": "3600"})
    yield "429 for an hour", FaultCase([hour], Reason.ERROR, "asks to wait 3600 s", 1)
    yield (
        "429 with a Retry-After that is none",
        FaultCase([Fault(status=429, headers={"Retry-After": "soon"})], requests=2),
    )
    yield "500 for ever", FaultCase([Fault(status=500)] * 8, Reason.ERROR, "tried 8 times", 8)
    yield (
        "307",
        FaultCase(
            [Fault(status=307, headers={"Location": "/elsewhere"})], Reason.ERROR, "redirects", 1
        ),
    )
    html = b"<html><title>Bad gateway</title></html>"
    yield (
        "502 in HTML",
        FaultCase([Fault(status=502, body=html, content_type="text/html")], requests=2),
    )


def _connections(dialect: str) -> Iterator[tuple[str, FaultCase]]:
    words = "I shall read the file and then tell you all of it."
    for end in ("close", "reset", "eof"):
        for cut in (0, 1, 150):
            yield (
                f"{end} after {cut} bytes",
                FaultCase([Fault(words, cut_after=cut, end=end)], requests=2),
            )
    yield "stall", FaultCase([Fault(words, cut_after=150, end="stall")], requests=2)
    call = (ToolCallBlock("c", "todo", {"todos": []}),)
    whole = len(b"".join(_stream(dialect, call)))
    yield "close in a call", FaultCase([Fault(call, cut_after=whole * 2 // 3)], requests=2)
    yield "byte by byte", FaultCase([Fault("Slowly.", chunk_size=1)], requests=1, text="Slowly.")
    yield (
        "seven seconds a byte",
        FaultCase([Fault("Slowly.", chunk_size=64, pause=7.0)], requests=1, text="Slowly."),
    )


def _garbled(dialect: str) -> Iterator[tuple[str, FaultCase]]:
    html = b"<!doctype html><title>Log in</title>"
    yield (
        "HTML",
        FaultCase(
            [Fault(body=html, content_type="text/html")],
            Reason.ERROR,
            "does not speak the protocol",
            1,
        ),
    )
    yield (
        "JSON and no stream",
        FaultCase(
            [Fault(body=b"{}", content_type="application/json")],
            Reason.ERROR,
            "does not speak the protocol",
            1,
        ),
    )
    yield (
        "a stream that is no JSON",
        FaultCase(
            [Fault(body=b"data: {oops\n\n", content_type=_STREAM)],
            Reason.ERROR,
            "does not speak the protocol",
            1,
        ),
    )
    yield (
        "an empty stream",
        FaultCase([Fault(body=b"", content_type=_STREAM)] * 8, Reason.ERROR, requests=8),
    )
    yield (
        "comments only",
        FaultCase(
            [Fault(body=b": keep-alive\n\n" * 9, content_type=_STREAM)] * 8,
            Reason.ERROR,
            requests=8,
        ),
    )
    twice = b"".join(_stream(dialect, (TextBlock("First."),))) + b"".join(
        _stream(dialect, (TextBlock("Second."),))
    )
    yield (
        "two messages in one stream",
        FaultCase([Fault(body=twice, content_type=_STREAM)], text="First.", requests=1),
    )


def _odd(dialect: str) -> Iterator[tuple[str, FaultCase]]:
    todo: dict[str, object] = {"todos": []}
    google = (
        dialect == "google"
    )  # its arguments are an object on the wire: anything else is not its protocol
    wrong = (
        FaultCase([_malformed(dialect)], Reason.ERROR, "does not speak", 1)
        if google
        else FaultCase([_malformed(dialect)], requests=2)
    )
    yield "arguments that are no object", wrong
    yield "an unknown tool", FaultCase([(ToolCallBlock("c", "no_such_tool", {}),)], requests=2)
    yield (
        "a call that lacks all arguments",
        FaultCase([(ToolCallBlock("c", "read", {}),)], requests=2),
    )
    yield (
        "an id twice",
        FaultCase(
            [(ToolCallBlock("c", "todo", todo), ToolCallBlock("c", "read", {"file_path": "a"}))],
            requests=2,
        ),
    )
    yield (
        "an id again",
        FaultCase(
            [
                (ToolCallBlock("c", "todo", todo),),
                (ToolCallBlock("c", "read", {"file_path": "a"}),),
            ],
            requests=3,
        ),
    )
    yield (
        "ids that are empty",
        FaultCase(
            [(ToolCallBlock("", "todo", todo), ToolCallBlock("", "read", {"file_path": "a"}))],
            requests=2,
        ),
    )
    yield (
        "ids that look alike",
        FaultCase(
            [
                (
                    ToolCallBlock("c.1", "todo", todo),
                    ToolCallBlock("c_1", "read", {"file_path": "a"}),
                )
            ],
            requests=2,
        ),
    )
    yield (
        "10 MB of arguments",
        FaultCase(
            [
                _filled(
                    dialect, ToolCallBlock("c", "read", {"file_path": _PLACE}), b"x" * 10_000_000
                )
            ],
            requests=2,
        ),
    )
    yield "no content", FaultCase([Fault(())], text="", requests=1)
    yield "blank content", FaultCase([" \n "], text="", requests=1)
    yield (
        "calls that are no stop",
        FaultCase(
            [Fault((ToolCallBlock("c", "todo", todo),), stop_reason=StopReason.END)], requests=2
        ),
    )
    yield (
        "a stop for calls without one",
        FaultCase([Fault("Done.", stop_reason=StopReason.CALLS)], text="Done.", requests=1),
    )
    yield (
        "a stop for calls without anything",
        FaultCase([Fault((), stop_reason=StopReason.CALLS)], text="", requests=1),
    )
    yield (
        "too long",
        FaultCase([Fault("So fa", stop_reason=StopReason.LENGTH)], Reason.ERROR, "output limit", 1),
    )
    yield (
        "a call that is cut at the limit",
        FaultCase(
            [Fault((ToolCallBlock("c", "todo", todo),), stop_reason=StopReason.LENGTH)], requests=2
        ),
    )
    yield (
        "a refusal",
        FaultCase([Fault("No.", stop_reason=StopReason.REFUSAL)], Reason.ERROR, "refused", 1),
    )
    for name, raw in (
        ("invalid UTF-8", b"\xff\xfe\xc3"),
        ("a lone surrogate", b"\\ud83d"),
        ("a null character", b"\\u0000"),
    ):
        yield (
            f"{name} in words",
            FaultCase([_filled(dialect, TextBlock(f"a{_PLACE}b"), raw)], text="a", requests=1),
        )
        inner = raw.replace(b"\\", b"\\\\") if not google else raw
        yield (
            f"{name} in arguments",
            FaultCase(
                [_filled(dialect, ToolCallBlock("c", "read", {"file_path": f"a{_PLACE}b"}), inner)],
                requests=2,
            ),
        )


def _filled(dialect: str, block: Block, filling: bytes) -> Fault:
    return Fault(
        body=b"".join(_stream(dialect, (block,))).replace(_PLACE.encode(), filling),
        content_type=_STREAM,
    )


def _malformed(dialect: str) -> Fault:
    if dialect != "google":
        return Fault((ToolCallBlock("c", "read", {}, malformed='{"file_path": "a.t'),))
    whole = b"".join(_stream(dialect, (ToolCallBlock("c", "read", {"file_path": _PLACE}),)))
    return Fault(body=whole.replace(b'{"file_path":"~"}', b'"a.txt"'), content_type=_STREAM)


def _stream(dialect: str, blocks: tuple[Block, ...]) -> Iterator[bytes]:
    stop = (
        StopReason.CALLS
        if any(isinstance(block, ToolCallBlock) for block in blocks)
        else StopReason.END
    )
    return iter(
        list(_STREAMS[dialect](WireAnswer(blocks, "some-model", "msg_odd", Usage(10, 10), stop)))
    )
