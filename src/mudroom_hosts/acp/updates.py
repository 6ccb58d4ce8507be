"""SessionUpdates: a session's events as the protocol's `session/update` messages.

Its children are subagent sessions.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct

from mudroom import AnyEvent, Reason, Report, TextBlock, ThinkingBlock, ToolCallBlock, Usage
from mudroom.events import (
    Compacted,
    Delta,
    FileWriteIntended,
    MessageDelivered,
    ModelCallRetried,
    RunFinished,
    RunResumed,
    RunStarted,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
)
from mudroom.ports import Brief, StopReason
from mudroom.views import (
    RunTree,
    RunView,
    calculate_cost,
    describe_end,
    find_first_id,
    is_child_id,
    sanitize,
    sanitize_line,
)

from .json_rpc import INTERNAL_ERROR, RequestError
from .params import ClientAbilities
from .tool_calls import (
    OpenCall,
    RunStream,
    describe_title,
    find_kind,
    list_edits,
    list_locations,
    make_content,
    make_image,
    make_plan,
    make_result,
    make_text,
    make_written,
)


class ChildSessions:
    """Subagent sessions: announced before anything else, and idle exactly once per run.

    All of a named child's runs are one session.
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
        run = self._tree.runs.get(run_id)
        if run is None or not run.depth:
            return self._session
        return f"{self._session}/{find_first_id(run_id)}"

    def find_run(self, session: str) -> str:
        """Find a running child's run; "" if there is none."""
        return next((run for run, each in self._working.items() if each == session), "")

    def start(self, event: RunStarted) -> str:
        """Announce a child's session, or that it is running again; return its id."""
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
        """Send what an event changes for a child, besides its own messages and calls."""
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
        """Send the end of a child's run, after everything else about it."""
        if self._working.pop(event.run, None):
            self._waiting.pop(event.run, None)
            self._update(event.run, state=make_child_end(event.report))

    def show_waiting(self, run_id: str, change: int) -> None:
        """Count a child's open questions, and show whether it is waiting for the user."""
        if run_id not in self._working:
            return
        before = self._waiting.get(run_id, 0)
        self._waiting[run_id] = before + change
        if bool(before) != bool(before + change):
            state = "requires_action" if before + change else "running"
            self._update(run_id, state={"state": state})

    def end_history(self) -> None:
        """State that nothing is known of children with no end in the record."""
        for run_id in sorted(self._working, key=len, reverse=True):
            self._update(run_id, state={"state": "unknown"})
        self._working.clear()

    def _update(self, run_id: str, **fields: Any) -> None:
        """Send an update about a child to its parent's session."""
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
    """Make a child's title; a named child's begins with its name."""
    title = brief.description or brief.prompt
    return sanitize_line(": ".join(filter(None, (brief.name, title))))


Send = Callable[[str, dict[str, Any]], None]
"""Sends an update: the session's id in the protocol, and the update."""


