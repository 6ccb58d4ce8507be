"""The loop that every run executes: call the model, run its tool calls, until it asks for none."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from .._core.agents import WorkspaceKind
from .._core.budgets import LimitState
from .._core.events import NoteInjected, RunResumed, RunStarted, TurnStarted
from .._core.messages import AssistantMessage, StopReason
from .._core.ports.hooks import check_hook_result
from .._core.runs import InboxMessage, Reason, Report
from .._platform.time_limits import time_limit
from ..errors import ContextOverflow, JournalError, ModelError, StoppedByHook, shorten_text
from .context_policy import choose_next_check
from .conversation import CallOutcome
from .finish import (
    INCOMPLETE_ANSWER,
    SUMMARY_CALLS_NO_TOOLS,
    Ending,
    close_open_calls,
    end_by_limit,
    end_interrupted_turn,
    explain_unstarted_run,
    find_recorded_limit,
    finish_run,
    wait_for_next_prompt,
)
from .loop_detection import STOP_AFTER, WARN_AFTER
from .meters.meter import NEAR_LIMIT
from .model_call import call_model, reserve_request
from .phase import Resumption
from .run_context import RunContext
from .structured_output import EMIT_TOOL, MAX_REMINDERS

EMPTY_ANSWER = "Your answer was empty. Call a tool, or write your final answer."
STOPPED_ANSWER = (
    "Your answer stopped before it was complete{reason}. "
    "Continue; write a call that you began again."
)
CUT_ANSWER = (
    "Your answer was cut off after {tokens:,} tokens. It may be longer now: write it again, whole."
)
MAX_ASKED = 9
"""How often in a row the engine may ask for another answer; hook programs may ask 8 times."""
ASKED_AGAIN = (
    "the model was asked {count} times in a row to go on, and did nothing; the last time: {note}"
)
_MAX_NOTE = 500  # characters of the engine's note that a report quotes

MOVED = (
    "The project has moved from {former} to {folder}. Where this conversation names a path in the "
    "old folder, use the same path in the new one."
)
MAX_STOPPED = 3  # consecutive answers that stop early until the run ends


async def execute(
    run: RunContext, *, failure: str = "", failure_reason: Reason = Reason.ERROR
) -> Report:
    """Execute a run to its end and return its report.

    A failure inside the run becomes the report's reason. `failure` says why the run cannot work: it
    then starts or resumes only to end. Raises JournalError at once. A root run raises any other
    exception from an adapter after its report is stored.
    """
    overlaps = run.services.live_overlaps
    if overlaps is not None and run.brief.workspace.kind is WorkspaceKind.SHARED:
        overlaps.start(run.run_id, run.brief.name)
    try:
        ending = explain_unstarted_run(run, await _reach_ending(run, failure, failure_reason))
        run.control.end()
        report = await finish_run(run, ending)
    finally:
        if overlaps is not None:
            overlaps.end(run.run_id)
    if ending.exception and not run.brief.parent:
        raise ending.exception
    return report


async def _reach_ending(run: RunContext, failure: str, failure_reason: Reason) -> Ending:
    try:
        resumption = await start_or_resume(run)
        if failure:
            return Ending(failure_reason, failure)
        if (reason := resumption.summary_reason) is not None:
            is_own = not resumption.is_stopped_from_outside
            limit = find_recorded_limit(run, reason) if is_own else None
            return Ending(reason, limit=limit, is_summary_requested=True)
        async with time_limit(None) as deadline:
            run.timer.start_deadline(deadline)
            if resumption.is_interrupted:
                run.control.restore_interrupt()
                await wait_for_next_prompt(run)
            return await take_turns(run, resumption.pending_answer)
    except TimeoutError as error:
        # The run's own deadline has no text; anyone else who gives up says what took too long.
        limit = None if str(error) else run.timer.limit
        return Ending(Reason.TIMEOUT, str(error), limit=limit)
    except (ModelError, StoppedByHook) as error:
        return Ending(Reason.ERROR, str(error))
    except asyncio.CancelledError:
        run.control.clear_cancel()
        return Ending(run.control.stop_reason)
    except JournalError:
        raise
    except Exception as error:  # noqa: BLE001  after any exception the run must end (S10)
        return Ending(Reason.ERROR, f"{type(error).__name__}: {error}", error)
    finally:
        run.timer.deadline = None
        run.meter.end_request()


def _make_resumed_event(run: RunContext) -> RunResumed:
    spec = run.brief.workspace
    machine = spec.machine if spec.kind is WorkspaceKind.ISOLATED else None
    return run.recorder.make_event(RunResumed, head=run.describe_head(), machine=machine)


async def start_or_resume(run: RunContext) -> Resumption:
    """Record the start of the run, or restore it from an earlier process's events."""
    past = run.services.past_events.get(run.run_id)
    if past:
        from .resume import restart_background_work, restore_run

        resumption = await restore_run(run, past)
        await run.recorder.record(_make_resumed_event(run))
        _tell_new_folder(run, run.run_id)
        await restart_background_work(run)
        if not any(isinstance(event, NoteInjected | TurnStarted) for event in past):
            await _call_start_hook(run)
        return resumption
    brief = replace(run.brief, history=()) if run.brief.continues else run.brief
    head = run.describe_head()
    await run.recorder.record(run.recorder.make_event(RunStarted, brief=brief, head=head))
    _tell_new_folder(run, run.brief.continues)
    if run.services.teams.roster.list_teammates(run.run_id) and not run.brief.is_compaction:
        from .children.start_child import open_team

        await open_team(run).start_due()
    await _call_start_hook(run)
    return Resumption()


