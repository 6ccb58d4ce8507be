"""ChildCalls: the children of a session as tool calls, for clients without subagent sessions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from ..._core.counts import count_noun
from ..._core.events import AnyEvent, Delta, RunFinished, RunResumed, RunStarted
from ..._core.runs import Report
from ...projections.run_tree import RunTree
from ...projections.run_view import RunView
from ...projections.safe_text import sanitize_line
from .child_sessions import describe_child
from .stop_reasons import describe_failure
from .streams import OpenCall
from .tool_calls import make_content, make_text

_SECONDS = 0.25
"""Seconds between two updates of one child."""


class _ChildCall(Struct):
    """The call that shows a child.

    Arguments:
        shown_at: time of the last update, seconds since 1970.
        started_by: the shown call that started the child and is this call. It ends with its own
            result, unless it is detached. None for a call of the child alone.
    """

    id: str
    shown_at: float
    started_by: OpenCall | None = None


class ChildCalls:
    """The calls that show the state of each child while it works.

    Arguments:
        send: sends an update to the session of the conversation.
        find_call: returns the shown call of a run that started a child, None if there is none.
        compute_cost: returns the US dollars of a run and all below it, None if not known.
    """

    def __init__(
        self,
        tree: RunTree,
        send: Callable[[dict[str, Any]], None],
        find_call: Callable[[str, str], OpenCall | None],
        compute_cost: Callable[[str], float | None],
    ) -> None:
        self._tree = tree
        self._send = send
        self._find_call = find_call
        self._compute_cost = compute_cost
        self._calls: dict[str, _ChildCall] = {}

    def apply(self, event: AnyEvent) -> None:
        """Show what an event changes of a child."""
        if isinstance(event, RunStarted):
            self._start(event)
            return
        call = self._calls.get(event.run)
        if call is None:
            return
        run = self._tree.runs[event.run]
        if isinstance(event, RunFinished):
            self._finish(run, call, event.report)
        elif isinstance(event, RunResumed) or (
            not isinstance(event, Delta) and event.at - call.shown_at >= _SECONDS
        ):
            call.shown_at = event.at
            self._update(call, status="in_progress", content=[make_content(self._describe(run))])

    def is_working(self, run_id: str) -> bool:
        """Return whether a call shows a child that works."""
        return run_id in self._calls and self._tree.runs[run_id].report is None

    def end_history(self) -> None:
        """State that the children whose record has no end do not run."""
        for run_id, call in self._calls.items():
            if self._tree.runs[run_id].report is None:
                self._update(call, status="pending")

    def _start(self, event: RunStarted) -> None:
        brief = event.brief
        shown = self._find_call(brief.parent, brief.call_id) if brief.call_id else None
        if shown:
            self._calls[brief.run_id] = _ChildCall(shown.id, event.at, shown)
            return
        call = _ChildCall(f"child/{brief.run_id}", event.at)
        is_known = brief.run_id in self._calls
        self._calls[brief.run_id] = call
        if is_known:
            return
        self._send(
            {
                "sessionUpdate": "tool_call",
                "toolCallId": call.id,
                "title": describe_child(brief),
                "kind": "think",
                "status": "in_progress",
                "content": [make_content(make_text(brief.prompt))],
                "_meta": {"mudroom": {"run": brief.run_id, "parent": brief.parent}},
            }
        )

    def _finish(self, run: RunView, call: _ChildCall, report: Report) -> None:
        """Show the end of a child, unless the call that waits for it shows it with its result."""
        if call.started_by and not call.started_by.is_detached:
            return
        text = report.text if report.ok else f"{describe_failure(report)}\n\n{report.text}"
        content = [make_content(self._describe(run)), make_content(make_text(text.strip()))]
        status = "completed" if report.ok else "failed"
        self._update(call, status=status, content=content)

    def _update(self, call: _ChildCall, **fields: Any) -> None:
        self._send({"sessionUpdate": "tool_call_update", "toolCallId": call.id, **fields})

    def _describe(self, run: RunView) -> dict[str, Any]:
        """Return the state of a child as a text: what it does, its calls, tokens and costs."""
        action = sanitize_line(run.last_action) or "starting"
        tokens = run.total_usage.total_tokens
        counts = [count_noun(run.tool_call_count, "call"), f"{tokens:,} tokens"]
        if usd := self._compute_cost(run.run_id):
            counts.append(f"${usd:.4f}")
        return make_text(f"{run.short_label}: {action} ({', '.join(counts)})")
