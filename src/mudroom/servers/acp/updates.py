"""SessionUpdates: the events of one session as `session/update` messages of the protocol."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

from ..._core.events import (
    AnyEvent,
    Compacted,
    Delta,
    FileWriteIntended,
    MessageDelivered,
    ModelCallRetried,
    RunFinished,
    RunStarted,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
)
from ..._core.messages import TextBlock, ThinkingBlock, ToolCallBlock, join_texts
from ..._core.run_ids import is_child_id
from ...projections.run_tree import RunTree
from .child_calls import ChildCalls
from .child_sessions import ChildSessions
from .params import ClientAbilities
from .streams import OpenCall, RunStream
from .tool_calls import (
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
from .usage import UsageFold

Send = Callable[[str, dict[str, Any]], None]
"""Function that sends an update: id of the session in the protocol, and the update."""


class SessionUpdates:
    """Fold of the events of a session, and of all its children, into updates.

    The events of a record give the same updates as those of a run, but streamed text comes in one
    piece.

    Arguments:
        session: id of the session.
        cwd: its folder.
        read_version: returns the earlier content of a file by its hash, None if it is not kept.
        find_window: returns the tokens that the context of a model can hold, 0 if unknown.

    Attributes:
        is_silent: nothing is sent. shows_prompts: prompts of the user are sent, too.
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
        self.is_silent = False
        self.shows_prompts = False
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
        """Send the updates of the next event, often none."""
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
        """Return the session and the call that an approval request is about, if it is shown."""
        stream = self._streams.get(run_id)
        call = stream.calls.get(call_id) if stream else None
        return (stream.session, call) if stream and call else None

    def end_history(self) -> None:
        """State that what has no end in the record is not running: its process is gone."""
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
        """Show what is neither text nor a call, where the client can."""
        if isinstance(event, Compacted) and self._abilities.shows_compaction:
            stream.send_compaction(event)
        elif isinstance(event, ModelCallRetried):
            self._retry(stream, event)
        elif isinstance(event, MessageDelivered) and self._is_from_user(event):
            self._send_user(make_text(event.text), event.message_id)

    def _is_from_user(self, event: MessageDelivered) -> bool:
        """Return whether a message is one of the user to the conversation, which is sent back."""
        return self.shows_prompts and event.origin == "user" and not is_child_id(event.run)

    def _retry(self, stream: RunStream, event: ModelCallRetried) -> None:
        """Begin the answer again, and say why."""
        stream.discard_streamed()
        if self._abilities.shows_notices:
            stream.send(
                "notice",
                severity="warning",
                title="The model call failed and is repeated.",
                description=make_text(event.error)["text"],
            )

    def _finish_turn(self, stream: RunStream, event: TurnFinished) -> None:
        """Send what has not streamed of an answer, and its calls."""
        blocks = join_texts(event.message.content)
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
        """Send the call as it runs: a call of a server may have another name now."""
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
        """Return the change of a call that wrote a whole file, if the earlier content was kept."""
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
            call.is_detached = True  # its child goes on, and ends the call
            stream.calls.pop(event.call_id)
            return
        stream.close_call(call, status="failed" if result.error else "completed", content=content)
        entries = make_plan(call.block.arguments) if call.view == "todos" else None
        if entries is not None and not result.error:
            stream.send("plan", entries=entries)
