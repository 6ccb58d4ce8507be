"""Ends a run or an interrupted turn: results for cut-off calls, the summary, the report."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable

from msgspec import Struct
from msgspec.structs import replace

from .._core.agents import WorkspaceKind
from .._core.budgets import SHARED_LIMITS, Limit, LimitState
from .._core.events import RunFinished, RunWaiting, ToolCallFinished
from .._core.messages import StopReason, Usage
from .._core.ports import FilesLostError
from .._core.runs import Reason, Report, Work
from .._core.tool_names import normalize_tool_name
from .._core.tools import ToolResult
from .._platform.time_limits import time_limit
from .._projections.reason_words import describe_reason
from ..errors import BoardError, JournalError, ModelError, MudroomError, StoppedByHook
from .changes.watch import ELSEWHERE, NOT_STORED
from .conversation import INTERRUPTED, PARTIAL_OUTPUT, CallOutcome
from .file_writes import WriteBarrier
from .model_call import call_model, reserve_request
from .phase import LIMIT_REASONS, SUMMARY_REQUEST, WRAP_UP_NOTE, Phase
from .run_context import RunContext

log = logging.getLogger("mudroom")

SUMMARY_CALLS_NO_TOOLS = "Not run: a summary calls no tools. Write the summary now."
NOT_RUN = "Not run: no tool could be called any more."

TOO_LARGE = (
    "not started: the first request has about {size:,} tokens or more, and {unspent} are "
    "unspent, so the model was not called: "
    "shorten the prompt, or raise the limit of the run or of its session"
)

NO_LAST_TURN = (
    "not started: {unspent} are unspent, which cover a request of about {size:,} tokens, but no "
    "summary after it: raise the limit of the run or of its session"
)

NOT_COVERED = (
    "not started: {unspent} are unspent, and the runs that have begun "
    "need them: raise the limit, or start fewer runs"
)

NO_TIME = (
    "not started: {left:,.1f} seconds are left, and an answer takes about {answer:,.1f}: "
    "raise the time limit, or start fewer runs"
)

NOT_BEGUN = "not started: the limit of a run above was reached first"
"""The error of a run that a limit ended before it began."""

NO_TIME_LEFT = (
    "not started: the time limit was reached while the run waited for its first request: "
    "raise the time limit, or start fewer runs"
)

NOTHING_LEFT = (
    "not started: no {unit} were left when the run began, so the model was not called: "
    "raise the limit of the run or of its session"
)

_REASON_FOR_LIMIT = {
    Limit.TURNS: Reason.MAX_TURNS,
    Limit.SECONDS: Reason.TIMEOUT,
    Limit.INPUT_TOKENS: Reason.BUDGET,
    Limit.OUTPUT_TOKENS: Reason.BUDGET,
    Limit.TOTAL_TOKENS: Reason.BUDGET,
    Limit.USD: Reason.BUDGET,
}

INCOMPLETE_ANSWER = {
    StopReason.LENGTH: (
        "the answer was cut off at the model's output limit: ask for less in one answer, or raise "
        "the limit (--max-output-tokens, in a program ModelOptions(max_output_tokens=...), or "
        "max_output_tokens of the agent)"
    ),
    StopReason.REFUSAL: "the model refused the request or did only a part of it",
    StopReason.OTHER: "the model stopped before its answer was complete",
}

_EXPLANATIONS = {
    Reason.MAX_TURNS: "You have used up your turns.",
    Reason.TIMEOUT: "Your time is up.",
    Reason.BUDGET: "You have used up your tokens, or your money.",
    Reason.LOOP: "You are going in circles and were stopped.",
}

UNUSED_CHECK = (
    "the check %r did not run: no child with an isolated workspace changed files "
    "(--isolate gives one to each child that may change files)"
)

OWN_LIMIT_NOTES = [
    f"{_EXPLANATIONS[reason]} {SUMMARY_REQUEST}" for reason in (Reason.MAX_TURNS, Reason.BUDGET)
]
"""What a run reads when a limit is used up before its next turn."""


class Ending(Struct, frozen=True):
    """Why a run ends; `finish_run` makes the report from it.

    `exception` was raised by an adapter. `has_begun` is false if a limit left no time for a request
    (`explain_unstarted_run`), `is_summary_requested` true if an earlier process requested the
    summary.
    """

    reason: Reason
    error: str = ""
    exception: Exception | None = None
    limit: LimitState | None = None
    has_begun: bool = True
    is_summary_requested: bool = False


def end_by_limit(run: RunContext, state: LimitState) -> Ending:
    """Return the ending at a limit. Before the first turn, it has an error text."""
    error = ""
    left = state.maximum - state.spent
    if not run.turn.number and left > 0 and state.name in SHARED_LIMITS:
        size = run.compute_request_range().minimum
        text = NOT_COVERED if run.meter.has_others_below(state) else NO_LAST_TURN
        if _compute_least_amount(run, state.name, size) >= left:
            text = TOO_LARGE
        error = text.format(size=size, unspent=state.name.format_amounts(left, state.maximum))
    elif not run.turn.number and state.name is Limit.SECONDS and left > 0:
        error = _describe_shortage(run, left)
    elif not run.turn.number:
        error = NOTHING_LEFT.format(unit=state.name.unit)
    return Ending(_REASON_FOR_LIMIT[state.name], error, limit=state)


def find_recorded_limit(run: RunContext, reason: Reason) -> LimitState | None:
    """Find the limit for which an earlier process asked the run to summarise."""
    if reason is Reason.TIMEOUT:
        return run.timer.limit
    accounts = (account for meter in run.meter.walk_up() for account in meter.accounts.values())
    states = (run.meter.find_exceeded_limit(run.timer.age), *(each.state for each in accounts))
    return next((each for each in states if each and _REASON_FOR_LIMIT[each.name] is reason), None)


def explain_unstarted_run(run: RunContext, ending: Ending) -> Ending:
    """Explain a run that a limit above ended before its first request."""
    if run.turn.number or ending.error or ending.reason not in LIMIT_REASONS:
        return ending
    error = NOT_BEGUN if run.brief.parent else NO_TIME_LEFT
    return replace(ending, error=error, limit=None, has_begun=False)


def _describe_shortage(run: RunContext, left: float) -> str:
    """Explain why a run does not begin although its own time is not used up."""
    if run.timer.ending_left is not None:
        left = max(0.0, run.timer.ending_left)
    return NO_TIME.format(left=left, answer=run.timer.expected_answer or 0.0)


def _compute_least_amount(run: RunContext, limit: Limit, size: int) -> float:
    if limit is Limit.USD:
        return run.compute_price(run.brief.model, Usage(input_tokens=size)) or 0.0
    return size if limit in (Limit.INPUT_TOKENS, Limit.TOTAL_TOKENS) else 0


async def finish_run(run: RunContext, ending: Ending) -> Report:
    """End the open calls, request a summary if the reason allows one, and store the report."""
    # 1. No more file writes; background work ends.
    await run.control.barrier.close()
    await _stop_background_work(run, ending)
    # 2. Open calls get results, because the request for a summary needs a valid conversation. If an
    # earlier process has requested the summary, its answer is used, and calls in it are refused.
    summary = ""
    if ending.is_summary_requested:
        await close_open_calls(run, NOT_RUN, refused=True)
        summary = run.conversation.answer_text
    else:
        await close_open_calls(run, INTERRUPTED, refused=False)
    await run.recorder.record()
    await _end_past_children(run)
    # 3. The summary is a separate turn without tools; calls that the model makes anyway are
    # refused.
    if not summary and _allows_summary(run, ending):
        summary = await _request_summary(run, ending)
        await close_open_calls(run, NOT_RUN, refused=True)
    # 4. From here on nothing can stop the run, and it reads no more messages.
    run.control.phase = Phase.FINISHED
    run.services.teams.close(run.run_id)
    await run.inbox.flush()
    text = summary
    if not text:
        is_goal = ending.reason is Reason.GOAL
        text = run.conversation.answer_text if is_goal else run.conversation.last_text
    if summary or ending.reason is Reason.GOAL:
        await finish_compaction(run, text)
    await _return_tasks(run, ending.reason, ending.error or text)
    # 5. The report, with what the run has changed, is stored last. A run that crashes before that
    # is unfinished, and ends again when resumed.
    try:
        work = await _store_work(run)
    except FilesLostError as error:
        work = None
        ending = Ending(Reason.LOST, str(error))
    if hooks := run.services.hooks:
        run.evidence.add_unknown_changes(await hooks.explain_changes(run.brief))
    limit = ending.limit
    if ending.reason is Reason.GOAL:
        limit = run.meter.find_passed_limit()
    run.meter.member.has_goal = ending.reason is Reason.GOAL
    report = run.make_report(
        ending.reason, text, recovered=bool(summary), error=ending.error, limit=limit, work=work
    )
    if hooks:
        await hooks.on_run_end(run.brief, report)
    await run.recorder.record(run.recorder.make_event(RunFinished, report=report))
    _warn_of_unused_check(run, report)
    return report


async def _stop_background_work(run: RunContext, ending: Ending) -> None:
    """End a run's background work. If a limit ends the run, its children report the same reason."""
    allows_summary = not ending.is_summary_requested and _allows_summary(run, ending)
    grace = run.timer.choose_grace_below(ending.reason) if allows_summary else None
    is_shared = ending.reason in LIMIT_REASONS
    await run.background.stop(grace, ending.reason if is_shared else run.control.stop_reason)


