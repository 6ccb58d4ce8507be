"""Interrupt of a run: its turn or wait ends, and it waits for the next message of the user."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from ..._core.events import RunWaiting
from ..._core.runs import Reason
from ..compaction.record_file import read_context
from ..file_writes import WriteBarrier
from ..finish import close_open_calls
from ..phase import Phase
from ..resume import INTERRUPTED
from ..run_context import RunContext


async def end_interrupted_turn(run: RunContext, turn: int, counted_turns: int) -> None:
    """End the turn or the wait that the user interrupted, and record the interrupt.

    Background work continues. The next request has the blocks of a request without an answer.

    Arguments:
        turn: number of the turn before. counted_turns: turns on the meter then. A turn without an
            answer does not count.
    """
    control = run.control
    control.clear_cancel()
    barrier = control.barrier
    control.barrier = WriteBarrier()
    with run.meter.pause():  # Nothing here counts as work, and no time limit cuts it off.
        await barrier.close()
        await close_open_calls(run, INTERRUPTED, refused=False)
        run.meter.end_request()
        is_unanswered = run.conversation.is_unanswered
        if is_unanswered or run.turn == turn:
            run.meter.add_turns(counted_turns - run.meter.turns)
            run.recorder.turn = turn
        run.inbox.mark_interrupt()
        work = run.background.list_open()
        event = run.recorder.make_event(RunWaiting, runs=work, is_interrupted=True)
        await run.recorder.record(event)
        if is_unanswered:
            context = await read_context(run)
            run.conversation.reopen_last_request(context.sent_messages, context.waiting_blocks)


async def wait_for_next_prompt(run: RunContext) -> None:
    """Wait until the user sends a message. The clocks of the run stand still.

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
