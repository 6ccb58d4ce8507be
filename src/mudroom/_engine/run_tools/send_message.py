"""The send_message tool: sends a message to children, teammates or the parent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ..._core.events import MessageSent
from ..._core.ports import RunHandle
from ..._core.runs import InboxMessage
from ..._core.tools import Effect, Tool, ToolCategory, ToolResult
from ..._projections.team import MESSAGE_TOOL, normalize_name
from ...errors import suggest_names
from ..run_context import RunContext
from ..team_registry import ALL, PARENT_NAMES, TeamRequest, add_answer

if TYPE_CHECKING:
    from ..call_context import CallContext
    from ..children.members import TeamMembers

MAX_CHARACTERS = 8_000  # of a message
LONG_SECONDS = 1.0  # a call running longer is named to the sender


class Arguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of the send_message tool.

    `summary` is for screens. `request_id` and `msg_type` may be left out, since a child has at most
    one open request.
    """

    to: str = ""
    message: str = ""
    approve: bool | None = None
    summary: str = ""
    request_id: str = ""
    msg_type: str = ""


def _parse(arguments: dict[str, Any]) -> Arguments:
    parsed = msgspec.convert(arguments, Arguments, strict=False)
    message = add_answer(parsed.message, parsed.approve)
    parsed = msgspec.structs.replace(parsed, message=message)
    if not (parsed.to or parsed.request_id):
        raise ValueError("to: missing; the name or id of the receiver")
    if not parsed.message.strip():
        raise ValueError("message: empty; write what the receiver must know")
    if len(parsed.message) > MAX_CHARACTERS:
        raise ValueError(
            f"message: longer than {MAX_CHARACTERS:,} characters; write it to a file and name that"
        )
    return parsed


def _get_key(_: Arguments) -> str:
    """Return the same key for all messages, so that an answer's are sent in call order."""
    return MESSAGE_TOOL


async def _run(context: CallContext, arguments: Arguments) -> ToolResult:
    run = context.run
    to = arguments.to or arguments.request_id.removesuffix("#end")
    parent = _choose_parent(run, to)
    is_team = parent != run.run_id or _is_named(run, to)
    results: list[ToolResult] = []
    if parent == run.run_id:
        unnamed = _select_unnamed(run)
        receivers = list(unnamed) if to == ALL else [to]
        handles = [unnamed[each] for each in receivers if each in unnamed]
        if handles:
            results.append(await _send_to_unnamed(context, handles, arguments.message))
        elif not is_team:
            return ToolResult(_explain_unknown(run, to), error=True)
    if is_team:
        request = TeamRequest(
            parent,
            run.run_id,
            context.place,
            to,
            arguments.message,
            arguments.approve,
            context.call_id if parent == run.run_id else "",
        )
        reply = await run.services.teams.send(request)
        results.append(ToolResult(reply.text, reply.is_error))
    text = "\n".join(result.text for result in results)
    return ToolResult(text, all(result.error for result in results))


def _choose_parent(run: RunContext, to: str) -> str:
    """Return the id of the run whose team includes the receiver: this run or its parent."""
    brief = run.brief
    if not brief.name:
        return run.run_id
    if normalize_name(to) in PARENT_NAMES:
        return brief.parent
    if to == ALL:
        return run.run_id if "task" in run.tools else brief.parent
    background = run.background
    is_own = to in background.titles or _is_named(run, to)
    return run.run_id if is_own else brief.parent


def _get_members(run: RunContext) -> TeamMembers:
    from ..children.start_child import open_team

    return open_team(run).members


def _is_named(run: RunContext, to: str) -> bool:
    """Return whether the receiver is a named child of the run, or all of them and there is one."""
    members = _get_members(run)
    if to == ALL:
        return bool(members.list_names())
    return normalize_name(to) in members.active or members.find(to) is not None


def _select_unnamed(run: RunContext) -> dict[str, RunHandle]:
    """Return the handles of working children without a name, by id."""
    named = {active.work_id for active in _get_members(run).active.values()}
    return {each: handle for each, handle in run.background.children.items() if each not in named}


def _explain_unknown(run: RunContext, to: str) -> str:
    """Explain why no child of the run gets the message."""
    if run.background.is_reported(to):
        return f"{to} has ended: start a new child."
    if normalize_name(to) in PARENT_NAMES:
        return "Nothing was sent: you have no parent. Write it in your answer."
    known = [*run.background.children, *_get_members(run).list_names()]
    return f"No child {to!r} works in the background. {suggest_names(to, known)}"


async def _send_to_unnamed(context: CallContext, handles: list[RunHandle], text: str) -> ToolResult:
    sent = [handle.run_id for handle in handles if await _send(context, handle, text)]
    if not sent:
        to = ", ".join(handle.run_id for handle in handles)
        return ToolResult(f"Nothing was sent: {to} has not begun or is ending.", error=True)
    text = f"Sent to {', '.join(sent)}. It is read after the current tool calls."
    return ToolResult(text + "".join(map(_describe_long_call, handles)))


def _describe_long_call(handle: RunHandle) -> str:
    """Describe a child's current call if it takes long; else ""."""
    current = handle.find_current_call()
    if current is None or current[1] < LONG_SECONDS:
        return ""
    return f" {handle.run_id} is in {current[0]}, {current[1]:.0f} s so far."


async def _send(context: CallContext, handle: RunHandle, text: str) -> bool:
    """Send a message and wait until it is stored. Return False if the child cannot take it."""
    message = InboxMessage(f"{context.place}:{handle.run_id}", text, context.run_id)
    past = context.run.services.past_events.get(handle.run_id, ())
    if any(isinstance(event, MessageSent) and event.message.id == message.id for event in past):
        return True
    return handle.send(message) and await handle.wait_until_stored(message.id)


SEND_MESSAGE = Tool(
    name=MESSAGE_TOOL,
    description="Send a message to a child. A named one works again with it.",
    parameters={
        "type": "object",
        "properties": {
            "to": {"type": "string", "description": "name, task id, or * for all"},
            "message": {"type": "string"},
            "approve": {"type": "boolean"},
        },
        "required": ["to"],
    },
    parse=_parse,
    run=_run,
    effect=Effect.KEYED,
    get_key=_get_key,
    category=ToolCategory.AGENT,
    needs_children=True,
    title_argument="message",
    argument_aliases={
        "content": "message",
        "feedback": "message",
        "reason": "message",
        "target": "to",
        "recipient": "to",
        "teammate": "to",
        "agent_id": "to",
        "id": "to",
    },
)