async def _end_past_children(run: RunContext) -> None:
    """End the children that an earlier process left and that the run has not continued.

    A stopped run has left all of them; any other run only summary runs it did not need.
    """
    if not run.services.past_events:
        return
    from .resume import end_past_children

    def finish(child: RunContext) -> Awaitable[Report]:
        return finish_run(child, explain_unstarted_run(child, Ending(child.control.stop_reason)))

    await end_past_children(run, finish)


def _warn_of_unused_check(run: RunContext, report: Report) -> None:
    """Warn once that the session's check did not run although files have changed."""
    check = run.services.isolation.check
    if not check or run.brief.parent or report.merges or run.services.recorded_work:
        return
    has_changes = report.files_changed or report.observed_changes or report.unknown_changes
    if has_changes and run.services.check_results.is_first_unused():
        log.warning(UNUSED_CHECK, check)


async def _return_tasks(run: RunContext, reason: Reason, text: str) -> None:
    """Return a child run's open tasks to the board when it ends.

    After GOAL, the parent completes the task that it claimed for the run, once the files are
    merged.
    """
    board = run.services.board
    if board is None:
        return
    task = run.brief.board_task
    try:
        if task and reason is not Reason.GOAL:
            ending = f"{describe_reason(reason).capitalize()}: {text}"
            await board.end_claim(run.run_id, task, ending, is_done=False)
        await board.release(run.run_id, keep=task)
    except BoardError as error:
        log.warning("the tasks of run %s are not back on the board: %s", run.run_id, error)