def _tell_new_folder(run: RunContext, earlier: str) -> None:
    """Tell the model where the project is now, if it has moved since the conversation began.

    `earlier` is the recorded run whose conversation continues, "" for none.
    """
    if former := run.services.former_folders.get(earlier):
        folder = run.environment.folder or run.environment.workspace.root
        text = MOVED.format(former=former, folder=folder)
        run.inbox.put(InboxMessage(f"{run.run_id}:moved:{former}", text, "mudroom"))


async def _call_start_hook(run: RunContext) -> None:
    hooks = run.services.hooks
    if hooks is None:
        return
    async with time_limit(None) as deadline:  # a hanging hook uses up the run's time
        run.timer.start_deadline(deadline)
        if run.brief.is_compaction:
            name, result = "before_compaction", await hooks.before_compaction(run.brief)
        elif run.brief.parent:
            name, result = "on_run_start", await hooks.on_run_start(run.brief)
        else:
            name, result = "on_prompt", await hooks.on_prompt(run.brief)
    run.timer.deadline = None
    if note := check_hook_result(name, result, str):
        run.add_note(note, origin="hook")


async def take_turns(run: RunContext, pending: AssistantMessage | None) -> Ending:
    """Take turns until the run is done or a limit is exceeded.

    `pending` is an answer that an earlier process received but did not finish handling.
    """
    while True:
        last_turn = run.turn.number
        counted_turns = run.meter.turns
        try:
            ending = await _take_turn(run, pending)
            if ending and ending.reason is not Reason.GOAL:
                # Store what ended the run while a stop can still strike: if this process is killed
                # before it stores the report, the next one ends the run again from this record.
                await run.recorder.record()
            if ending:
                return ending
            pending = None
        except asyncio.CancelledError:
            if not run.is_interrupted:
                raise
            pending = None
            await end_interrupted_turn(run, last_turn, counted_turns)
            await wait_for_next_prompt(run)


async def _take_turn(run: RunContext, pending: AssistantMessage | None) -> Ending | None:
    if pending is None:
        if ending := _judge_asked(run):
            return ending
        await prepare_request(run)
        if limit := await reserve_request(run):
            return end_by_limit(run, limit)
        await run.deliver_messages()
        warn_near_limit(run)
    answer = pending or await call_within_window(run)
    return await _act_and_judge(run, answer) if answer else None


async def _act_and_judge(run: RunContext, answer: AssistantMessage) -> Ending | None:
    if run.brief.is_compaction and answer.tool_calls:
        return await _refuse_calls_of_summary(run, answer)
    from .tool_calls import run_tool_calls

    outcomes = await run_tool_calls(run)
    ending = judge(run, answer, outcomes)
    if ending and ending.reason is Reason.GOAL:
        ending = await _confirm_goal(run, ending)
    if not (outcomes or ending):
        if not run.inbox.has_unread:
            run.conversation.in_a_row.asked += 1
        # Show this turn before the next one starts.
        await run.recorder.record()
    return ending


