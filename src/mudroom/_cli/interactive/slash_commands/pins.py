"""Slash commands for rules that every compaction keeps word for word."""

from __future__ import annotations

from ...._projections.safe_text import sanitize_line
from ...._projections.transcript import ADDED_RULE, REMOVED_RULE
from ....errors import UsageError
from ..conversation import Conversation


async def pin(conversation: Conversation, rule: str) -> None:
    """Send a rule with the next prompt; without a rule, list all of them with numbers."""
    text = " ".join(rule.split())
    if not text:
        _print_rules(conversation)
        return
    conversation.add_to_prompt(ADDED_RULE + text)
    conversation.print_text(
        "Your next prompt sends this rule. Each compaction keeps it word for word.", "dim"
    )


async def unpin(conversation: Conversation, number: str) -> None:
    """Say with the next prompt that a rule ends. `number`: of the rule in the list."""
    rules = conversation.list_rules()
    if not (number.isdecimal() and 1 <= int(number) <= len(rules)):
        remedy = "Name a number of the list that /pin shows." if rules else "There are no rules."
        raise UsageError(f"no rule has the number {number!r}", remedy=remedy)
    rule = rules[int(number) - 1]
    conversation.add_to_prompt(REMOVED_RULE + rule)
    conversation.print_text(
        f"Your next prompt says that this rule ends: {sanitize_line(rule)}", "dim"
    )


def _print_rules(conversation: Conversation) -> None:
    rules = conversation.list_rules()
    if not rules:
        conversation.print_text(
            "No rules. /pin RULE adds one; so does a line of a prompt that begins with a word such "
            "as never or always."
        )
        return
    conversation.ui.scrollback.write_table(
        (str(number), sanitize_line(rule)) for number, rule in enumerate(rules, 1)
    )
    conversation.print_text("Each compaction keeps these rules. /unpin N removes one.", "dim")