async def _store_work(run: RunContext) -> Work | None:
    """Store the files of a run in an isolated workspace.

    Raises FilesLostError if they are on another machine and cannot be sent.
    """
    recorded = run.services.recorded_work
    trees = run.environment.trees
    if run.brief.workspace.kind is not WorkspaceKind.ISOLATED or not (recorded or trees):
        return None
    if recorded:
        report = recorded.find_report(run.run_id)
        if report is None or report.work is None:
            run.evidence.unknown_changes = report.unknown_changes if report else ""
            return None
        return report.work
    assert trees
    try:
        observed = set(run.evidence.observed_changes)
        written = [path for path in run.evidence.files_changed if path not in observed]
        work = await asyncio.to_thread(trees.store_work, written)
        return _redact_git_work(run, work) if work.git else work
    except FilesLostError:
        run.evidence.add_unknown_changes(ELSEWHERE)
        raise
    except MudroomError as error:
        reason = str(error).replace("; ", ", ")  # reasons are joined with semicolons
        run.evidence.add_unknown_changes(f"{NOT_STORED}{reason}")
        return None


def _redact_git_work(run: RunContext, work: Work) -> Work:
    """Redact secrets in commit messages, which the model wrote."""
    git = work.git
    assert git
    only, commits = (tuple(map(run.services.redact, names)) for names in (git.only, git.commits))
    return replace(work, git=replace(git, only=only, commits=commits))


def _allows_summary(run: RunContext, ending: Ending) -> bool:
    """Return whether the run may give a summary.

    True after `wrap_up`, and after a limit or a loop, unless the model fell silent or never
    answered a root run. A time limit may have cut off an answer that was only late.
    """
    if run.control.phase is Phase.CANCELLING:
        return False
    if run.control.phase is Phase.WRAPPING_UP:
        return ending.has_begun  # if not, there is nothing to summarise
    if run.conversation.is_unanswered:
        has_begun = run.turn.number > 1 or (run.turn.number > 0 and bool(run.brief.parent))
        return ending.reason is Reason.TIMEOUT and not ending.error and has_begun
    return ending.reason in (*LIMIT_REASONS, Reason.LOOP) and run.turn.number > 0


