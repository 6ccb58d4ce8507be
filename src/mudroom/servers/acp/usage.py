"""UsageFold: tokens in the context and the costs of a session, children included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..._core.events import AnyEvent, RunFinished, TurnFinished
from ..._core.messages import StopReason
from ...pricing import calculate_cost
from ...projections.run_tree import RunTree


class UsageFold:
    """Fold of events into `usage_update`, sent after each answer of the conversation.

    Arguments:
        send: sends an update to the session of the conversation.
        find_window: returns the tokens that the context of a model can hold, 0 if unknown.

    Attributes:
        stop: why the model stopped its last answer in the conversation.
    """

    def __init__(
        self,
        tree: RunTree,
        send: Callable[[dict[str, Any]], None],
        find_window: Callable[[str], int],
    ) -> None:
        self.stop = StopReason.END
        self._tree = tree
        self._send = send
        self._find_window = find_window
        self._costs: dict[str, float | None] = {}
        self._context_tokens = 0
        self._model = ""

    def apply(self, event: AnyEvent) -> None:
        """Add the next event; send the totals if it ends an answer or a child."""
        run = self._tree.runs.get(event.run)
        if run is None:
            return
        if isinstance(event, TurnFinished):
            model = event.message.answered_by or run.model
            self._add_cost(event.run, calculate_cost(model, event.message.usage))
            if run.depth:
                return
            self._context_tokens = event.message.usage.total_tokens
            self._model = run.model
            self.stop = event.message.stop_reason
            self.send()
        elif isinstance(event, RunFinished):
            self.send()

    def send(self) -> None:
        """Send the totals of the session."""
        update: dict[str, Any] = {
            "sessionUpdate": "usage_update",
            "used": self._context_tokens,
            "size": self._find_window(self._model),
        }
        usd = self.compute_cost()
        if usd is not None:
            update["cost"] = {"amount": usd, "currency": "USD"}
        update["_meta"] = {"mudroom": self.describe_totals()}
        self._send(update)

    def compute_cost(self, run_id: str = "") -> float | None:
        """Return the US dollars of a run and all below it, "" for all; None if not known."""
        total = 0.0
        for run in self._tree.walk(run_id):
            cost = self._costs.get(run.run_id, 0.0)
            if cost is None:
                return None
            total += cost
        return total

    def describe_totals(self) -> dict[str, int]:
        """Return the number of children, and the tokens of all runs and of the children."""
        runs = self._tree.runs.values()
        return {
            "children": sum(1 for run in runs if run.depth),
            "calls": sum(run.tool_call_count for run in runs),
            "totalTokens": sum(run.usage.total_tokens for run in runs),
            "childTokens": sum(run.usage.total_tokens for run in runs if run.depth),
        }

    def _add_cost(self, run_id: str, usd: float | None) -> None:
        before = self._costs.get(run_id, 0.0)
        self._costs[run_id] = None if usd is None or before is None else before + usd
