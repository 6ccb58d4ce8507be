"""A run whose process died, built again from its events; and what is known of the calls it left open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from .._core.agents import Reason, Report
from .._core.events import (
    CallFinished,
    CallStarted,
    Changing,
    Resumed,
    RunFinished,
    Stored,
    Told,
    TurnFinished,
    TurnStarted,
)
from .._core.messages import Call, Result, Text, Usage, User
from .._core.tools import Effect, Tool, ToolResult
from .file_writes import fingerprint
from .run_context import CallContext, RunContext
from .structured_output import EMIT

INTERRUPTED = "Interrupted before it gave a result; whether it had an effect is unknown. Check before you repeat it."


async def recall(ctx: RunContext, events: Sequence[Stored]) -> None:
    """Bring a fresh context to where the events leave the run: conversation, meter, evidence, open calls, age."""
    calls, sent = dict[str, Call](), list[Text | Result]()
    for event in events:
        if isinstance(event, CallStarted):
            calls[event.call.id] = event.call
            ctx.begun.setdefault(event.call.id)
        elif isinstance(event, CallFinished):
            _finished(ctx, event, calls)
        elif isinstance(event, Changing):
            ctx.begun[event.call_id] = event
        else:
            _turned(ctx, event, sent)
    ctx.inbox[:0] = sent  # to a model whose answer the dead process did not hear: it is asked again
    ctx.began -= _age(events, _below(ctx) if "task" in ctx.tools else ())
    for tool in ctx.tools.values():
        if tool.remind:
            await _remember(ctx, tool, [call for call in calls.values() if call.name == tool.name])


def finished(events: Sequence[Stored]) -> Report | None:
    """The report of a run that ended, None for one that did not."""
    return events[-1].report if events and isinstance(events[-1], RunFinished) else None


def reconciled(ctx: RunContext, call: Call, tool: Tool) -> ToolResult | None:
    """What came of a call whose intent a dead process recorded; None when it may be run again."""
    if tool.effect is Effect.EFFECTFUL:
        return ToolResult(INTERRUPTED, error=True)
    change = ctx.begun[call.id]
    if change is None:
        return None
    ctx.parts.workspace.sweep(change.path)
    found = fingerprint(ctx.parts.workspace, change.path)
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


def _finished(ctx: RunContext, event: CallFinished, calls: Mapping[str, Call]) -> None:
    ctx.results[event.call_id] = Result(
        event.call_id, event.name, event.result.text, event.result.error
    )
    ctx.ended(event.call_id, event.name, event.result, refused=event.refused)
    if event.name == EMIT and not event.refused and (call := calls.get(event.call_id)):
        ctx.answers.emit(
            call.arguments.get("emit_variable_name", ""), call.arguments.get("emit_variable_value")
        )
    if (child := event.result.detail.get("run")) is not None:
        report = finished(ctx.parts.past.get(child, ()))
        usage, usd = (report.usage, report.usd) if report else (Usage(), 0.0)
        ctx.meter.inherit(1 + event.result.detail.get("below", 0), usage, usd)


def _turned(ctx: RunContext, event: Stored, sent: list[Text | Result]) -> None:
    if isinstance(event, Told):
        if ctx.unheeded and not ctx.unheeded.calls:
            ctx.unheeded = None
        ctx.inbox.append(Text(event.text))
    elif isinstance(event, TurnStarted):
        _close(ctx)
        ctx.unheeded, ctx.grace = None, event.grace
        ctx.final = "" if event.grace else ctx.final
        ctx.wrapping = ctx.stopping = event.grace is Reason.CANCELLED
        sent += ctx.inbox
        ctx.inbox = []
    elif isinstance(event, TurnFinished):
        if sent:
            ctx.chat.add(User(tuple(sent)))
            sent.clear()
        ctx.turn = event.turn
        ctx.meter.turns += 1
        ctx.charge(event.message)
        ctx.hear(event.message)


def _close(ctx: RunContext) -> None:
    if ctx.asked:
        ctx.guard.see(ctx.unheeded, ctx.results) if ctx.unheeded else 0
        ctx.answered()


def _below(ctx: RunContext) -> Iterator[Stored]:
    return (
        event
        for run, events in ctx.parts.past.items()
        if run.startswith(f"{ctx.run_id}.")
        for event in events
    )


def _age(events: Iterable[Stored], below: Iterable[Stored]) -> float:
    """Seconds the run, or one below it, was at work: the time in which no process was does not count."""
    moments = sorted(
        [
            *((event.at, isinstance(event, Resumed)) for event in events),
            *((event.at, False) for event in below),
        ]
    )
    age, last = 0.0, moments[0][0]
    for at, resumed in moments:
        age += 0.0 if resumed else at - last
        last = at
    return age


async def _remember(ctx: RunContext, tool: Tool, calls: Sequence[Call]) -> None:
    """Run a tool that keeps a memo once more on its last arguments: it is pure, and so the memo is what it was."""
    for call in calls[-1:]:
        try:
            await tool.run(CallContext(ctx, call), tool.parse(call.arguments))
        except ValueError:
            continue
