"""The open spans of one run."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from ..._core.messages import Usage
from ..._core.runs import Brief
from ..trace_ids import SpanContext, TraceIds
from .attributes import INTERRUPTED, describe_run, describe_usage
from .span import Attributes, OpenSpan, Span


class RunSpans:
    """The span of a run in this process, and those of its model calls and tool calls.

    Attributes:
        ids: ids of the session that executes the run: another one in a fork.
        span: of the run.
        is_cut: true if that span has ended, but not the run.
        turn: span of the model call that works.
        calls: spans of the tool calls that work, by call id.
        finished_calls: ids of the others.
        new_messages: messages for the next request.
        finish_reasons: of the last answer.
    """

    def __init__(self, brief: Brief, ids: TraceIds, parent: SpanContext | None, at: float) -> None:
        self.brief = brief
        self.ids: TraceIds = ids
        self.is_cut = False
        self.turn: OpenSpan | None = None
        self.calls: dict[str, OpenSpan] = {}
        self.finished_calls: set[str] = set()
        self.new_messages: list[dict[str, Any]] = []
        self.finish_reasons: tuple[str, ...] = ()
        self._parent: SpanContext | None = parent
        self._part = 1
        self._usage = Usage()
        self._turn_number = 0
        self._attempt = 0
        self.span: OpenSpan = self._open_part(at)

    @property
    def context(self) -> SpanContext:
        """The ids of the span of the run."""
        return self.span.span.context

    @property
    def attributes(self) -> Attributes:
        """The attributes of the span of the run."""
        return self.span.attributes

    def make_context(self, span_id: int) -> SpanContext:
        """Return the ids of another span of the same trace."""
        return replace(self.context, span_id=span_id)

    def add_link(self, other: SpanContext) -> None:
        """Link the span of the run to another one."""
        self.span.span = replace(self.span.span, links=(*self.span.span.links, other))

    def _open_part(self, at: float) -> OpenSpan:
        run_id = self.brief.run_id
        parent = self._parent
        trace_id = parent.trace_id if parent else self.ids.make_trace_id(run_id)
        span_id = self.ids.make_run_span_id(run_id, self._part)
        span = Span(
            context=SpanContext(trace_id, span_id, parent is None or parent.is_sampled),
            parent_id=parent.span_id if parent else 0,
            has_outer_parent=bool(parent and not self.brief.parent),
            name=f"invoke_agent {self.brief.agent.name}",
            started_at=at,
            attributes=describe_run(self.ids.session, self.brief),
        )
        return OpenSpan(span)

    def begin_part(self, ids: TraceIds, at: float, last_at: float) -> list[Span]:
        """Begin the span of the run in another process; return what that ends.

        Arguments:
            ids: those of the process. last_at: time of the last event before.
        """
        ended = self.cut(last_at)
        before = self.context
        if ids.session != self.ids.session:
            self.ids = ids  # a fork has a trace of its own
            if not self.brief.parent:
                self._parent = ids.find_outer_span()
        self._part += 1
        self._usage = Usage()
        self.finish_reasons = ()
        self.span = self._open_part(at)
        self.add_link(before)
        self.is_cut = False
        return ended

    def cut(self, at: float) -> list[Span]:
        """End the span of the run and its model call; its tool calls stay open."""
        if self.is_cut:
            return []
        self.is_cut = True
        return [*self.end_turn(at, INTERRUPTED), *self.end_part(at, INTERRUPTED)]

    def end_part(self, at: float, error_type: str = "", error: str = "") -> list[Span]:
        """End the span of the run. Its usage is its own, without that of its children."""
        self.attributes.update(describe_usage(self._usage))
        if self.finish_reasons:
            self.attributes["gen_ai.response.finish_reasons"] = self.finish_reasons
        return [self.span.close(at, error_type, error)]

    def start_turn(self, number: int, at: float, attributes: Attributes) -> None:
        """Begin the span of a model call."""
        self._attempt = self._attempt + 1 if number == self._turn_number else 1
        self._turn_number = number
        span_id = self.ids.make_turn_span_id(self.brief.run_id, number, self._attempt)
        name = f"chat {attributes['gen_ai.request.model']}"
        self.turn = self._open_below(span_id, name, at, attributes, is_request=True)

    def add_answer(self, usage: Usage, finish_reasons: object) -> None:
        """Add the usage of an answer to that of the run."""
        self._usage += usage
        if isinstance(finish_reasons, tuple):
            self.finish_reasons = finish_reasons

    def end_turn(self, at: float, error_type: str = "", error: str = "") -> list[Span]:
        """End the span of the model call, if one works."""
        turn = self.turn
        self.turn = None
        return [turn.close(at, error_type, error)] if turn else []

    def start_call(self, call_id: str, name: str, at: float, attributes: Attributes) -> OpenSpan:
        """Begin the span of a tool call."""
        span_id = self.ids.make_call_span_id(self.brief.run_id, call_id)
        call = self._open_below(span_id, name, at, attributes)
        self.calls[call_id] = call
        return call

    def end_calls(self, at: float) -> list[Span]:
        """End the spans of the tool calls that got no result."""
        ended = [call.close(at, INTERRUPTED) for call in self.calls.values()]
        self.calls = {}
        return ended

    def _open_below(
        self,
        span_id: int,
        name: str,
        at: float,
        attributes: Attributes,
        *,
        is_request: bool = False,
    ) -> OpenSpan:
        span = Span(
            context=self.make_context(span_id),
            parent_id=self.context.span_id,
            name=name,
            is_request=is_request,
            started_at=at,
            attributes=attributes,
        )
        return OpenSpan(span)
