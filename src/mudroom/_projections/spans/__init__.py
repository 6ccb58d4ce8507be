"""The spans of a session, built from its events: live or from the journal, with the same ids.

There is one trace for each root run. A run is a span `invoke_agent`; its model calls (`chat`) and
tool calls (`execute_tool`) are below it, and a child run is below the call that started it. A run
that continues in another process has one span per process, each linked to the previous one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import asdict, replace

from ..._core.events import (
    AnyEvent,
    Delta,
    NoteInjected,
    RunFinished,
    RunResumed,
    RunStarted,
    SessionOpened,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFailed,
    TurnFinished,
    TurnStarted,
)
from ..._core.json_values import map_texts
from ..._core.messages import (
    AssistantBlock,
    AssistantMessage,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    Usage,
    append_placeholders,
    get_sendable_arguments,
)
from ..._core.runs import Brief, Reason, RequestHead, ToolDescription
from ..._core.tool_names import normalize_tool_name
from ..._core.tools import ToolResult
from ..cache_use import CacheUseFold, Miss
from ..safe_text import sanitize_line
from ..trace_ids import SpanContext, TraceIds
from .span import (
    INTERRUPTED,
    Attributes,
    OpenSpan,
    Span,
    describe_answer,
    describe_cache,
    describe_call,
    describe_miss,
    describe_run,
    describe_turn,
    describe_usage,
    find_call_error,
    make_span_event,
)

__all__ = ["ContentCapture", "SessionSpans", "Span"]

# In characters.
_MAX_ERROR = 300
_CHUNKS = ("text", "thinking", "call")
"""Kinds of deltas that are part of an answer."""


class SessionSpans:
    """Folds a session's events into spans.

    Arguments:
        session: id of the session, for a record without its opening.
        capture: writes the text of prompts, answers and tool calls; None leaves it out.
        redact: removes secrets from error messages.
        find_server: returns the host and port serving a model string.
    """

    def __init__(
        self,
        session: str = "",
        *,
        capture: ContentCapture | None = None,
        redact: Callable[[str], str] = str,
        find_server: Callable[[str], tuple[str, int] | None] = lambda model: None,
    ) -> None:
        self._ids = TraceIds(session)
        self._find_server = find_server
        self._capture = capture
        self._redact = redact
        self._runs: dict[str, RunSpans] = {}
        self._last_roots: dict[str, SpanContext] = {}
        self._head_parts: dict[str, object] = {}
        self._last_at = 0.0
        self._cache = CacheUseFold()
        self._miss: Miss | None = None

    def apply(self, event: AnyEvent) -> list[Span]:
        if isinstance(event, Delta):
            run = self._runs.get(event.run)
            if run and run.turn and run.turn.first_chunk_at is None and event.kind in _CHUNKS:
                run.turn.first_chunk_at = event.at
            return []
        self._miss = self._cache.apply(event)
        ended: list[Span] = []
        if isinstance(event, SessionOpened):
            # Another process begins: open runs were cut off in the previous one.
            for run in self._runs.values():
                ended += run.cut(self._last_at)
            self._ids = TraceIds(event.session, event.traceparent)
        elif isinstance(event, RunStarted) and event.brief.run_id not in self._runs:
            self._start_run(event)
        elif run := self._runs.get(event.run):
            if run.is_cut or isinstance(event, RunStarted | RunResumed):
                ended += run.begin_part(self._ids, event.at, self._last_at)
                self._describe_head(run, event)
            ended += self._apply_to_run(run, event)
        self._last_at = max(self._last_at, event.at)
        return ended

    def apply_all(self, events: Iterable[StoredEvent]) -> list[Span]:
        """Make the spans of all events, those of unfinished work last."""
        spans = [span for event in events for span in self.apply(event)]
        return spans + self.finish()

    def finish(self) -> list[Span]:
        """End the open spans as if they had been interrupted at the last event."""
        ended: list[Span] = []
        for run in self._runs.values():
            ended += run.end_calls(self._last_at)
            ended += run.cut(self._last_at)
        self._runs.clear()
        return ended

    def _start_run(self, event: RunStarted) -> None:
        brief = event.brief
        parent = self._find_parent(event)
        run = RunSpans(brief, self._ids, parent, event.at)
        if brief.continues in self._last_roots:
            run.add_link(self._last_roots[brief.continues])
        self._runs[brief.run_id] = run
        if self._capture:
            prompt = make_user_message(brief.blocks)
            run.new_messages.append(prompt)
            run.attributes.update(self._capture.describe_title(brief.description))
            run.attributes.update(self._capture.describe_input([prompt]))
        self._describe_head(run, event)

    def _find_parent(self, event: RunStarted) -> SpanContext | None:
        """Find the span above a run: the call that started it, its parent, or another program's.

        An unknown call or parent gets the ids it would have.
        """
        brief = event.brief
        if not brief.parent:
            return self._ids.find_outer_span()
        if parent := self._runs.get(brief.parent):
            call = parent.calls.get(brief.call_id)
            if call:
                return call.span.context
            if not brief.call_id:
                return parent.context
            return parent.make_context(parent.ids.make_call_span_id(brief.parent, brief.call_id))
        if brief.call_id:
            span_id = self._ids.make_call_span_id(brief.parent, brief.call_id)
        else:
            span_id = self._ids.make_run_span_id(brief.parent, 1)
        return SpanContext(self._ids.make_trace_id(brief.run_id), span_id)

    def _describe_head(self, run: RunSpans, event: StoredEvent) -> None:
        head = event.head if isinstance(event, RunStarted | RunResumed) else None
        if self._capture and head:
            self._head_parts.update(head.parts)
            run.attributes.update(self._capture.describe_head(head, self._head_parts))

    def _apply_to_run(self, run: RunSpans, event: StoredEvent) -> list[Span]:
        match event:
            case TurnStarted():
                return self._start_turn(run, event)
            case TurnFinished():
                return self._finish_turn(run, event)
            case TurnFailed():
                return self._fail_turn(run, event)
            case ToolCallStarted():
                return self._start_call(run, event)
            case ToolCallFinished():
                return self._finish_call(run, event)
            case RunFinished():
                return self._finish_run(run, event)
            case NoteInjected() if self._capture:
                run.new_messages.append(make_user_message([TextBlock(event.text)]))
            case _:
                if span_event := make_span_event(event):
                    (run.turn or run.span).events.append(span_event)
        return []

    def _start_turn(self, run: RunSpans, event: TurnStarted) -> list[Span]:
        ended = run.end_turn(event.at, INTERRUPTED)
        attributes = describe_turn(run.ids.session, run.brief, event.turn)
        self._describe_server(attributes, run.brief.model)
        run.start_turn(event.turn, event.at, attributes)
        if self._capture and run.turn:
            run.turn.attributes.update(self._capture.describe_input(run.new_messages))
            run.new_messages = []
        return ended

    def _finish_turn(self, run: RunSpans, event: TurnFinished) -> list[Span]:
        if run.turn is None:
            started_at = event.at - event.seconds
            attributes = describe_turn(run.ids.session, run.brief, event.turn)
            run.start_turn(event.turn, started_at, attributes)
        attributes = describe_answer(event.message)
        if self._miss:
            attributes |= describe_miss(self._miss)
        if event.message.answered_by:
            self._describe_server(attributes, event.message.answered_by)
        run.add_answer(event.message.usage, attributes["gen_ai.response.finish_reasons"])
        if run.turn:
            run.turn.attributes.update(attributes)
            if self._capture:
                (reason,) = run.finish_reasons
                run.turn.attributes.update(self._capture.describe_output(event.message, reason))
        return run.end_turn(event.at)

    def _describe_server(self, attributes: Attributes, model: str) -> None:
        if server := self._find_server(model.partition(",")[0]):
            attributes["server.address"], attributes["server.port"] = server

    def _fail_turn(self, run: RunSpans, event: TurnFailed) -> list[Span]:
        kind = "context_overflow" if event.overflow else "failed"
        return run.end_turn(
            event.at, "unavailable" if event.transient else kind, self._clean(event.error)
        )

    def _start_call(self, run: RunSpans, event: ToolCallStarted) -> list[Span]:
        call = event.call
        if call.id not in run.calls and call.id not in run.finished_calls:
            open_span = self._open_call(run, call.id, call.name, event.at)
            if self._capture:
                open_span.attributes.update(self._capture.describe_arguments(call))
        return []

    def _open_call(self, run: RunSpans, call_id: str, name: str, at: float) -> OpenSpan:
        tool = normalize_tool_name(name)
        attributes = describe_call(run.ids.session, run.brief, call_id, name)
        return run.start_call(call_id, f"execute_tool {tool}", at, attributes)

    def _finish_call(self, run: RunSpans, event: ToolCallFinished) -> list[Span]:
        if event.call_id in run.finished_calls:
            return []
        call = run.calls.pop(event.call_id, None)
        if call is None:
            call = self._open_call(run, event.call_id, event.name, event.at - event.seconds)
            del run.calls[event.call_id]
        run.finished_calls.add(event.call_id)
        error_type = find_call_error(event.result, is_refused=event.refused)
        if self._capture:
            call.attributes.update(self._capture.describe_result(event.result))
            run.new_messages.append(make_tool_message(event.call_id, event.result))
        return [call.close(event.at, error_type)]

    def _finish_run(self, run: RunSpans, event: RunFinished) -> list[Span]:
        report = event.report
        ended = [*run.end_calls(event.at), *run.end_turn(event.at, INTERRUPTED)]
        run.attributes["mudroom.run.reason"] = report.reason.value
        run.attributes.update(describe_cache(self._cache.find_use(run.brief.run_id)))
        if self._capture:
            run.attributes.update(self._capture.describe_report(report.text))
        error_type = "" if report.reason is Reason.GOAL else report.reason.value
        ended += run.end_part(event.at, error_type, self._clean(report.error))
        del self._runs[run.brief.run_id]
        if not run.brief.parent:
            self._last_roots[run.brief.run_id] = run.context
        return ended

    def _clean(self, error: str) -> str:
        return sanitize_line(self._redact(error), _MAX_ERROR)


# Longer attributes are cut.
MAX_BYTES = 64 << 10
_MIN_TEXT = 64
_CUT = " [cut]"

Message = dict[str, Any]


class ContentCapture:
    """Writes texts as attributes, without secrets and not too long."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact

    def describe_input(self, messages: Sequence[Message]) -> Attributes:
        return {"gen_ai.input.messages": self._encode(messages)} if messages else {}

    def describe_output(self, answer: AssistantMessage, finish_reason: str) -> Attributes:
        parts = [part for block in answer.content for part in _convert_block(block)]
        message = {"role": "assistant", "parts": parts, "finish_reason": finish_reason}
        return {"gen_ai.output.messages": self._encode([message])}

    def describe_report(self, text: str) -> Attributes:
        message = {"role": "assistant", "parts": [make_text(text)], "finish_reason": "stop"}
        return {"gen_ai.output.messages": self._encode([message])} if text else {}

    def describe_title(self, description: str) -> Attributes:
        return {"mudroom.run.description": self._redact(description)} if description else {}

    def describe_arguments(self, call: ToolCallBlock) -> Attributes:
        return {"gen_ai.tool.call.arguments": self._encode(get_sendable_arguments(call))}

    def describe_result(self, result: ToolResult) -> Attributes:
        text = append_placeholders(result.text, result.images)
        return {"gen_ai.tool.call.result": _cut(self._redact(text), MAX_BYTES)}

    def describe_head(self, head: RequestHead, parts: Mapping[str, object]) -> Attributes:
        attributes: Attributes = {}
        system = parts.get(head.system)
        if isinstance(system, str) and system:
            attributes["gen_ai.system_instructions"] = self._encode([make_text(system)])
        tools = [parts.get(name) for name in head.tools]
        described = [tool for tool in tools if isinstance(tool, ToolDescription)]
        if described:
            definitions = [{"type": "function", **asdict(tool)} for tool in described]
            attributes["gen_ai.tool.definitions"] = self._encode(definitions)
        return attributes

    def _encode(self, value: object) -> str:
        """Encode a value as JSON of at most MAX_BYTES; longer texts in it are cut."""
        clean = map_texts(value, self._redact)
        longest = MAX_BYTES
        data = msgspec.json.encode(clean)
        while len(data) > MAX_BYTES and longest > _MIN_TEXT:
            longest //= 2
            limit = longest
            data = msgspec.json.encode(map_texts(clean, lambda text, n=limit: _cut(text, n)))
        if len(data) > MAX_BYTES:
            data = msgspec.json.encode({"cut": f"{len(data):,} bytes"})
        return data.decode()