class SessionUpdates:
    """Folds the events of a session and all its children into updates.

    A record's events give the same updates as a run's, but streamed text comes in one piece.

    Arguments:
        read_version: returns a file's earlier content by its hash, None if not kept.
        find_window: returns the tokens that a model's context can hold, 0 if unknown.
    """

    def __init__(
        self,
        session: str,
        cwd: str,
        abilities: ClientAbilities,
        send: Send,
        *,
        read_version: Callable[[str], bytes | None],
        find_window: Callable[[str], int],
    ) -> None:
        self.is_silent = False  # nothing is sent
        self.shows_prompts = False  # the user's prompts are also sent
        self._session = session
        self._cwd = cwd
        self._abilities = abilities
        self._send_update = send
        self._read_version = read_version
        self._streams: dict[str, RunStream] = {}
        self.tree = RunTree()
        self.usage = UsageFold(self.tree, partial(self._send, session), find_window)
        self.children = ChildSessions(session, self.tree, self._send)
        self._calls = ChildCalls(
            self.tree,
            partial(self._send, session),
            self._find_started_call,
            self.usage.compute_cost,
        )

    def apply(self, event: AnyEvent) -> None:
        self.tree.apply(event)
        if isinstance(event, RunStarted):
            self._start_run(event)
        elif event.run in self.tree.runs:
            if self._abilities.shows_children:
                self.children.apply(event)
            else:
                self._calls.apply(event)
            if stream := self._streams.get(event.run):
                self._apply_to_stream(stream, event)
            if self._abilities.shows_children and isinstance(event, RunFinished):
                self.children.finish(event)
        self.usage.apply(event)

    def find_call(self, run_id: str, call_id: str) -> tuple[str, OpenCall] | None:
        """Find the session and call that an approval request is about, if shown."""
        stream = self._streams.get(run_id)
        call = stream.calls.get(call_id) if stream else None
        return (stream.session, call) if stream and call else None

    def end_history(self) -> None:
        """State that whatever has no end in the record is not running: its process is gone."""
        for stream in self._streams.values():
            for call in stream.calls.values():
                stream.send_call(call, status="pending")
        if self._abilities.shows_children:
            self.children.end_history()
        else:
            self._calls.end_history()

    def _send(self, session: str, update: dict[str, Any]) -> None:
        if not self.is_silent:
            self._send_update(session, update)

    def _find_started_call(self, run_id: str, call_id: str) -> OpenCall | None:
        stream = self._streams.get(run_id)
        return stream.find_call(call_id) if stream else None

    def _start_run(self, event: RunStarted) -> None:
        brief = event.brief
        if is_child_id(brief.run_id) or brief.depth:
            if not self._abilities.shows_children:
                self._calls.apply(event)
                return
            session = self.children.start(event)
        else:
            session = self._session
            if self.shows_prompts and not brief.is_compaction:
                self._send_prompt(event)
        self._streams[brief.run_id] = RunStream(brief.run_id, session, self._send)

    def _send_prompt(self, event: RunStarted) -> None:
        for block in event.brief.blocks:
            is_text = isinstance(block, TextBlock)
            content = make_text(block.text) if is_text else make_image(block)
            self._send_user(content, event.brief.run_id)

    def _send_user(self, content: dict[str, Any], message: str) -> None:
        update = {"sessionUpdate": "user_message_chunk", "content": content, "messageId": message}
        self._send(self._session, update)

    def _apply_to_stream(self, stream: RunStream, event: AnyEvent) -> None:
        match event:
            case Delta():
                stream.add_delta(event)
            case TurnFinished():
                self._finish_turn(stream, event)
            case ToolCallStarted():
                self._start_call(stream, event)
            case FileWriteIntended():
                if call := stream.calls.get(event.call_id):
                    call.write = event
            case ToolCallFinished():
                self._finish_call(stream, event)
            case RunFinished():
                stream.end_calls()
            case _:
                self._show_notice(stream, event)

    def _show_notice(self, stream: RunStream, event: AnyEvent) -> None:
        """Show what is neither text nor a call, if the client can."""
        if isinstance(event, Compacted) and self._abilities.shows_compaction:
            stream.send_compaction(event)
        elif isinstance(event, ModelCallRetried):
            self._retry(stream, event)
        elif isinstance(event, MessageDelivered) and self._is_from_user(event):
            self._send_user(make_text(event.text), event.message_id)

    def _is_from_user(self, event: MessageDelivered) -> bool:
        """Return whether the user wrote a message to the conversation, which is sent back."""
        return self.shows_prompts and event.origin == "user" and not is_child_id(event.run)

    def _retry(self, stream: RunStream, event: ModelCallRetried) -> None:
        stream.discard_streamed()
        if self._abilities.shows_notices:
            stream.send(
                "notice",
                severity="warning",
                title="The model call failed and is repeated.",
                description=make_text(event.error)["text"],
            )

    def _finish_turn(self, stream: RunStream, event: TurnFinished) -> None:
        blocks = event.message.content
        thoughts = "\n".join(block.text for block in blocks if isinstance(block, ThinkingBlock))
        stream.complete_text("thinking", thoughts, event.turn)
        stream.complete_text("text", event.message.text, event.turn)
        stream.discard_streamed()
        for block in event.message.tool_calls:
            self._show_call(stream, block, event.turn)

    def _show_call(self, stream: RunStream, block: ToolCallBlock, turn: int) -> OpenCall:
        call = stream.open_call(block, turn)
        stream.send(
            "tool_call",
            toolCallId=call.id,
            title=describe_title(block.name, block.arguments),
            name=block.name,
            kind=find_kind(block.name),
            status="pending",
            locations=list_locations(block.name, block.arguments, self._cwd),
            rawInput=block.arguments,
        )
        return call

    def _start_call(self, stream: RunStream, event: ToolCallStarted) -> None:
        """Send the call as it runs: a server's call may now have another name."""
        block = event.call
        call = stream.calls.get(block.id) or self._show_call(stream, block, event.turn)
        call.block = block
        call.view = event.view
        call.content = list_edits(block.name, event.view, block.arguments, self._cwd)
        if event.view == "run":
            prompt = block.arguments.get("prompt")
            call.content = [make_content(make_text(prompt))] if isinstance(prompt, str) else []
        stream.send_call(
            call,
            status="in_progress",
            title=describe_title(block.name, block.arguments, event.title),
            kind=find_kind(block.name, event.view),
            content=call.content,
        )

    def _list_written(self, call: OpenCall) -> list[dict[str, Any]]:
        """List the change made by a call that wrote a whole file, if the old content was kept."""
        if call.write is None or call.view != "content":
            return []
        path = os.path.join(self._cwd, call.write.path)
        before = self._read_version(call.write.before)
        return make_written(call.block.name, call.block.arguments, path, before)

    def _finish_call(self, stream: RunStream, event: ToolCallFinished) -> None:
        call = stream.calls.get(event.call_id)
        if call is None:
            return
        result = event.result
        content = make_result(result)
        if not result.error:
            changes = [each for each in call.content if each["type"] == "diff"]
            content = changes or self._list_written(call) or content
        if result.detail.get("background") and self._calls.is_working(result.detail.get("run", "")):
            call.is_detached = True  # its child continues, and ends the call
            stream.calls.pop(event.call_id)
            return
        stream.close_call(call, status="failed" if result.error else "completed", content=content)
        entries = make_plan(call.block.arguments) if call.view == "todos" else None
        if entries is not None and not result.error:
            stream.send("plan", entries=entries)


