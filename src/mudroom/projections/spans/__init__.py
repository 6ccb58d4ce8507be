"""The spans of a session, built from its events: live or from the journal, with the same ids.

There is one trace for each root run. A run is a span `invoke_agent`; its model calls (`chat`) and
tool calls (`execute_tool`) are below it, and a child run is below the call that started it. A run
that continues in another process has one span for each process; the later one has a link to the
one before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

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
from ..._core.messages import TextBlock
from ..._core.runs import Reason
from ..._core.tool_names import normalize_tool_name
from ..safe_text import sanitize_line
from ..trace_ids import SpanContext, TraceIds
from .attributes import (
    INTERRUPTED,
    describe_answer,
    describe_call,
    describe_turn,
    find_call_error,
    make_span_event,
)
from .content import ContentCapture, make_tool_message, make_user_message
from .run_spans import RunSpans
from .span import OpenSpan, Span

__all__ = ["ContentCapture", "SessionSpans", "Span"]

_MAX_ERROR = 300
"""Characters."""


class SessionSpans:
    """Fold of a session's events into spans.

    Arguments:
        session: id of the session, for a record without its opening.
        capture: writes texts of prompts, answers and tool calls; None leaves them out.
        redact: removes secrets from the texts of errors.
    """

    def __init__(
        self,
        session: str = "",
        *,
        capture: ContentCapture | None = None,
        redact: Callable[[str], str] = str,
    ) -> None:
        self._ids = TraceIds(session)
        self._capture = capture
        self._redact = redact
        self._runs: dict[str, RunSpans] = {}
        self._last_roots: dict[str, SpanContext] = {}
        self._head_parts: dict[str, object] = {}
        self._last_at = 0.0

    def apply(self, event: AnyEvent) -> list[Span]:
        """Add the next event and return the spans that it ends."""
        if isinstance(event, Delta):
            return []
        ended: list[Span] = []
        if isinstance(event, SessionOpened):
            # Another process begins: runs that are open were cut off in the one before.
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
        """Return the spans of all events, those of work that has not ended last."""
        spans = [span for event in events for span in self.apply(event)]
        return spans + self.finish()

    def finish(self) -> list[Span]:
        """Return the open spans, as if they had been interrupted at the last event."""
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
        """Return the span above a run: the call that started it, its parent, or another program's.

        A call or a parent that is not known has the ids that it would have.
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
        if self._capture is None or not isinstance(event, RunStarted | RunResumed):
            return
        if event.head is None:
            return
        self._head_parts.update(event.head.parts)
        run.attributes.update(self._capture.describe_head(event.head, self._head_parts))

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
        run.add_answer(event.message.usage, attributes["gen_ai.response.finish_reasons"])
        if run.turn:
            run.turn.attributes.update(attributes)
            if self._capture:
                (reason,) = run.finish_reasons
                run.turn.attributes.update(self._capture.describe_output(event.message, reason))
        return run.end_turn(event.at)

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
