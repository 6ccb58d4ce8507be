"""Tool calls of one answer, with the outcomes so far."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from .._core.events import FileWriteIntended
from .._core.messages import ToolCallBlock
from .._core.tool_names import choose_result_name
from .._core.tools import ToolResult

INTERRUPTED = (
    "Interrupted before it gave a result; whether it had an effect is unknown. "
    "Check before you repeat it."
)


PARTIAL_OUTPUT = "\nPartial output until then:\n"


def is_cut_off_result(text: str) -> bool:
    """Return whether a result says that its call was cut off, perhaps with its partial output."""
    return text == INTERRUPTED or text.startswith(INTERRUPTED + PARTIAL_OUTPUT)


class CallOutcome(Struct, frozen=True, gc=False):
    """Outcome of a tool call. `refused`: the call never acted."""

    call_id: str
    name: str
    result: ToolResult
    refused: bool = False


class CallBatch:
    """Tool calls of the last answer. Outcomes stay here when the run is cut off between two calls.

    Attributes:
        calls: the calls in order, by id.
        restored_names: names in the calls of the model that were restored, by id.
        started: ids of calls that an earlier process started, each with the file write that was
            recorded for it, or None.
        working: tool and start of the calls that work now, by id; seconds of a monotonic clock.
        outputs: what calls have printed so far, by id.
    """

    def __init__(self, calls: Sequence[ToolCallBlock] = ()) -> None:
        self.calls = {call.id: call for call in calls}
        self.restored_names: dict[str, str] = {}
        self.started: dict[str, FileWriteIntended | None] = {}
        self.working: dict[str, tuple[str, float]] = {}
        self.outputs: dict[str, str] = {}
        self._outcomes: dict[str, CallOutcome] = {}

    def restore_start(self, call: ToolCallBlock) -> None:
        """Mark a call as started, with its recorded arguments; a hook may have changed them."""
        self.started.setdefault(call.id)
        if call.id in self.calls:
            self.restored_names[call.id] = self.calls[call.id].name
            self.calls[call.id] = call

    def choose_result_name(self, outcome: CallOutcome) -> str:
        """Return the name in the result of a call for the model."""
        call_id = outcome.call_id
        called = self.restored_names.get(call_id) or self.calls[call_id].name
        return choose_result_name(called, outcome.name)

    def add(self, outcome: CallOutcome) -> None:
        """Keep the outcome of a call."""
        self._outcomes[outcome.call_id] = outcome
        self.working.pop(outcome.call_id, None)

    def list_open_calls(self) -> list[tuple[int, ToolCallBlock]]:
        """Return the calls without an outcome, each with its position from 1."""
        return [
            (position, call)
            for position, call in enumerate(self.calls.values(), 1)
            if call.id not in self._outcomes
        ]

    def list_outcomes(self) -> list[CallOutcome]:
        """Return the outcomes in the order of the calls."""
        return [self._outcomes[call_id] for call_id in self.calls if call_id in self._outcomes]