_SECONDS = 0.25  # seconds between updates about a child


class _ChildCall(Struct):
    id: str
    shown_at: float  # time of the last update, seconds since 1970
    # The shown call that started the child, if this is that call. It ends with its own result
    # unless detached. None for a call that only shows the child.
    started_by: OpenCall | None = None


class ChildCalls:
    """The calls that show each child's state while it is running."""

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
        return run_id in self._calls and self._tree.runs[run_id].report is None

    def end_history(self) -> None:
        """State that children with no end in the record are not running."""
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
        # A call waiting for a child shows the child's end in its result.
        if call.started_by and not call.started_by.is_detached:
            return
        text = report.text if report.ok else f"{describe_end(report)}\n\n{report.text}"
        content = [make_content(self._describe(run)), make_content(make_text(text.strip()))]
        status = "completed" if report.ok else "failed"
        self._update(call, status=status, content=content)

    def _update(self, call: _ChildCall, **fields: Any) -> None:
        self._send({"sessionUpdate": "tool_call_update", "toolCallId": call.id, **fields})

    def _describe(self, run: RunView) -> dict[str, Any]:
        action = sanitize_line(run.last_action) or "starting"
        calls = run.tool_call_count
        tokens = run.total_usage.total_tokens
        counts = [f"{calls:,} call{'' if calls == 1 else 's'}", f"{tokens:,} tokens"]
        if usd := self._compute_cost(run.run_id):
            counts.append(f"${usd:.4f}")
        return make_text(f"{run.short_label}: {action} ({', '.join(counts)})")


class UsageFold:
    """Folds events into `usage_update`, sent after each answer in the conversation."""

    def __init__(
        self,
        tree: RunTree,
        send: Callable[[dict[str, Any]], None],
        find_window: Callable[[str], int],
    ) -> None:
        self.stop = StopReason.END  # why the model ended its last answer
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
        """Compute the US dollars of a run and all below it, "" for all; None if unknown."""
        total = 0.0
        for run in self._tree.walk(run_id):
            cost = self._costs.get(run.run_id, 0.0)
            if cost is None:
                return None
            total += cost
        return total

    def describe_totals(self) -> dict[str, int]:
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


_REASONS = {
    Reason.GOAL: "end_turn",
    Reason.CANCELLED: "cancelled",
    Reason.MAX_TURNS: "max_turn_requests",
    Reason.TIMEOUT: "max_turn_requests",
    Reason.BUDGET: "max_turn_requests",
}
_TOKEN_LIMITS = ("input_tokens", "output_tokens", "total_tokens")
_MODEL_STOPS = {StopReason.LENGTH: "max_tokens", StopReason.REFUSAL: "refusal"}


def make_child_end(report: Report) -> dict[str, Any]:
    state: dict[str, Any] = {"state": "idle", "stopReason": find_stop_reason(report) or "error"}
    if state["stopReason"] == "error":
        state["error"] = RequestError(INTERNAL_ERROR, describe_end(report)).to_json()
    return state | make_reason_meta(report)


def make_prompt_end(report: Report, stop: StopReason) -> dict[str, Any]:
    """Make the answer to a prompt; `stop` is why the model ended its last answer."""
    reason = find_stop_reason(report)
    if reason in ("", "end_turn"):
        reason = _MODEL_STOPS.get(stop, reason)
    if not reason:
        details = {"reason": report.reason.value}
        raise RequestError(INTERNAL_ERROR, describe_end(report), details)
    return {
        "stopReason": reason,
        "usage": make_usage(report.usage),
        **make_reason_meta(report),
    }


def find_stop_reason(report: Report) -> str:
    """Find a run's stop reason; "" if it failed."""
    is_for_tokens = report.limit is not None and report.limit.name in _TOKEN_LIMITS
    if report.reason is Reason.BUDGET and is_for_tokens:
        return "max_tokens"
    return _REASONS.get(report.reason, "")


def make_reason_meta(report: Report) -> dict[str, Any]:
    """Make a run's own reason, next to that of the protocol."""
    return {"_meta": {"mudroom": {"reason": report.reason.value}}}


def make_usage(usage: Usage) -> dict[str, Any]:
    return {
        "totalTokens": usage.total_tokens,
        "inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens,
        "thoughtTokens": usage.reasoning_tokens,
        "cachedReadTokens": usage.cache_read_tokens,
        "cachedWriteTokens": usage.cache_write_tokens,
    }