async def _request_summary(run: RunContext, ending: Ending) -> str:
    """Request a summary in a turn without tools and return its text.

    Returns "" if the limits leave nothing for it, or if the request fails, takes too long, or is
    cancelled.
    """
    if run.control.phase is Phase.WRAPPING_UP:
        note = WRAP_UP_NOTE  # also at the limit of a run above: the run has not reached its own
    else:
        note = f"{_EXPLANATIONS[ending.reason]} {SUMMARY_REQUEST}"
    run.control.phase = Phase.SUMMARISING
    try:
        # Hooks have their own limits and take no time from the model.
        if not await _judge_messages(run):
            return ""
        async with time_limit(run.timer.choose_grace(ending.reason, ending.limit)):
            if await reserve_request(run, is_summary=True):
                return ""
            await run.deliver_messages()
            if not ending.is_summary_requested:
                run.add_note(note)
            answer = await call_model(run, summary_reason=ending.reason)
    except asyncio.CancelledError:
        run.control.clear_cancel()
        return ""
    except (TimeoutError, ModelError):
        return ""
    finally:
        run.meter.end_request()
        run.control.end()
    return answer.text.strip()


async def _judge_messages(run: RunContext) -> bool:
    """Show the user's messages to the hooks; return whether they let the run continue."""
    try:
        await run.judge_messages()
    except JournalError:
        raise
    except StoppedByHook:
        return False
    except Exception:  # the run must end with a report, whatever a hook does
        log.exception("a hook failed before the summary of run %s", run.run_id)
        return False
    return True


async def close_open_calls(run: RunContext, text: str, *, refused: bool) -> None:
    """Give every open call an error result, so that the conversation stays valid (S7).

    The results are stored with the next record.
    """
    for _, call in run.turn.list_open_calls():
        name = normalize_tool_name(call.name)
        output = run.turn.outputs.get(call.id)
        is_partial = output and not refused
        result = ToolResult(f"{text}{PARTIAL_OUTPUT}{output}" if is_partial else text, error=True)
        if window := run.evidence.open_windows.pop(call.id, None):
            result = await window.close(result)
        outcome = CallOutcome(call.id, name, result, refused)
        run.turn.add(outcome)
        event = run.recorder.make_event(
            ToolCallFinished, call_id=call.id, name=name, result=outcome.result, refused=refused
        )
        run.recorder.record_later(event)
    run.close_turn()


async def end_interrupted_turn(run: RunContext, last_turn: int, counted_turns: int) -> None:
    """End the turn or wait that the user interrupted, and record the interrupt.

    Background work continues. The next request repeats the blocks of an unanswered one.
    `last_turn` and `counted_turns` describe the turn before: an unanswered turn does not count.
    """
    control = run.control
    control.clear_cancel()
    barrier = control.barrier
    control.barrier = WriteBarrier()
    with run.meter.pause():  # none of this counts as work, and no time limit cuts it off
        await barrier.close()
        await close_open_calls(run, INTERRUPTED, refused=False)
        run.meter.end_request()
        is_unanswered = run.conversation.is_unanswered
        if is_unanswered or run.turn.number == last_turn:
            run.meter.add_turns(counted_turns - run.meter.turns)
            run.go_to_turn(last_turn)
        run.inbox.mark_interrupt()
        work = run.background.list_open()
        event = run.recorder.make_event(RunWaiting, runs=work, is_interrupted=True)
        await run.recorder.record(event)
        if is_unanswered:
            from .compaction.record_file import ConversationRecord

            context = await ConversationRecord(run).read_context()
            run.conversation.reopen_last_request(context.sent_messages, context.waiting_blocks)


async def wait_for_next_prompt(run: RunContext) -> None:
    """Wait for the user's next message, with the run's clocks stopped.

    Raises CancelledError if the run is stopped.
    """
    control = run.control
    with run.meter.pause():
        if not run.inbox.has_next_prompt:
            report = run.make_report(Reason.CANCELLED, run.conversation.last_text)
            control.hold(replace(report, is_interrupted=True))
        if control.phase not in (Phase.INTERRUPTING, Phase.INTERRUPTED):
            raise asyncio.CancelledError  # stopped while the turn ended
        await run.background.wait_for_next_prompt()
    control.resume()


async def finish_compaction(run: RunContext, notes: str) -> None:
    """Record a compaction requested by the user, when its run ends with notes."""
    if not run.brief.is_compaction or run.brief.parent or not notes:
        return
    from .compaction.shortening import record_compaction

    await record_compaction(run, notes)
