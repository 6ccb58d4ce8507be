"""Phase of a run, and the way to stop the run from outside."""

from __future__ import annotations

import asyncio
from enum import Enum, auto

from .._core.runs import Reason
from .file_writes import WriteBarrier


class Phase(Enum):
    """Phases of a run."""

    RUNNING = auto()
    """Takes turns, or waits because too many children run."""
    WRAPPING_UP = auto()
    """Stops its current work, then gives a summary."""
    ENDING = auto()
    """Has its reason, without a stop from outside, and may still give a summary."""
    WAITING_FOR_CHILDREN = auto()
    """Ends, and waits for the summaries of its background children."""
    SUMMARISING = auto()
    """Requests the summary."""
    CANCELLING = auto()
    """Ends without a summary."""
    FINISHED = auto()
    """Only the report remains to be stored; nothing can stop the run any more."""


class RunControl:
    """Phase of one run, the task that executes it, and the barrier for its file writes.

    The task is cancelled only in the phases RUNNING, WAITING_FOR_CHILDREN and SUMMARISING, because
    only their code handles a cancel. The other steps that end a run are never interrupted.

    Attributes:
        barrier: closed at the end of the run, so that no file is written after it.
        stop_reason: reason of the run's end if it is cancelled.
    """

    def __init__(self) -> None:
        self.phase = Phase.RUNNING
        self.barrier = WriteBarrier()
        self.stop_reason = Reason.CANCELLED
        self._task: asyncio.Task[object] | None = None

    def attach(self, task: asyncio.Task[object]) -> None:
        """Set the task that executes the run."""
        self._task = task

    def wrap_up(self) -> bool:
        """Stop the current work and have the run give a summary.

        Return False if it is ending already.
        """
        if self.phase is not Phase.RUNNING:
            return False
        self.phase = Phase.WRAPPING_UP
        self._cancel_task()
        return True

    def cancel(self, reason: Reason = Reason.CANCELLED) -> bool:
        """Stop the run without a summary. Return False if it is being cancelled or has finished."""
        if self.phase in (Phase.CANCELLING, Phase.FINISHED):
            return False
        self.stop_reason = reason
        if self.phase in (Phase.RUNNING, Phase.WAITING_FOR_CHILDREN, Phase.SUMMARISING):
            self._cancel_task()
        self.phase = Phase.CANCELLING
        return True

    def end(self) -> None:
        """Leave the phases RUNNING and SUMMARISING, unless the run is being stopped."""
        if self.phase in (Phase.RUNNING, Phase.SUMMARISING):
            self.phase = Phase.ENDING

    def clear_cancel(self) -> None:
        """Mark a cancel of the task as handled."""
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            task.uncancel()

    def _cancel_task(self) -> None:
        if self._task is not None:
            self._task.cancel()
