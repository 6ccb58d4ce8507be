"""Tool calls of one answer: order, permission, intent, action and result, stored in turn."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from enum import Enum, auto
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict, replace

from .._core.events import PermissionDecided, ToolCallFinished, ToolCallStarted
from .._core.json_values import find_json_fault
from .._core.messages import ToolCallBlock, clean_call
from .._core.ports import (
    ApprovalDecision,
    ApprovalRequest,
    Hooks,
    PermissionVerdict,
    ToolContext,
    ToolHookDecision,
)
from .._core.ports.hooks import check_hook_result
from .._core.tool_names import (
    FORWARDING_TOOL,
    REPLACEMENTS,
    SERVER_PREFIX,
    STAND_INS,
    add_implied_arguments,
    normalize_tool_name,
    split_editor_call,
)
from .._core.tools import Effect, Tool, ToolCategory, ToolResult, clean_result, join_reasons
from .._projections.engine_text import quote_appended, quote_hook
from .._projections.safe_text import make_call_title
from ..errors import MudroomError, UsageError, WorkspaceError, suggest_names
from .call_context import CallContext
from .changes.watch import ChangeWindow, WriteWindow, add_writes, explain_unwatched
from .conversation import INTERRUPTED, UNKNOWN_AFTER_CRASH, CallOutcome
from .evidence import keep_evidence
from .file_writes import hash_present
from .run_context import RunContext

QUICK_SECONDS = 1.0
"""A pure call is quick up to this duration: its result is stored with the next record.

Slower results are stored at once. After a crash, a quick call may run again (S3).
"""

STARTS_AT_ONCE = 32
"""Calls of one answer started per iteration of the event loop.

So the first of thousands of children work while the others start, and timers get their turn.
"""

ALL_FAILED = (
    "All tool calls of this turn failed. Read the errors, find the cause, and try another way."
)


async def run_tool_calls(run: RunContext) -> list[CallOutcome]:
    """Run the turn's calls that have no outcome yet, and queue all results for the model.

    Returns the outcomes in the order of the calls.
    """
    if not run.turn.calls:
        return []
    open_calls = run.turn.list_open_calls()
    if len(open_calls) == 1:
        [(position, call)] = open_calls
        await _run_call(run, position, prepare_call(run, call))
    elif open_calls:
        scheduler = CallScheduler()
        await _run_all(_start_call(run, scheduler, *each) for each in open_calls)
    outcomes = run.close_turn()
    for note in collect_reminders(run):
        run.add_note(note)
    failed = [outcome for outcome in outcomes if outcome.result.error]
    if len(failed) == len(outcomes):
        run.add_note(ALL_FAILED)
    return outcomes


def _start_call(
    run: RunContext, scheduler: CallScheduler, position: int, call: ToolCallBlock
) -> Coroutine[Any, Any, None]:
    prepared = prepare_call(run, call)
    lane = choose_lane(prepared)
    if lane is None:
        return _run_call(run, position, prepared)
    return _run_in_order(run, position, prepared, scheduler.reserve(lane))


async def _run_all(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run calls concurrently; `calls` makes each one when it starts."""
    try:
        async with asyncio.TaskGroup() as group:
            for count, call in enumerate(calls, 1):
                group.create_task(call)
                if count % STARTS_AT_ONCE == 0:
                    await asyncio.sleep(0)
    except BaseExceptionGroup as failures:
        # Only a failed journal or a fault in the engine gets here: it ends the session.
        raise failures.exceptions[0] from None


async def _run_in_order(run: RunContext, position: int, prepared: PreparedCall, slot: Slot) -> None:
    try:
        for event in slot.before:
            await event.wait()
        await _run_call(run, position, prepared)
    finally:
        slot.done.set()


