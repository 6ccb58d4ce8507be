"""Provider faults: faulty answers in each wire format, with the outcome required of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct

from .._core.messages import StopReason, TextBlock, ToolCallBlock, Usage, resolve_stop_reason
from .._core.runs import Reason
from . import wire_formats
from .model_server import Fault, ServerAnswer
from .wire_formats import Block, WireAnswer

DIALECTS = tuple(wire_formats.WRITERS)
_STREAM = "text/event-stream"
_PLACEHOLDER = "~"  # text in a stream to be replaced with other bytes

_NOT_THE_PROTOCOL = "does not speak the protocol"


class FaultCase(Struct, frozen=True):
    """One fault and its expected outcome.

    Arguments:
        answers: answers to the first requests; later requests get the text "It works again."
        reason: expected reason of the run.
        error: expected part of the report's error.
        requests: expected number of requests; None if not fixed.
        text: expected beginning of the report's text if the reason is GOAL.
    """

    answers: Sequence[ServerAnswer]
    reason: Reason = Reason.GOAL
    error: str = ""
    requests: int | None = None
    text: str = "It works again."


Cases = dict[str, FaultCase]


def fault_cases(dialect: str) -> Mapping[str, FaultCase]:
    """Make all fault cases for one wire format, by name.

    The run must have the tools `read` and `todo`.
    """
    cases = {
        **_status_cases(),
        **_connection_cases(dialect),
        **_wrong_body_cases(dialect),
        **_call_cases(dialect),
        **_ending_cases(),
        **_encoding_cases(dialect),
        **_json_cases(dialect),
    }
    # Ollama's JSON lines have no comments, and no reason for a refused answer.
    left_out = ("comments only", "a refusal") if dialect == "ollama" else ()
    return MappingProxyType({name: case for name, case in cases.items() if name not in left_out})


def _error(text: str) -> bytes:
    return b'{"error": {"type": "some_error", "message": "%b"}}' % text.encode()


def _fails(answer: ServerAnswer, error: str) -> FaultCase:
    return FaultCase([answer], Reason.ERROR, error, 1)


def _status_cases() -> Cases:
    cases: Cases = {}
    for status in (400, 401, 402, 403, 404, 413, 422):
        cases[f"{status}"] = _fails(Fault(status=status, body=_error("no")), f"HTTP {status}")
    for status in (408, 409, 429, 500, 502, 503, 504, 529):
        answer = Fault(status=status, body=_error("wait"))
        cases[f"{status}"] = FaultCase([answer] * 2, requests=3)
    for status in (429, 503, 529):
        answer = Fault(status=status, body=_error("wait"), headers={"Retry-After": "7"})
        cases[f"{status} with Retry-After"] = FaultCase([answer], requests=2)
    hour = Fault(status=429, body=_error("wait"), headers={"Retry-After": "3600"})
    invalid = Fault(status=429, headers={"Retry-After": "soon"})
    redirect = Fault(status=307, headers={"Location": "/elsewhere"})
    html = b"<html><title>Bad gateway</title></html>"
    return cases | {
        "429 for an hour": _fails(hour, "asks to wait 3600 s"),
        "429 with an invalid Retry-After": FaultCase([invalid], requests=2),
        "500 always": FaultCase([Fault(status=500)] * 8, Reason.ERROR, "tried 8 times", 8),
        "307": _fails(redirect, "redirects"),
        "502 in HTML": FaultCase(
            [Fault(status=502, body=html, content_type="text/html")], requests=2
        ),
    }


def _connection_cases(dialect: str) -> Cases:
    cases: Cases = {}
    text = "I will read the file and then tell you all of it."
    for end in ("close", "reset", "eof"):
        for sent in (0, 1, 150):
            fault = Fault(text, cut_after=sent, end=end)
            cases[f"{end} after {sent} bytes"] = FaultCase([fault], requests=2)
    call = (ToolCallBlock("c", "todo", {"todos": []}),)
    length = len(_stream(dialect, call))
    slow = Fault("Slowly.", chunk_size=64, pause=7.0)
    return cases | {
        "stall": FaultCase([Fault(text, cut_after=150, end="stall")], requests=2),
        "close in a call": FaultCase([Fault(call, cut_after=length * 2 // 3)], requests=2),
        "byte by byte": FaultCase([Fault("Slowly.", chunk_size=1)], requests=1, text="Slowly."),
        "seven seconds between writes": FaultCase([slow], requests=1, text="Slowly."),
    }


def _wrong_body_cases(dialect: str) -> Cases:
    html = Fault(body=b"<!doctype html><title>Log in</title>", content_type="text/html")
    json = Fault(body=b"{}", content_type="application/json")
    broken = Fault(body=b'{"id": "x", ', content_type="application/json")
    no_json = Fault(body=b"data: {oops\n\n", content_type=_STREAM)
    empty = Fault(body=b"", content_type=_STREAM)
    comments = Fault(body=b": keep-alive\n\n" * 9, content_type=_STREAM)
    twice = _stream(dialect, (TextBlock("First."),)) + _stream(dialect, (TextBlock("Second."),))
    return {
        "HTML": _fails(html, _NOT_THE_PROTOCOL),
        "JSON instead of a stream": _fails(json, _NOT_THE_PROTOCOL),
        "a stream without JSON": FaultCase([no_json] * 3, Reason.ERROR, _NOT_THE_PROTOCOL, 3),
        "one unreadable chunk": FaultCase([no_json], requests=2),
        "broken JSON instead of a stream": FaultCase([broken], requests=2),
        "an empty stream": FaultCase([empty] * 8, Reason.ERROR, requests=8),
        "comments only": FaultCase([comments] * 8, Reason.ERROR, requests=8),
        "two messages in one stream": FaultCase(
            [Fault(body=twice, content_type=_STREAM)], text="First.", requests=1
        ),
    }


def _call_cases(dialect: str) -> Cases:
    def todo(call_id: str) -> ToolCallBlock:
        return ToolCallBlock(call_id, "todo", {"todos": []})

    def read(call_id: str) -> ToolCallBlock:
        return ToolCallBlock(call_id, "read", {"file_path": "a"})

    malformed = FaultCase([_malformed(dialect)], requests=2)
    big = ToolCallBlock("c", "read", {"file_path": _PLACEHOLDER})
    return {
        "arguments that are no object": malformed,
        "an unknown tool": FaultCase([(ToolCallBlock("c", "no_such_tool", {}),)], requests=2),
        "a call without arguments": FaultCase([(ToolCallBlock("c", "read", {}),)], requests=2),
        "an id twice in one message": FaultCase([(todo("c"), read("c"))], requests=2),
        "an id in two messages": FaultCase([(todo("c"),), (read("c"),)], requests=3),
        "empty ids": FaultCase([(todo(""), read(""))], requests=2),
        "ids that differ in one sign": FaultCase([(todo("c.1"), read("c_1"))], requests=2),
        "10 MB of arguments": FaultCase([_filled(dialect, big, b"x" * 10_000_000)], requests=2),
        "calls with the stop reason of an end": FaultCase(
            [Fault((todo("c"),), stop_reason=StopReason.END)], requests=2
        ),
        "a call cut at the output limit": FaultCase(
            [Fault((todo("c"),), stop_reason=StopReason.LENGTH)], requests=2
        ),
    }


def _ending_cases() -> Cases:
    return {
        "no content": FaultCase([Fault(())], requests=2),
        "blank content": FaultCase([" \n "], requests=2),
        "no content twice": FaultCase([Fault(())] * 2, Reason.ERROR, "empty answer", 2),
        "the stop reason of calls without a call": FaultCase(
            [Fault("Done.", stop_reason=StopReason.CALLS)], text="Done.", requests=1
        ),
        "the stop reason of calls without content": FaultCase(
            [Fault((), stop_reason=StopReason.CALLS)], requests=2
        ),
        "too long": _fails(Fault("So fa", stop_reason=StopReason.LENGTH), "output limit"),
        "a refusal": _fails(Fault("No.", stop_reason=StopReason.REFUSAL), "refused"),
    }


def _encoding_cases(dialect: str) -> Cases:
    cases: Cases = {}
    invalid = {
        "invalid UTF-8": b"\xff\xfe\xc3",
        "a lone surrogate": b"\\ud83d",
        "a null character": b"\\u0000",
    }
    text = TextBlock(f"a{_PLACEHOLDER}b")
    call = ToolCallBlock("c", "read", {"file_path": f"a{_PLACEHOLDER}b"})
    for name, raw in invalid.items():
        # Where arguments are JSON in a JSON string, backslashes are doubled.
        nested = raw if dialect in ("google", "ollama") else raw.replace(b"\\", b"\\\\")
        cases[f"{name} in text"] = FaultCase([_filled(dialect, text, raw)], text="a", requests=1)
        cases[f"{name} in arguments"] = FaultCase([_filled(dialect, call, nested)], requests=2)
        named = ToolCallBlock("c", f"a{_PLACEHOLDER}b", {})
        cases[f"{name} in the name of a tool"] = FaultCase([_filled(dialect, named, raw)])
    return cases


def _json_cases(dialect: str) -> Cases:
    depth = 100_000
    arguments = {
        "a lone surrogate in the name of an argument": rb'{"\ud83d":1}',
        "NaN as an argument": b'{"limit":NaN}',
        "infinity as an argument": b'{"limit":1e999}',
        "an integer of 400 digits as an argument": b'{"limit":1%b}' % (b"0" * 400),
        "an integer of 5,000 digits as an argument": b'{"limit":1%b}' % (b"0" * 5_000),
        "arguments of 300 levels": b'{"a":%b%b}' % (b"[" * 300, b"]" * 300),
        "arguments of 900 levels": b'{"a":%b%b}' % (b"[" * 900, b"]" * 900),
        "arguments of 100,000 levels": b'{"a":%b%b}' % (b"[" * depth, b"]" * depth),
    }
    return {name: FaultCase([_with_arguments(dialect, raw)]) for name, raw in arguments.items()}


def _filled(dialect: str, block: Block, filling: bytes) -> Fault:
    body = _stream(dialect, (block,)).replace(_PLACEHOLDER.encode(), filling)
    return Fault(body=body, content_type=_STREAM)


def _malformed(dialect: str) -> Fault:
    return _with_arguments(dialect, b'"a.txt"' if dialect == "google" else b'{"file_path": "a.t')


def _with_arguments(dialect: str, arguments: bytes) -> Fault:
    """Make an answer with one call that has this JSON text as its arguments."""
    if dialect == "google":
        whole = _stream(dialect, (ToolCallBlock("c", "read", {"file_path": _PLACEHOLDER}),))
        body = whole.replace(b'{"file_path":"~"}', arguments)
    else:
        whole = _stream(dialect, (ToolCallBlock("c", "read", {}, malformed=_PLACEHOLDER),))
        escaped = arguments.replace(b"\\", b"\\\\").replace(b'"', b'\\"')
        body = whole.replace(_PLACEHOLDER.encode(), escaped)
    return Fault(body=body, content_type=_STREAM)


def _stream(dialect: str, blocks: tuple[Block, ...]) -> bytes:
    stop_reason = resolve_stop_reason(StopReason.END, blocks)
    answer = WireAnswer(blocks, "some-model", "msg_odd", Usage(10, 10), stop_reason)
    stream, _ = wire_formats.WRITERS[dialect]
    return b"".join(stream(answer))
