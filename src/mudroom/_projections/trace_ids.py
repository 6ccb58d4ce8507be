"""Ids of traces and spans, computed from the session so that every reader gets the same."""

from __future__ import annotations

import hashlib

from msgspec import Struct

from .._core.runs import find_root_id
from .._platform.patterns import compile_later

_TRACEPARENT = compile_later(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_SAMPLED = 1


class SpanContext(Struct, frozen=True):
    """A span as W3C Trace Context names it: ids of 128 and 64 bits."""

    trace_id: int
    span_id: int
    is_sampled: bool = True

    def __str__(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{int(self.is_sampled):02x}"


def parse_traceparent(text: str) -> SpanContext | None:
    """Parse a header `traceparent`; None if it names no span."""
    match = _TRACEPARENT.fullmatch(text.strip())
    if match is None or text.strip().startswith("ff"):
        return None
    trace_id, span_id, flags = (int(match[number], 16) for number in (1, 2, 3))
    if not trace_id or not span_id:
        return None
    return SpanContext(trace_id, span_id, bool(flags & _SAMPLED))


class TraceIds(Struct, frozen=True, omit_defaults=True):
    """Ids of the spans of a session.

    There is one trace for each root run. If another program started the session inside one of its
    own spans (`traceparent`), the root runs are children of that span, in its trace.
    """

    session: str
    traceparent: str = ""

    def find_outer_span(self) -> SpanContext | None:
        return parse_traceparent(self.traceparent)

    def make_trace_id(self, run_id: str) -> int:
        if outer := self.find_outer_span():
            return outer.trace_id
        return self._hash(16, "trace", find_root_id(run_id))

    def make_run_span_id(self, run_id: str, part: int) -> int:
        """Make the id of a run's span. `part`: number of the process that executes it, from 1."""
        return self._hash(8, "run", run_id, str(part))

    def make_turn_span_id(self, run_id: str, turn: int, attempt: int) -> int:
        """Make the id of a model call's span. `attempt`: number within this turn, from 1."""
        return self._hash(8, "turn", run_id, str(turn), str(attempt))

    def make_call_span_id(self, run_id: str, call_id: str) -> int:
        return self._hash(8, "call", run_id, call_id)

    def make_call_traceparent(self, run_id: str, call_id: str) -> str:
        outer = self.find_outer_span()
        span_id = self.make_call_span_id(run_id, call_id)
        is_sampled = outer is None or outer.is_sampled
        return str(SpanContext(self.make_trace_id(run_id), span_id, is_sampled))

    def _hash(self, size: int, *names: str) -> int:
        text = "\0".join((self.session, *names)).encode("utf-8", "surrogatepass")
        return int.from_bytes(hashlib.blake2b(text, digest_size=size).digest()) or 1