async def _run_call(run: RunContext, position: int, prepared: PreparedCall) -> None:
    """Run one call: intent, act, result, each stored before the next depends on it (S1).

    There are three kinds of calls: live ones; those started by an earlier process, which are in
    `run.turn.started`; and those of a replay, with recorded tools, hooks and decisions
    (`recorded_work` is set).
    """
    # For a resumed call the hook has run: the record has the arguments it chose.
    if run.services.hooks and not prepared.refusal and prepared.call.id not in run.turn.started:
        prepared = await call_before_hook(run, run.services.hooks, prepared)
    # Checked again after a resume, as rules may have changed. A replay has the recorded decision.
    prepared = await check_permission(run, prepared)
    refusal = prepared.refusal
    context = CallContext(run, prepared.call, position)
    started_at = run.services.clock.monotonic()
    result = refusal
    if prepared.call.id not in run.turn.started:  # live, or replayed
        await _record_start(run, prepared, is_refused=refusal is not None)
    elif prepared.tool and not refusal:  # resumed: None if the call may run again
        result = resolve_interrupted(run, prepared.call, prepared.tool)
    if result is None:  # neither refused nor settled by what the earlier process left
        run.turn.working[prepared.call.id] = prepared.name, started_at
        result = await act_and_observe(context, prepared)
        if run.services.recorded_work is None:  # recorded results already have the engine's lines
            result = replace(result, text=quote_appended(result.text))
        result = warn_of_overlaps(run, prepared, result)
        if run.services.hooks:
            changed = await run.services.hooks.after_tool(run.brief, prepared.call, result)
            check_hook_result("after_tool", changed, ToolResult)
            result = keep_evidence(changed, result) if changed else result
            result = await _add_changes_of_hooks(run, run.services.hooks, result)
        result = cap_result(context, redact_result(run, result))
    seconds = round(run.services.clock.monotonic() - started_at, 3)
    if prepared.hook and prepared.hook.context:
        result = add_context(run, prepared.hook, result)
    if result.context:
        result = replace(result, context=quote_hook(result.context))
    result = clean_result(result)
    outcome = CallOutcome(prepared.call.id, prepared.name, result, refusal is not None)
    await _record_outcome(run, prepared, outcome, seconds)


async def _add_changes_of_hooks(run: RunContext, hooks: Hooks, result: ToolResult) -> ToolResult:
    if run.services.recorded_work is not None:
        return result  # a recorded result already has it
    if not (why := await hooks.explain_changes(run.brief)):
        return result
    return replace(result, unknown_changes=join_reasons(result.unknown_changes, why))


async def _record_start(run: RunContext, prepared: PreparedCall, *, is_refused: bool) -> None:
    """Store the start of a call; for a refused one, together with its outcome."""
    tool = prepared.tool
    started = run.recorder.make_event(
        ToolCallStarted,
        call=prepared.call,
        title=make_call_title(prepared.call.arguments, tool),
        view=tool.view if tool else "",
    )
    if is_refused:
        run.recorder.record_later(started, show=True)
    else:
        await run.recorder.record(started)


async def _record_outcome(
    run: RunContext, prepared: PreparedCall, outcome: CallOutcome, seconds: float
) -> None:
    run.turn.add(outcome)
    finished = run.recorder.make_event(
        ToolCallFinished,
        call_id=outcome.call_id,
        name=outcome.name,
        result=outcome.result,
        seconds=seconds,
        refused=outcome.refused,
    )
    is_pure = prepared.tool is not None and prepared.tool.effect is Effect.PURE
    if is_pure and seconds <= QUICK_SECONDS:
        run.recorder.record_later(finished, show=True)
    else:
        await run.recorder.record(finished)


class LaneKind(Enum):
    READING = auto()  # changes nothing: its calls run concurrently
    KEYED = auto()  # changes one thing: its calls run in turn
    PARALLEL = auto()  # a single effectful call whose tool has `is_parallel`
    EXCLUSIVE = auto()  # may change anything: no other ordered call runs beside it


class Lane(NamedTuple):
    """Determines which calls of an answer wait for which. `name`: what it changes, or its id."""

    # A name alone is not enough: a file could be called like another kind of lane.
    kind: LaneKind
    name: str | None = None


_READING_LANE = Lane(LaneKind.READING)
_EXCLUSIVE_LANE = Lane(LaneKind.EXCLUSIVE)


def choose_lane(prepared: PreparedCall) -> Lane | None:
    """Choose a call's lane; None if it neither waits for others nor delays them."""
    tool = prepared.tool
    if tool is None or prepared.refusal:
        return None
    if tool.effect is Effect.PURE:
        # `wait` may depend on the effect of a later call, such as an answer to a message.
        return None if tool.category is ToolCategory.AGENT else _READING_LANE
    if tool.effect is Effect.EFFECTFUL:
        return Lane(LaneKind.PARALLEL, prepared.call.id) if tool.is_parallel else _EXCLUSIVE_LANE
    key = tool.get_key(prepared.arguments)
    return None if key is None else Lane(LaneKind.KEYED, key)