async def _refuse_calls_of_summary(run: RunContext, answer: AssistantMessage) -> Ending | None:
    """Refuse the tool calls of a run that summarises the conversation.

    Its requests offer tools because a provider's cache matches only an identical prefix. Any words
    next to the calls are the summary: another request would only buy them again.
    """
    await close_open_calls(run, SUMMARY_CALLS_NO_TOOLS, refused=True)
    await run.recorder.record()
    return Ending(Reason.GOAL) if answer.text.strip() else None


async def _confirm_goal(run: RunContext, goal: Ending) -> Ending | None:
    """Return the ending of a run that has reached its goal, or None if it must continue.

    It continues after refused outputs, a hook's note or a new message, and while background
    commands run. While a background child is working, it first waits for a message. If its check
    fails, the run has not reached its goal.
    """
    if await run.background.wait_for_message():
        return None
    if run.brief.agent.outputs:
        checks = run.services.output_checks
        if refusal := await checks.find_refusal(run.run_id, run.outputs.values):
            run.refuse_outputs(refusal)
            return None
    if warning := run.background.take_warning():
        run.add_note(warning)
        return None
    note = ""
    if hooks := run.services.hooks:
        note = await hooks.before_finish(run.brief, run.conversation.answer_text)
        check_hook_result("before_finish", note, str)
    if note:
        run.add_note(note, origin="hook")
    if note or run.inbox.has_unread:
        return None
    if (check := run.brief.check) is None:
        return goal
    from .children.checks import explain_failed_check

    error = await explain_failed_check(run, check)
    return Ending(Reason.ERROR, error) if error else goal


def judge(run: RunContext, answer: AssistantMessage, outcomes: list[CallOutcome]) -> Ending | None:
    repeats = run.loop_detector.add_turn(answer, outcomes)
    ending = _judge_calls(run, outcomes) if outcomes else _judge_final_answer(run, answer)
    if ending:
        return ending
    if repeats >= STOP_AFTER:
        return Ending(Reason.LOOP)
    if repeats % WARN_AFTER == 0:
        run.add_note(run.loop_detector.make_warning(repeats))
    return None


def _judge_asked(run: RunContext) -> Ending | None:
    """Return the ending of a run refused too often, or asked too many times in a row.

    Otherwise a model that only talks would be asked for ever, for whatever reason (an empty or cut
    answer, a hook, a reminder). Each reason may have a narrower bound as well. The counts are
    judged before a request, so that a process that restores them also ends the run here.
    """
    if ending := _judge_refusals(run):
        return ending
    if run.conversation.in_a_row.asked <= MAX_ASKED or run.inbox.has_unread:
        return None
    note = shorten_text(run.conversation.queued_note or "", _MAX_NOTE)
    error = ASKED_AGAIN.format(count=MAX_ASKED, note=note)
    return Ending(Reason.ERROR, error)


def _judge_calls(run: RunContext, outcomes: list[CallOutcome]) -> Ending | None:
    """Return the ending after an answer with tool calls, whose outputs may be complete.

    If another call failed, the model reads its error first: there may be more to do.
    """
    if run.outputs.is_complete and not any(
        each.result.error for each in outcomes if each.name != EMIT_TOOL
    ):
        return Ending(Reason.GOAL)
    if run.outputs.has_too_many_repeats:
        is_missing = bool(run.outputs.missing)
        return Ending(Reason.ERROR, run.outputs.give_up()) if is_missing else Ending(Reason.GOAL)
    return _judge_refusals(run)


def _judge_refusals(run: RunContext) -> Ending | None:
    # With complete outputs, only optional ones were refused, and the model has to deal with what
    # still keeps the run open, such as a failed call or a message.
    if run.outputs.has_too_many_refusals and not run.outputs.is_complete:
        return Ending(Reason.ERROR, run.outputs.give_up())
    return None


