"""ChildSessions: the children of a session as subagent sessions of the protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mudroom import AnyEvent
from mudroom.events import MessageDelivered, RunFinished, RunResumed, RunStarted
from mudroom.ports import Brief
from mudroom.views import RunTree, find_first_id, sanitize, sanitize_line

from .stop_reasons import make_child_end
from .tool_calls import make_text


class ChildSessions:
    """The subagent sessions: announced before all else, and idle exactly once for each run.

    All runs of a named child are one session.

    Arguments:
        session: id of the session of the conversation.
        send: sends an update to a session.
    """

    def __init__(
        self, session: str, tree: RunTree, send: Callable[[str, dict[str, Any]], None]
    ) -> None:
        self._session = session
        self._tree = tree
        self._send = send
        self._announced: set[str] = set()
        self._working: dict[str, str] = {}
        self._waiting: dict[str, int] = {}

    def find_session(self, run_id: str) -> str:
        """Return the id of the session that shows a run."""
        run = self._tree.runs.get(run_id)
        if run is None or not run.depth:
            return self._session
        return f"{self._session}/{find_first_id(run_id)}"

    def find_run(self, session: str) -> str:
        """Return the run of a child that works, by the id of its session; "" if there is none."""
        return next((run for run, each in self._working.items() if each == session), "")

    def start(self, event: RunStarted) -> str:
        """Announce the session of a child, or state that it works again; return its id."""
        brief = event.brief
        child = self.find_session(brief.run_id)
        fields: dict[str, Any] = {"state": {"state": "running"}}
        if child not in self._announced:
            self._announced.add(child)
            fields |= {
                "title": describe_child(brief),
                "description": sanitize_line(f"{brief.agent.name}: {brief.agent.description}"),
                "capabilities": {"cancel": {}},
            }
        self._working[brief.run_id] = child
        self._update(brief.run_id, **fields)
        self._send_message(child, f"{brief.run_id}/prompt", brief.parent, brief.prompt)
        return child

    def apply(self, event: AnyEvent) -> None:
        """Send what an event changes for a child, beside its own messages and calls."""
        run = self._tree.runs[event.run]
        if not run.depth:
            return
        if isinstance(event, RunResumed):
            self._working[event.run] = self.find_session(event.run)
            self._update(event.run, state={"state": "running"})
        elif isinstance(event, MessageDelivered):
            child = self.find_session(event.run)
            sender = event.origin if event.origin in self._tree.runs else ""
            self._send_message(child, event.message_id, sender, event.text)

    def finish(self, event: RunFinished) -> None:
        """Send the end of a run of a child, after all else of it."""
        if self._working.pop(event.run, None):
            self._waiting.pop(event.run, None)
            self._update(event.run, state=make_child_end(event.report))

    def show_waiting(self, run_id: str, change: int) -> None:
        """Count the open questions of a child, and show whether it waits for the user."""
        if run_id not in self._working:
            return
        before = self._waiting.get(run_id, 0)
        self._waiting[run_id] = before + change
        if bool(before) != bool(before + change):
            state = "requires_action" if before + change else "running"
            self._update(run_id, state={"state": state})

    def end_history(self) -> None:
        """State that nothing is known of the children whose record has no end."""
        for run_id in sorted(self._working, key=len, reverse=True):
            self._update(run_id, state={"state": "unknown"})
        self._working.clear()

    def _update(self, run_id: str, **fields: Any) -> None:
        """Send an update about a child to the session of its parent."""
        parent = self._tree.runs[run_id].parent
        above = self.find_session(parent) if parent else self._session
        child = self.find_session(run_id)
        self._send(above, {"sessionUpdate": "subagent_update", "sessionId": child, **fields})

    def _send_message(self, child: str, identifier: str, sender: str, text: str) -> None:
        above = {"senderSessionId": self.find_session(sender)} if sender else {}
        update = {
            "sessionUpdate": "session_message",
            "messageId": identifier,
            **above,
            "recipientSessionId": child,
            "content": [make_text(sanitize(text))],
        }
        self._send(child, update)


def describe_child(brief: Brief) -> str:
    """Return the title of a child; that of a named one begins with its name."""
    title = brief.description or brief.prompt
    return sanitize_line(": ".join(filter(None, (brief.name, title))))