class Slot(Struct):
    """A call's place in the schedule: events to wait for, and the event to set when it ends."""

    before: Sequence[asyncio.Event]
    done: asyncio.Event


class CallScheduler:
    """Orders the calls of one answer.

    The model reads the results as if its calls had run in order. So a call that changes something
    waits for earlier ones that read, and a call that reads waits for earlier ones that change
    something. Without that, a file written and read in one answer "does not exist" (as reported for
    several agents that run all reading calls first).

    Reading calls run concurrently, and so do keyed calls with different keys. Effectful calls whose
    tools have `is_parallel` wait only for earlier calls that may change anything.
    """

    def __init__(self) -> None:
        self._changing: dict[Lane, asyncio.Event] = {}
        self._reading: list[asyncio.Event] = []

    def reserve(self, lane: Lane) -> Slot:
        """Return the slot for the next call in a lane; see `choose_lane`."""
        slot = Slot(self._list_before(lane), asyncio.Event())
        if lane.kind is LaneKind.READING:
            self._reading.append(slot.done)
            return slot
        if lane.kind is LaneKind.EXCLUSIVE:  # everything earlier is over when this call begins
            self._changing = {}
            self._reading = []
        self._changing[lane] = slot.done
        return slot

    def _list_before(self, lane: Lane) -> list[asyncio.Event]:
        changing = self._changing
        match lane.kind:
            case LaneKind.READING:
                events = changing.items()
                return [done for other, done in events if other.kind is not LaneKind.PARALLEL]
            case LaneKind.EXCLUSIVE:
                return [*changing.values(), *self._reading]
            case LaneKind.KEYED | LaneKind.PARALLEL:
                before = [changing[each] for each in (lane, _EXCLUSIVE_LANE) if each in changing]
                return before if lane.kind is LaneKind.PARALLEL else [*before, *self._reading]


async def call_before_hook(run: RunContext, hooks: Hooks, prepared: PreparedCall) -> PreparedCall:
    """Return the call as changed or refused by a hook. A refusal is stored."""
    decision = await hooks.before_tool(run.brief, prepared.call)
    check_hook_result("before_tool", decision, ToolHookDecision)
    if decision is None:
        return prepared
    if decision.denial:
        return await _refuse(run, prepared, decision)
    return _change_arguments(run, prepared, decision)


async def _refuse(
    run: RunContext, prepared: PreparedCall, decision: ToolHookDecision
) -> PreparedCall:
    """Mark a call as refused by a hook, and store the refusal."""
    verdict = PermissionVerdict("deny", decision.denial, rule=decision.rule)
    await _record_decision(run, prepared, verdict, ApprovalDecision(False))
    text = _explain_denial(prepared.name, verdict, ApprovalDecision(False))
    return replace(refuse_call(prepared.call, prepared.tool, text), hook=decision)


def _change_arguments(
    run: RunContext, prepared: PreparedCall, decision: ToolHookDecision
) -> PreparedCall:
    if decision.arguments is None:
        return replace(prepared, hook=decision)
    if fault := find_json_fault(decision.arguments):
        text = f"a hook gave arguments that cannot be recorded: {fault}"
        raise UsageError(text, where=prepared.name)
    call = replace(prepared.call, arguments=decision.arguments)
    return replace(prepare_call(run, clean_call(call)), hook=decision)


def add_context(run: RunContext, decision: ToolHookDecision, result: ToolResult) -> ToolResult:
    texts = filter(None, (run.services.redact(decision.context), result.context))
    return replace(result, context="\n".join(texts))


async def check_permission(run: RunContext, prepared: PreparedCall) -> PreparedCall:
    """Return the call, refused if a rule, the mode, a hook or the approver denies it.

    Decisions are stored. A hook may answer for the approver with changed arguments, which are then
    checked against the rules again.
    """
    if prepared.tool is None or prepared.refusal:
        return prepared
    verdict = _judge(run, prepared)
    if verdict.verdict == "allow":
        return prepared
    decision = ApprovalDecision(False)
    if verdict.verdict == "ask":
        if prepared.hook and prepared.hook.verdict == "allow" and not verdict.rule:
            decision = ApprovalDecision(True, prepared.hook.why)
            verdict = replace(verdict, rule=prepared.hook.rule)
        else:
            prepared, verdict, decision = await _ask(run, prepared, verdict)
    if prepared.refusal:
        return prepared
    await _record_decision(run, prepared, verdict, decision)
    if decision.allowed:
        return prepared
    if run.services.hooks:
        why = decision.why or verdict.why
        await run.services.hooks.on_permission_denied(run.brief, prepared.call, why)
    text = _explain_denial(prepared.name, verdict, decision)
    return replace(prepared, refusal=ToolResult(text, error=True))


