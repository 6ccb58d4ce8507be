"""Hooks for messages of the user that arrive while a run works."""

from __future__ import annotations

from ..._core.ports.hooks import Hooks, MessageHookDecision, check_hook_result
from ..._core.runs import Brief
from .inbox import Inbox, JudgedMessages, format_message

REFUSED_MESSAGE = "[hook] A message of the user was refused. It is not shown to you."


async def judge_messages(inbox: Inbox, hooks: Hooks, brief: Brief) -> None:
    """Show the unread messages of the user to the hooks, also those that come meanwhile.

    A message that comes later stays unread until it is judged.

    Raises StoppedByHook.
    """
    judged = inbox.judged = inbox.judged or JudgedMessages()
    if not inbox.has_unread:
        return
    await inbox.flush()
    while new := [each for each in inbox.list_of_user() if each.id not in judged.texts]:
        for message in new:
            decision = await hooks.on_message(brief, message.text)
            decision = check_hook_result("on_message", decision, MessageHookDecision)
            is_refused = decision is not None and bool(decision.denial)
            judged.texts[message.id] = REFUSED_MESSAGE if is_refused else format_message(message)
            if decision and decision.context:
                judged.contexts.append(decision.context)
