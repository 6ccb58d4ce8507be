"""The phase of a run, and how to stop the run from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto

from msgspec import Struct

from .._core.messages import AssistantMessage
from .._core.runs import Reason, Report
from .file_writes import WriteBarrier


class Resumption(Struct, frozen=True):
    """The point at which a run starts or continues."""

    pending_answer: AssistantMessage | None = None  # has open tool calls, or no turn follows it
    summary_reason: Reason | None = None  # set if the summary has been requested
    is_stopped_from_outside: bool = False  # the reason is a stop, or the limit of a run above
    is_interrupted: bool = False  # by the user: the run waits for the next prompt


class Phase(Enum):
    """Phases of a run.

    RUNNING ─► INTERRUPTING                      interrupted by the user
    INTERRUPTING ─► INTERRUPTED                  the turn has ended, and no prompt waits
    INTERRUPTING | INTERRUPTED ─► RUNNING        the user sends a prompt
    RUNNING | INTERRUPTED ─► WRAPPING_UP         stopped from outside, with a summary
    RUNNING | INTERRUPTING ─► ENDING             the run ends by itself
    ENDING | WRAPPING_UP ─► WAITING_FOR_CHILDREN, and back
    ENDING | WRAPPING_UP ─► SUMMARISING ─► ENDING
    ENDING | WRAPPING_UP | CANCELLING ─► FINISHED
    all but CANCELLING and FINISHED ─► CANCELLING    stopped from outside, without a summary

    A resumed run starts as RUNNING, or as WRAPPING_UP if that was recorded.
    """

    RUNNING = auto()  # takes turns, or waits for a slot
    INTERRUPTING = auto()  # ends its current turn or wait; background work continues
    INTERRUPTED = auto()  # waits for the next message of the user; background work continues
    WRAPPING_UP = auto()  # stops its current work, then gives a summary
    ENDING = auto()  # ends by itself, and may still give a summary
    WAITING_FOR_CHILDREN = auto()  # ends, and waits for the summaries of its background children
    SUMMARISING = auto()  # requests the summary
    CANCELLING = auto()  # ends without a summary
    FINISHED = auto()  # nothing can stop the run now; its work and its report are being stored


LIMIT_REASONS = (Reason.TIMEOUT, Reason.MAX_TURNS, Reason.BUDGET)
"""Limits that also end the runs below, for the same reason."""

SUMMARY_REQUEST = (
    "Call no more tools. Summarise now what you found and did, and what is left undone."
)

WRAP_UP_NOTE = f"You are asked to wrap up. {SUMMARY_REQUEST}"
"""The note that asks for a summary after `wrap_up`, or at the limit of a run above."""

OPEN_PHASES = (Phase.RUNNING, Phase.INTERRUPTING, Phase.INTERRUPTED)
"""Phases in which a run has not been stopped: it reads messages, and children may start."""

_CANCELLABLE_PHASES = (
    Phase.RUNNING,
    Phase.INTERRUPTED,
    Phase.WAITING_FOR_CHILDREN,
    Phase.SUMMARISING,
)


class RunControl:
    """A run's phase, the task that executes it, and the barrier for its file writes.

    The task is cancelled only in the phases RUNNING, INTERRUPTED, WAITING_FOR_CHILDREN and
    SUMMARISING, the only ones whose code handles a cancel. Other steps that end or interrupt a run
    are never cut off.

    Attributes:
        barrier: closed at the end of the run, so that no file is written after it; an interrupt
            closes it and opens a new one.
        stop_reason: why the run ends if it is cancelled.
        interim_report: the report while the run is INTERRUPTED.
        on_interrupt: called when the run becomes INTERRUPTED.
    """

    def __init__(self) -> None:
        self.phase = Phase.RUNNING
        self.barrier = WriteBarrier()
        self.stop_reason = Reason.CANCELLED
        self.interim_report: Report | None = None
        self.on_interrupt: Callable[[], object] | None = None
        self._task: asyncio.Task[object] | None = None

    def attach(self, task: asyncio.Task[object]) -> None:
        self._task = task

    def wrap_up(self, reason: Reason = Reason.CANCELLED) -> bool:
        """Make the run stop its work and give a summary. Return False if it is already ending.

        `reason` is the limit of a run above, or CANCELLED.
        """
        if self.phase not in (Phase.RUNNING, Phase.INTERRUPTED):
            return False
        self.stop_reason = reason
        self._leave_interrupt(Phase.WRAPPING_UP)
        self._cancel_task()
        return True

    def interrupt(self) -> bool:
        """End the current turn or wait. Return False unless the run is RUNNING."""
        if self.phase is not Phase.RUNNING:
            return False
        self.phase = Phase.INTERRUPTING
        self._cancel_task()
        return True

    def restore_interrupt(self) -> None:
        """Restore an interrupt that an earlier process recorded."""
        if self.phase is Phase.RUNNING:
            self.phase = Phase.INTERRUPTING

    def hold(self, report: Report) -> None:
        """Enter the phase INTERRUPTED, unless the run is being stopped."""
        if self.phase is Phase.INTERRUPTING:
            self.phase = Phase.INTERRUPTED
            self.interim_report = report
            if self.on_interrupt:
                self.on_interrupt()

    def resume(self) -> None:
        """Go back from an interrupt to RUNNING, unless the run is being stopped."""
        if self.phase in (Phase.INTERRUPTING, Phase.INTERRUPTED):
            self._leave_interrupt(Phase.RUNNING)

    def _leave_interrupt(self, phase: Phase) -> None:
        self.interim_report = None
        self.phase = phase

    def cancel(self, reason: Reason = Reason.CANCELLED) -> bool:
        """Stop the run without a summary. Return False if it is already cancelled or finished."""
        if self.phase in (Phase.CANCELLING, Phase.FINISHED):
            return False
        self.stop_reason = reason
        if self.phase in _CANCELLABLE_PHASES:
            self._cancel_task()
        self._leave_interrupt(Phase.CANCELLING)
        return True

    def end(self) -> None:
        """Leave the phases RUNNING, INTERRUPTING and SUMMARISING, unless the run is stopped."""
        if self.phase in (Phase.RUNNING, Phase.INTERRUPTING, Phase.SUMMARISING):
            self.phase = Phase.ENDING

    def clear_cancel(self) -> None:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            task.uncancel()

    def _cancel_task(self) -> None:
        if self._task is not None:
            self._task.cancel()