def _judge(run: RunContext, prepared: PreparedCall) -> PermissionVerdict:
    """Return the policy's verdict; a hook may require that someone confirms the call."""
    assert prepared.tool is not None
    verdict = run.environment.policy.judge(
        prepared.call, prepared.tool, prepared.checked_arguments, run.brief
    )
    hook = prepared.hook
    if hook and hook.verdict == "ask" and verdict.verdict == "allow":
        return PermissionVerdict("ask", hook.why, rule=hook.rule)
    return verdict


async def _ask(
    run: RunContext, prepared: PreparedCall, verdict: PermissionVerdict
) -> tuple[PreparedCall, PermissionVerdict, ApprovalDecision]:
    """Ask the hooks, then the approver; return the call, the verdict and the decision."""
    answer = None
    if hooks := run.services.hooks:
        answer = await hooks.on_permission_request(run.brief, prepared.call, verdict.why)
        check_hook_result("on_permission_request", answer, ToolHookDecision)
    if answer is None or not (answer.denial or answer.verdict == "allow"):
        decision = await _ask_approver(run, prepared, verdict)
        if decision.arguments is None or not decision.allowed:
            return prepared, verdict, decision
        answer = ToolHookDecision(
            verdict="allow", arguments=decision.arguments, why=decision.why, rule=verdict.rule
        )
    if answer.denial:
        verdict = replace(verdict, rule=answer.rule)
        return prepared, verdict, ApprovalDecision(False, answer.denial)
    prepared = _change_arguments(run, prepared, answer)
    if prepared.refusal is None and answer.arguments is not None:
        verdict = _judge(run, prepared)
        if verdict.verdict == "deny":
            return prepared, verdict, ApprovalDecision(False)
    verdict = replace(verdict, verdict="ask", rule=answer.rule)
    return prepared, verdict, ApprovalDecision(True, answer.why)


async def _record_decision(
    run: RunContext,
    prepared: PreparedCall,
    verdict: PermissionVerdict,
    decision: ApprovalDecision,
) -> None:
    event = run.recorder.make_event(
        PermissionDecided,
        call_id=prepared.call.id,
        name=prepared.name,
        verdict=verdict.verdict,
        allowed=decision.allowed,
        policy_reason=verdict.why,
        approver_reason=decision.why,
        rule=verdict.rule,
        command_part=verdict.command_part,
    )
    await run.recorder.record(event)


def _explain_denial(name: str, verdict: PermissionVerdict, decision: ApprovalDecision) -> str:
    reasons = [verdict.why, verdict.rule]
    if verdict.verdict == "ask":
        reasons.insert(0, decision.why or "the user said no")
    if verdict.command_part:
        reasons.append(f"in: {verdict.command_part[:MAX_QUOTED_ARGUMENTS]}")
    why = "; ".join(filter(None, reasons))
    return f"{name} was not allowed: {why}. Find another way, or do without."


async def _ask_approver(
    run: RunContext, prepared: PreparedCall, verdict: PermissionVerdict
) -> ApprovalDecision:
    """Ask the approver while the clocks of the run and its ancestors are stopped."""
    assert prepared.tool is not None
    tool = prepared.tool
    arguments = prepared.checked_arguments
    await run.recorder.record()  # the answer may take hours; the user reads the text before it
    workspace = run.environment.workspace
    change = await run.services.in_thread(tool.list_proposed, workspace, arguments)
    request = ApprovalRequest(
        run.brief.run_id,
        run.brief.agent.name,
        prepared.name,
        arguments,
        verdict.why,
        prepared.call.id,
        verdict.command_part,
        tool.category,
        change,
        run.brief.name,
    )
    with run.meter.pause():
        return await run.services.approver.decide(request)