def _judge_final_answer(run: RunContext, answer: AssistantMessage) -> Ending | None:
    """Return the ending after an answer without tool calls.

    An incomplete answer is an error; one stopped by the provider, only after MAX_STOPPED in a row.
    An empty one is an error the second time in a row.
    """
    if run.conversation.cut.may_be_longer:
        run.add_note(CUT_ANSWER.format(tokens=answer.usage.output_tokens))
        return None
    if answer.stop_reason is StopReason.LENGTH and (limit := _find_cutting_limit(run, answer)):
        return end_by_limit(run, limit)
    own_reason = f" ({answer.provider_stop_reason})" if answer.provider_stop_reason else ""
    if answer.stop_reason is StopReason.OTHER and run.conversation.in_a_row.stopped < MAX_STOPPED:
        run.add_note(STOPPED_ANSWER.format(reason=own_reason))
        return None
    if error := INCOMPLETE_ANSWER.get(answer.stop_reason):
        return Ending(Reason.ERROR, error + own_reason)
    text = run.conversation.answer_text
    run.outputs.take_text(text)
    if reminder := run.outputs.reminder:
        return _remind(run, reminder)
    if run.inbox.has_unread:
        return None
    if text or run.outputs.is_complete or run.background.keeps_run_open:
        return Ending(Reason.GOAL)
    if run.conversation.in_a_row.empty > 1:
        return Ending(Reason.ERROR, "the model gave an empty answer twice")
    run.add_note(EMPTY_ANSWER)
    return None


def _remind(run: RunContext, reminder: str) -> Ending | None:
    """Remind the model of its outputs, unless it has been reminded often enough."""
    if run.outputs.reminder_count >= MAX_REMINDERS:
        return Ending(Reason.ERROR, run.outputs.give_up())
    run.outputs.reminder_count += 1
    run.add_note(reminder)
    return None


def _find_cutting_limit(run: RunContext, answer: AssistantMessage) -> LimitState | None:
    """Return the limit that cut an answer short, None if the model stopped by itself."""
    permit = run.meter.permit
    if permit is None or permit.max_tokens is None or permit.cut_by is None:
        return None
    is_cut = answer.usage.output_tokens >= permit.max_tokens
    return (run.meter.find_exceeded_limit(run.timer.age) or permit.cut_by) if is_cut else None


def warn_near_limit(run: RunContext) -> None:
    """Add a note, once, when the run gets close to a limit."""
    if state := run.meter.take_warning(run.timer.age):
        run.add_note(NEAR_LIMIT.format(limit=state.name.replace("_", " ")))


async def prepare_request(run: RunContext) -> None:
    """Show the user's new messages to the hooks, and shorten the conversation if necessary.

    It is necessary if the next request may be, or was refused as, too long.

    Raises ContextOverflow if a refused request cannot be made shorter, and StoppedByHook.
    """
    if run.services.hooks:
        if run.conversation.shortening.awaits_hook:
            from .compaction.compactor import call_compaction_hook

            await call_compaction_hook(run)
        await run.judge_messages()
    if not await _must_shorten(run):
        return
    from .compaction.shortening import shorten_conversation

    await shorten_conversation(run)


async def _must_shorten(run: RunContext) -> bool:
    """Return whether the conversation must be shortened. In most turns this is all the work."""
    state = run.conversation.shortening
    if state.overflow_error or run.services.recorded_edits is not None:
        return True
    if state.requested_focus is not None:
        return True
    is_first = not run.turn.number and not run.brief.history
    size = 0 if is_first else run.estimate_request_tokens()
    if is_first or size < state.next_check:
        return False
    policy = run.services.context_policy
    # A summary run reads the whole conversation: the window's reserve exists for it.
    if run.brief.is_compaction or not policy.is_automatic:
        return False
    await policy.load_window(run.brief.model, size)
    thresholds = run.find_thresholds(size)
    state.next_check = choose_next_check(size, thresholds)
    return thresholds is not None and size > thresholds.clear_at


async def call_within_window(run: RunContext) -> AssistantMessage | None:
    """Call the model; return None if it refuses the request as too long.

    `prepare_request` then shortens the conversation.
    """
    try:
        return await call_model(run)
    except ContextOverflow as error:
        from .compaction.shortening import reopen_request

        await reopen_request(run, error)
        return None