def make_text(text: str) -> Message:
    return {"type": "text", "content": text}


def make_user_message(blocks: Iterable[TextBlock | ImageBlock]) -> Message:
    texts = [block.text if isinstance(block, TextBlock) else block.placeholder for block in blocks]
    return {"role": "user", "parts": [make_text(text) for text in texts]}


def make_tool_message(call_id: str, result: ToolResult) -> Message:
    response = append_placeholders(result.text, result.images)
    part = {"type": "tool_call_response", "id": call_id, "response": response}
    return {"role": "tool", "parts": [part]}


def _convert_block(block: AssistantBlock) -> list[Message]:
    if isinstance(block, TextBlock):
        return [make_text(block.text)]
    if isinstance(block, ToolCallBlock):
        arguments = get_sendable_arguments(block)
        return [{"type": "tool_call", "id": block.id, "name": block.name, "arguments": arguments}]
    if isinstance(block, ThinkingBlock):
        return [{"type": "reasoning", "content": block.text}] if block.text else []
    return [make_text(block.text)] if block.text else []


def _cut(text: str, limit: int) -> str:
    data = text.encode("utf-8", "replace")
    if len(data) <= limit:
        return text
    return data[: limit - len(_CUT)].decode("utf-8", "ignore") + _CUT


class RunSpans:
    """A run's span in this process, and the spans of its model calls and tool calls.

    Attributes:
        ids: ids of the session that executes the run, a different one in a fork.
        is_cut: true if the run's span has ended, but not the run.
        turn: span of the open model call.
        calls: spans of open tool calls, by call id.
        new_messages: messages for the next request.
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
        return self.span.span.context

    @property
    def attributes(self) -> Attributes:
        return self.span.attributes

    def make_context(self, span_id: int) -> SpanContext:
        return replace(self.context, span_id=span_id)

    def add_link(self, other: SpanContext) -> None:
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
        """Begin the run's span in another process; return the spans that this ends."""
        ended = self.cut(last_at)
        before = self.context
        if ids.session != self.ids.session:
            self.ids = ids  # a fork has its own trace
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
        """End the spans of the run and its model call; its tool calls stay open."""
        if self.is_cut:
            return []
        self.is_cut = True
        return [*self.end_turn(at, INTERRUPTED), *self.end_part(at, INTERRUPTED)]

    def end_part(self, at: float, error_type: str = "", error: str = "") -> list[Span]:
        """End the run's span. Its usage excludes its children's."""
        self.attributes.update(describe_usage(self._usage))
        if self.finish_reasons:
            self.attributes["gen_ai.response.finish_reasons"] = self.finish_reasons
        return [self.span.close(at, error_type, error)]

    def start_turn(self, number: int, at: float, attributes: Attributes) -> None:
        self._attempt = self._attempt + 1 if number == self._turn_number else 1
        self._turn_number = number
        span_id = self.ids.make_turn_span_id(self.brief.run_id, number, self._attempt)
        name = f"chat {attributes['gen_ai.request.model']}"
        self.turn = self._open_below(span_id, name, at, attributes, is_request=True)

    def add_answer(self, usage: Usage, finish_reasons: object) -> None:
        self._usage += usage
        if isinstance(finish_reasons, tuple):
            self.finish_reasons = finish_reasons

    def end_turn(self, at: float, error_type: str = "", error: str = "") -> list[Span]:
        turn = self.turn
        self.turn = None
        return [turn.close(at, error_type, error)] if turn else []

    def start_call(self, call_id: str, name: str, at: float, attributes: Attributes) -> OpenSpan:
        span_id = self.ids.make_call_span_id(self.brief.run_id, call_id)
        call = self._open_below(span_id, name, at, attributes)
        self.calls[call_id] = call
        return call

    def end_calls(self, at: float) -> list[Span]:
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