def collect_reminders(run: RunContext) -> list[str]:
    makers = [tool.make_reminder for tool in run.tools.values() if tool.make_reminder]
    reminders = [run.evidence.board_reminder.make_text(run.turn.number)]
    if makers:
        context = CallContext(run)
        reminders += [make_reminder(context) or "" for make_reminder in makers]
    return [text for text in reminders if text]


OUTPUT_CAP = 50_000  # characters of a result for the model; a spill file has all of it
_SPILL_NOTICE_CHARACTERS = 400  # of OUTPUT_CAP, for the notice between head and tail


async def act_and_observe(context: CallContext, prepared: PreparedCall) -> ToolResult:
    """Run the tool; return its result with the files it changed."""
    services = context.run.services
    watch = services.change_watch
    tool = prepared.tool
    call_id = prepared.call.id
    assert tool is not None
    if tool.effect is Effect.PURE:
        return add_writes(await run_tool(tool, context, prepared.arguments), context.writes)
    # If the call is cut off, ending the run closes its window.
    windows = context.run.evidence.open_windows
    unwatched = ""
    if services.recorded_work is None:  # recorded results already have their reasons
        unwatched = explain_unwatched(tool, context.sandbox.tier)
    if watch and tool.effect is Effect.EFFECTFUL:
        workspace = context.run.environment.workspace
        windows[call_id] = window = ChangeWindow(
            watch, workspace, context.writes, context.run.run_id, unwatched
        )
        await window.start()
    else:
        windows[call_id] = WriteWindow(context.writes, unwatched)
    result = await run_tool(tool, context, prepared.arguments)
    result = await windows[call_id].close(result)  # the task tool may have replaced the window
    del windows[call_id]
    return result


async def run_tool(tool: Tool, context: ToolContext, arguments: object) -> ToolResult:
    """Run a tool. Exceptions become error results, except a cancel of the current task."""
    name = tool.name
    try:
        result = await tool.run(context, arguments)
        if not isinstance(result, ToolResult):
            raise TypeError(f"it returned {type(result).__name__}, not ToolResult")
        return result
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        cause = str(error) or "something it waited for was cancelled"
        return ToolResult(f"{name} failed: {cause}", error=True)
    except MudroomError as error:
        return ToolResult(str(error), error=True)
    except Exception as error:  # noqa: BLE001  a tool may raise anything; the model reads the error
        return ToolResult(f"{name} failed: {type(error).__name__}: {error}", error=True)


def warn_of_overlaps(run: RunContext, prepared: PreparedCall, result: ToolResult) -> ToolResult:
    overlaps = run.services.live_overlaps
    if not overlaps:
        return result
    paths = [*result.reads, *result.changes, *result.observed_changes]
    if prepared.tool and prepared.tool.path_argument:
        path = prepared.checked_arguments.get(prepared.tool.path_argument)
        if isinstance(path, str) and path:
            with suppress(WorkspaceError):
                paths.append(run.environment.workspace.locate(path))
    return overlaps.warn(run.run_id, paths, result)


def redact_result(run: RunContext, result: ToolResult) -> ToolResult:
    redact = run.services.redact
    # One pass over all texts usually finds no secret.
    texts = (result.text, result.display, result.context)
    joined = "\0".join(texts)
    if redact(joined) == joined:
        return result
    text, display, context = map(redact, texts)
    return replace(result, text=text, display=display, context=context)


