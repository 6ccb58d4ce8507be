"""Slash command that shows and changes the project's task board."""

from __future__ import annotations

import asyncio

from ...._projections.board_lines import count_tasks, format_ready, format_task
from ....errors import UsageError
from ...actions.board import open_board
from ..conversation import Conversation

_USAGE = "Write /tasks, /tasks add SUBJECT or /tasks done N."


async def tasks(conversation: Conversation, arguments: str) -> None:
    """Show the tasks; add one, or mark one as done."""
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
