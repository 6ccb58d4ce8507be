"""Slash command that shows the permission rules and removes those that the user approved."""

from __future__ import annotations

from ....errors import UsageError
from ....permissions.approved_rules import FOLDER_ORIGIN, format_rule
from ....permissions.rules import Rule
from ...actions.load_permissions import LoadedPermissions, load_permissions
from ..conversation import Conversation


async def permissions(conversation: Conversation, arguments: str) -> None:
    session = conversation.session
    loaded = load_permissions(conversation.settings, session.cwd, can_ask=True)
    approved = _list_approved(conversation, loaded)
    action, _, number = arguments.partition(" ")
    if action:
        await _remove(conversation, approved, action, number.strip())
        return
    conversation.print_text(f"mode {loaded.permissions.mode}; sandbox {session.sandbox.tier}")
    others = [rule for rule in loaded.permissions.rules if rule not in approved]
    for rule in others:
        conversation.print_text(f"  {rule}")
    for number, rule in enumerate(approved, 1):
        conversation.print_text(f"  {number}. {rule}")
    if approved:
        conversation.print_text("  /permissions remove N removes an approved rule.", "dim")
    elif not others:
        conversation.print_text("  no rules")
    for notice in loaded.notices:
        conversation.print_text(f"  note: {notice}", "yellow")


def _list_approved(conversation: Conversation, loaded: LoadedPermissions) -> list[Rule]:
    """Return the rules that the user approved for the folder, then those for the session."""
    kept = [rule for rule in loaded.permissions.rules if rule.origin == FOLDER_ORIGIN]
    texts = [format_rule(rule) for rule in kept]
    of_session = conversation.approvals.questions.rules if conversation.approvals else ()
    return [*kept, *(rule for rule in of_session if format_rule(rule) not in texts)]


async def _remove(
    conversation: Conversation, approved: list[Rule], action: str, number: str
) -> None:
    numbers = [str(n) for n in range(1, len(approved) + 1)]
    if action != "remove" or number not in numbers:
        remedy = f"Write /permissions remove N, with N from 1 to {len(approved)}."
        raise UsageError(
            f"no approved rule has the number {number!r}",
            remedy=remedy if approved else "There are no approved rules.",
        )
    rule = approved[int(number) - 1]
    assert conversation.approvals
    conversation.approvals.questions.remove_rules(rule)
    conversation.print_text(f"Removed: {rule}", "dim")
    # The rules of a folder are fixed when the session is opened.
    if rule.origin == FOLDER_ORIGIN:
        conversation.driver.open_later()
        await conversation.open_again(conversation.driver.plan)