def cap_result(context: CallContext, result: ToolResult) -> ToolResult:
    """Cut a result longer than OUTPUT_CAP to head and tail; a spill file gets all of it."""
    text = result.text
    if len(text) <= OUTPUT_CAP:
        return result
    path = result.spill
    if not path:
        path = context.spill_path("output")
        with open(path, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
    half = (OUTPUT_CAP - _SPILL_NOTICE_CHARACTERS) // 2
    notice = (
        f"\n\n[… {len(text) - 2 * half:,} characters left out; the whole is in {path}: "
        "read it with offset and limit …]\n\n"
    )
    return replace(result, text=text[:half] + notice + text[-half:], spill=path)


MAX_QUOTED_ARGUMENTS = 200  # characters of malformed arguments or a command in an error message


class PreparedCall(Struct, frozen=True):
    """A tool call after lookup and checks: it can run, or `refusal` says why not."""

    call: ToolCallBlock
    tool: Tool | None = None
    arguments: Any = None
    refusal: ToolResult | None = None
    hook: ToolHookDecision | None = None

    @property
    def name(self) -> str:
        """The tool's name; the name in the call if there is no such tool."""
        return self.tool.name if self.tool else self.call.name

    @property
    def checked_arguments(self) -> dict[str, Any]:
        if isinstance(self.arguments, Struct):
            return asdict(self.arguments)
        return self.call.arguments


def prepare_call(run: RunContext, call: ToolCallBlock) -> PreparedCall:
    """Look up a call's tool and check its arguments; faults become error results."""
    if call.name not in run.tools and not call.malformed:
        try:
            meant = split_editor_call(call.name, call.arguments)
        except ValueError as error:
            return refuse_call(call, None, f"Invalid arguments for {call.name}: {error}")
        if meant:
            call = replace(call, name=meant[0], arguments=meant[1])
    name = call.name if call.name in run.tools else normalize_tool_name(call.name)
    if name not in run.tools and name in STAND_INS:
        name, arguments = STAND_INS[name]
        call = replace(call, arguments=arguments)
    tool = run.find_tool(call, name)
    if tool is None:
        hint = _find_replacement(run, name) or suggest_names(call.name, run.tools)
        if name.startswith(SERVER_PREFIX) and FORWARDING_TOOL in run.tools:
            hint = f"Find it with mcp_find, and call it with {FORWARDING_TOOL}."
        return refuse_call(call, None, f"There is no tool {call.name!r} here. {hint}")
    if call.malformed:
        quoted = call.malformed[:MAX_QUOTED_ARGUMENTS]
        text = f"The arguments of {name} were not a JSON object: {quoted!r}."
        return refuse_call(call, tool, f"{text} Send the call again with valid JSON.")
    try:
        if tool.forward:
            name, arguments = tool.forward(call.arguments)
            return prepare_call(run, replace(call, name=name, arguments=arguments))
        sent = add_implied_arguments(call.name, call.arguments)
        arguments = tool.read_arguments(sent, called=call.name)
        _read_path(run, call, tool.path_argument, arguments)
        return PreparedCall(replace(call, arguments=arguments), tool, tool.parse(arguments))
    except (ValueError, TypeError) as error:
        from .._core.schemas import explain_mismatch

        reason = explain_mismatch(error, tool.parameters)
        return refuse_call(call, tool, f"Invalid arguments for {name}: {reason}")


def _find_replacement(run: RunContext, name: str) -> str:
    """Suggest how the run can do what another program's tool does; "" if it cannot, or unknown."""
    text, needed = REPLACEMENTS.get(name.lower(), ("", ()))
    if any(tool not in run.tools for tool in needed):
        return ""
    arguments = (
        f"{tool} takes {', '.join(run.tools[tool].parameters['properties'])}." for tool in needed
    )
    return " ".join((text, *arguments))


def _read_path(run: RunContext, call: ToolCallBlock, name: str, arguments: dict[str, Any]) -> None:
    """Expand or refuse a path in the arguments before rules are checked or anyone sees it.

    Raises ValueError.
    """
    path = arguments.get(name)
    if not isinstance(path, str):
        return
    try:
        arguments[name] = run.read_path(call.id, name, path)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def refuse_call(call: ToolCallBlock, tool: Tool | None, text: str) -> PreparedCall:
    return PreparedCall(call, tool, refusal=ToolResult(text, error=True))


def resolve_interrupted(run: RunContext, call: ToolCallBlock, tool: Tool) -> ToolResult | None:
    """Settle a call that an earlier process started; None if it may run again."""
    if tool.effect is Effect.EFFECTFUL:
        return ToolResult(INTERRUPTED, error=True, unknown_changes=UNKNOWN_AFTER_CRASH)
    write = run.turn.started[call.id]
    if write is None:
        return None
    workspace = run.environment.workspace
    workspace.remove_unfinished(write.path)
    if tool.needs_children:
        return None  # it merges the child's files; the call continues that
    current = hash_present(workspace, write.path, write.before, write.after)
    if current == write.after:
        text = f"{write.path} was changed as asked, right before an interruption."
        return ToolResult(text, changes=(write.path,))
    if current == write.before:
        return None
    text = (
        f"{write.path} was changed by something else during an interruption. Read it again first."
    )
    return ToolResult(text, error=True)
