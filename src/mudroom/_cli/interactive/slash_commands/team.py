"""Slash commands for named children, their unread messages, and the board's tasks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

from ...._core.listings import count_noun
from ...._core.runs import InboxMessage
from ...._projections.board_lines import count_tasks, format_ready, format_task
from ...._projections.run_tree import list_teammates
from ...._projections.safe_text import sanitize, sanitize_line
from ...._projections.team import Teammate, TeammateState, normalize_name
from ....errors import UsageError
from ...actions.board import open_board
from ...output.text import format_tokens
from ..conversation import Conversation

NO_TEAMMATES = (
    "There are no teammates. A child that the model starts with a name is one: ask for a child "
    "named alice."
)


async def team(conversation: Conversation, _: str) -> None:
    teammates = list_teammates(conversation.tree)
    if not teammates:
        conversation.print_text(NO_TEAMMATES)
        return
    unread = Counter(unread.child for unread in _list_unread(conversation))
    dot = conversation.ui.scrollback.glyphs.dot
    conversation.ui.scrollback.write_table(
        (mate.name, dot.join(_describe_teammate(mate, unread[mate.first_run])))
        for mate in teammates
    )
    if unread:
        conversation.print_text("/inbox shows the unread messages.", "dim")


def _describe_teammate(teammate: Teammate, unread: int) -> list[str]:
    state = "replaced by a newer child" if teammate.is_replaced else str(teammate.state)
    return [
        sanitize_line(teammate.agent),
        state,
        count_noun(len(teammate.briefs), "run"),
        f"{format_tokens(teammate.usage.total_tokens)} tokens",
        f"{unread:,} unread",
    ]


class UnreadMessage(Struct, frozen=True):
    """A message its receiver has not read.

    `child` is a named child's first run, else the receiver's run.
    """

    sender: str
    receiver: str
    child: str
    message: InboxMessage


async def inbox(conversation: Conversation, which: str) -> None:
    """List unread messages; show one by number, those of a name, or all in full."""
    messages = list(_list_unread(conversation))
    if not messages:
        conversation.print_text("There are no unread messages.")
        return
    if not which:
        arrow = conversation.ui.scrollback.glyphs.arrow
        conversation.ui.scrollback.write_table(
            (
                str(number),
                f"{each.sender} {arrow}{each.receiver}: {sanitize_line(each.message.text, 100)}",
            )
            for number, each in enumerate(messages, 1)
        )
        conversation.print_text(
            "/inbox N shows a message, /inbox NAME those of a name, /inbox all shows all.", "dim"
        )
        return
    for unread in _choose(messages, which):
        conversation.print_text(f"From {unread.sender} to {unread.receiver}:", "bold")
        conversation.print_text(sanitize(unread.message.text))


def _list_unread(conversation: Conversation) -> Iterator[UnreadMessage]:
    """Yield the messages to named children, then those waiting for an active run."""
    named: dict[str, Teammate] = {}
    seen: set[str] = set()
    for mate in list_teammates(conversation.tree):
        named.update((brief.run_id, mate) for brief in mate.briefs)
        seen.update(mate.unread)
        for message in mate.unread.values():
            yield UnreadMessage(_name_sender(message), mate.name, mate.first_run, message)
    for run in conversation.tree.walk():
        if run.report:
            continue
        mate = named.get(run.run_id)
        receiver = mate.name if mate else run.label
        child = mate.first_run if mate else run.run_id
        for message in list(run.unread.values()):
            if message.id not in seen:
                yield UnreadMessage(_name_sender(message), receiver, child, message)


def _name_sender(message: InboxMessage) -> str:
    return sanitize_line(message.name or message.sender)


def _choose(messages: list[UnreadMessage], which: str) -> list[UnreadMessage]:
    if which == "all":
        return messages
    if which.isdecimal() and 1 <= int(which) <= len(messages):
        return [messages[int(which) - 1]]
    names = (which, normalize_name(which))
    chosen = [each for each in messages if each.receiver in names or each.sender in names]
    if not chosen:
        raise UsageError(
            f"no unread message has the number or the name {sanitize_line(which)}",
            remedy="/inbox lists the unread messages.",
        )
    return chosen


async def approve(conversation: Conversation, arguments: str) -> None:
    """Approve a named child's plan: it then works in the mode it has without a plan."""
    await _answer_plan(conversation, arguments, is_approved=True)


async def reject(conversation: Conversation, arguments: str) -> None:
    """Reject a named child's plan: it plans again, with the text as the reason."""
    await _answer_plan(conversation, arguments, is_approved=False)


async def _answer_plan(conversation: Conversation, arguments: str, *, is_approved: bool) -> None:
    name, _, text = arguments.partition(" ")
    if not name:
        mates = conversation.session.runs.teammates
        waiting = [mate.name for mate in mates if mate.state is TeammateState.WAITS_FOR_APPROVAL]
        raise UsageError(
            "the name of a child is missing",
            remedy=f"Plans wait from: {', '.join(waiting) or 'no child'}.",
        )
    await conversation.send_message(name, text.strip(), approve=is_approved)


_USAGE = "Write /tasks, /tasks add SUBJECT or /tasks done N."


async def tasks(conversation: Conversation, arguments: str) -> None:
    action, _, value = arguments.partition(" ")
    lines = await asyncio.to_thread(_act, conversation.session.cwd, action, value.strip())
    for line in lines:
        conversation.print_text(line)


def _act(cwd: str, action: str, value: str) -> list[str]:
    """Act on the board; return the lines to show. Raises UsageError, BoardError."""
    with open_board(cwd) as board:
        if not action:
            listed = board.list_tasks()
            if not listed:
                return ["The task board of this project is empty. Add a task: /tasks add SUBJECT"]
            return [*map(format_task, listed), count_tasks(listed)]
        if action == "add" and value:
            return [format_task(board.add(value))]
        number = value.removeprefix("#")
        if action == "done" and number.isdecimal():
            return [f"#{number} is done{format_ready(board.mark_done(int(number)))}"]
    raise UsageError(f"/tasks {action} is not known, or lacks a value", remedy=_USAGE)
