"""A run whose process died, built again from its events; and what is known of the calls it left open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from .._core.agents import Reason, Report
from .._core.events import (
    FileWriteIntended,
    NoteInjected,
    RunFinished,
    RunResumed,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
    TurnStarted,
)
from .._core.messages import TextBlock, ToolCallBlock, ToolResultBlock, Usage, UserMessage
from .._core.tools import Effect, Tool, ToolResult
from .file_writes import hash_file
from .run_context import CallContext, RunContext
from .structured_output import EMIT_TOOL

INTERRUPTED = "Interrupted before it gave a result; whether it had an effect is unknown. Check before you repeat it."


async def restore_run(ctx: RunContext, events: Sequence[StoredEvent]) -> None:
    """Bring a fresh context to where the events leave the run: conversation, meter, evidence, open calls, age."""
    calls, sent = dict[str, ToolCallBlock](), list[TextBlock | ToolResultBlock]()
    for event in events:
        if isinstance(event, ToolCallStarted):
            calls[event.call.id] = event.call
            ctx.started_calls.setdefault(event.call.id)
        elif isinstance(event, ToolCallFinished):
            _finished(ctx, event, calls)
        elif isinstance(event, FileWriteIntended):
            ctx.started_calls[event.call_id] = event
        else:
            _turned(ctx, event, sent)
    ctx.inbox[:0] = sent  # to a model whose answer the dead process did not hear: it is asked again
    ctx.started_at -= _age(events, _below(ctx) if "task" in ctx.tools else ())
    for tool in ctx.tools.values():
        if tool.remind:
            await _remember(ctx, tool, [call for call in calls.values() if call.name == tool.name])


def finished_report(events: Sequence[StoredEvent]) -> Report | None:
    """The report of a run that ended, None for one that did not."""
    return events[-1].report if events and isinstance(events[-1], RunFinished) else None


def resolve_interrupted(ctx: RunContext, call: ToolCallBlock, tool: Tool) -> ToolResult | None:
    """What came of a call whose intent a dead process recorded; None when it may be run again."""
    if tool.effect is Effect.EFFECTFUL:
        return ToolResult(INTERRUPTED, error=True)
    change = ctx.started_calls[call.id]
    if change is None:
        return None
    ctx.services.workspace.sweep(change.path)
    found = hash_file(ctx.services.workspace, change.path)
    if found == change.after:
        return ToolResult(
            f"{change.path} was changed as asked, right before an interruption.",
            changes=(change.path,),
        )
    if found == change.before:
        return None
    return ToolResult(
        f"{change.path} was changed by something else during an interruption. Read it again first.",
        error=True,
    )


def _finished(ctx: RunContext, event: ToolCallFinished, calls: Mapping[str, ToolCallBlock]) -> None:
    ctx.results[event.call_id] = ToolResultBlock(
        event.call_id, event.name, event.result.text, event.result.error
    )
    ctx.keep_outcome(event.call_id, event.name, event.result, refused=event.refused)
    if event.name == EMIT_TOOL and not event.refused and (call := calls.get(event.call_id)):
        ctx.outputs.emit(
            call.arguments.get("emit_variable_name", ""), call.arguments.get("emit_variable_value")
        )
    if (child := event.result.detail.get("run")) is not None:
        report = finished_report(ctx.services.past_events.get(child, ()))
        usage, usd = (report.usage, report.usd) if report else (Usage(), 0.0)
        ctx.meter.add_past_usage(1 + event.result.detail.get("below", 0), usage, usd)


def _turned(ctx: RunContext, event: StoredEvent, sent: list[TextBlock | ToolResultBlock]) -> None:
    if isinstance(event, NoteInjected):
        if ctx.pending_answer and not ctx.pending_answer.tool_calls:
            ctx.pending_answer = None
        ctx.inbox.append(TextBlock(event.text))
    elif isinstance(event, TurnStarted):
        _close(ctx)
        ctx.pending_answer, ctx.grace_reason = None, event.grace
        ctx.answer_text = "" if event.grace else ctx.answer_text
        ctx.is_wrapping_up = ctx.is_stopping = event.grace is Reason.CANCELLED
        sent += ctx.inbox
        ctx.inbox = []
    elif isinstance(event, TurnFinished):
        if sent:
            ctx.chat.append(UserMessage(tuple(sent)))
            sent.clear()
        ctx.turn = event.turn
        ctx.meter.turns += 1
        ctx.charge(event.message)
        ctx.append_answer(event.message)


def _close(ctx: RunContext) -> None:
    if ctx.open_calls:
        ctx.loop_detector.add_turn(ctx.pending_answer, ctx.results) if ctx.pending_answer else 0
        ctx.queue_results()


def _below(ctx: RunContext) -> Iterator[StoredEvent]:
    return (
        event
        for run, events in ctx.services.past_events.items()
        if run.startswith(f"{ctx.run_id}.")
        for event in events
    )


def _age(events: Iterable[StoredEvent], below: Iterable[StoredEvent]) -> float:
    """Seconds the run, or one below it, was at work: the time in which no process was does not count."""
    moments = sorted(
        [
            *((event.at, isinstance(event, RunResumed)) for event in events),
            *((event.at, False) for event in below),
        ]
    )
    age, last = 0.0, moments[0][0]
    for at, resumed in moments:
        age += 0.0 if resumed else at - last
        last = at
    return age


async def _remember(ctx: RunContext, tool: Tool, calls: Sequence[ToolCallBlock]) -> None:
    """Run a tool that keeps a memo once more on its last arguments: it is pure, and so the memo is what it was."""
    for call in calls[-1:]:
        try:
            await tool.run(CallContext(ctx, call), tool.parse(call.arguments))
        except ValueError:
            continue
