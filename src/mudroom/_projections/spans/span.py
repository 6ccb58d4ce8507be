"""The values in traces: a span, and an event in it."""

from __future__ import annotations

from msgspec import Struct
from msgspec.structs import replace

from ..trace_ids import SpanContext

AttributeValue = str | bool | int | float | tuple[str, ...]
Attributes = dict[str, AttributeValue]


class SpanEvent(Struct, frozen=True):
    """Something that happened in a span.

    Arguments:
        at: seconds since 1970.
    """

    name: str
    at: float
    attributes: Attributes = {}


class Span(Struct, frozen=True, kw_only=True):
    """A part of the work of a session: a run, a model call or a tool call.

    Arguments:
        context: its ids.
        parent_id: id of the span above it, 0 for none.
        has_outer_parent: true if that span belongs to another program.
        is_request: true for a request to a model.
        started_at, ended_at: seconds since 1970.
        first_chunk_at: when the first part of the model's answer arrived; None for a span made from
            a record, which does not have the parts.
        error: text of the failure. has_failed: whether it failed.
        links: related spans.
    """

    context: SpanContext
    name: str
    started_at: float
    parent_id: int = 0
    has_outer_parent: bool = False
    is_request: bool = False
    ended_at: float = 0.0
    first_chunk_at: float | None = None
    attributes: Attributes = {}
    events: tuple[SpanEvent, ...] = ()
    links: tuple[SpanContext, ...] = ()
    has_failed: bool = False
    error: str = ""


class OpenSpan:
    """A span that has not ended.

    Attributes:
        span: the facts known at its start.
        attributes, events, first_chunk_at: those of its end, added while it is open.
    """

    def __init__(self, span: Span) -> None:
        self.span = span
        self.attributes = dict(span.attributes)
        self.events: list[SpanEvent] = []
        self.first_chunk_at: float | None = None

    def close(self, at: float, error_type: str = "", error: str = "") -> Span:
        """End the span.

        Arguments:
            error_type: how it failed, "" if it did not. error: the text of the failure.
        """
        if error_type:
            self.attributes["error.type"] = error_type
        return replace(
            self.span,
            ended_at=max(at, self.span.started_at),
            first_chunk_at=self.first_chunk_at,
            attributes=self.attributes,
            events=tuple(self.events),
            has_failed=bool(error_type),
            error=error,
        )
