"""Slash commands for theme, vi keys, output styles and permission rules."""

from __future__ import annotations

import asyncio
import os

from msgspec.structs import replace

from ...._adapters.agent_files import NO_STYLE, find_style, fold_name, load_output_styles
from ...._projections.safe_text import escape_line
from ...._session.config import THEMES, find_user_file, write_setting
from ....errors import UnknownName, UsageError, suggest_names
from ....permissions.approved_rules import FOLDER_ORIGIN, format_rule
from ....permissions.rules import Rule
from ...actions.load_permissions import LoadedPermissions, load_permissions
from ..conversation import Conversation

_THEMES = {
    "auto": "ask the terminal for its background",
    "dark": "the palette of the terminal",
    "light": "darker colors for a light background",
}


async def theme(conversation: Conversation, name: str) -> None:
    """Use a theme, given by name or chosen from a list, and save it in the settings."""
    if not name:
        items = [(each, f"{each}: {text}") for each, text in _THEMES.items()]
        name = await conversation.ui.choose("Which theme?", items) or ""
    if not name:
        return
    if name not in THEMES:
        raise UsageError(f"no such theme: {name}", remedy=suggest_names(name, THEMES))
    if not conversation.ui.use_theme(name):
        conversation.print_text("Colors are off here: see the setting color and $NO_COLOR.", "dim")
    _save(conversation, "theme", name)


async def vim(conversation: Conversation, _: str) -> None:
    """Turn vi keys on or off, and save the choice in the settings."""
    is_on = conversation.ui.toggle_vi_keys()
    if is_on is None:
        conversation.print_text("Plain lines have no vi keys: the terminal edits the line.")
        return
    state = "on: Esc leaves the insert mode" if is_on else "off"
    conversation.print_text(f"The keys of vi are {state}.", "dim")
    _save(conversation, "vi_keys", "true" if is_on else "")


def _save(conversation: Conversation, name: str, value: str) -> None:
    path = find_user_file(os.environ)
    write_setting(path, name, value)
    conversation.print_text(f"Saved as {name} in {path}.", "dim")


_NO_STYLE_TEXT = "no output style"


async def output_style(conversation: Conversation, name: str) -> None:
    """Use an output style in this session; without a name, list the styles."""
    session = conversation.session
    loaded = await asyncio.to_thread(
        load_output_styles,
        session.cwd,
        user_home=os.environ.get("HOME", ""),
        plugins=session.plugins,
        trusts_folder=session.trusted,
    )
    styles = loaded.by_name
    if not name:
        rows = [(NO_STYLE, _NO_STYLE_TEXT)]
        rows += [(style.name, style.description) for style in styles.values()]
        conversation.ui.scrollback.write_table(
            (escape_line(each), f"{escape_line(text)}{_mark(each, session.output_style)}")
            for each, text in rows
        )
        if loaded.diagnostics:
            conversation.print_text("mudroom agents check has remarks about styles.", "dim")
        return
    style = find_style(styles, name)
    if style is None and fold_name(name) != NO_STYLE:
        remedy = loaded.explain_untrusted(name)
        raise UnknownName("output style", name, (NO_STYLE, *styles), remedy=remedy)
    chosen = style.name if style else NO_STYLE
    text = style.description if style else _NO_STYLE_TEXT
    conversation.print_text(f"output style {escape_line(chosen)}: {escape_line(text)}", "dim")
    await conversation.open_again(replace(conversation.driver.plan, output_style=chosen))


def _mark(name: str, current: str) -> str:
    return " (in use)" if name == current else ""


async def permissions(conversation: Conversation, arguments: str) -> None:
    """Show the permission rules, or remove one that the user approved."""
    session = conversation.session
    loaded = load_permissions(conversation.settings, session.cwd, can_ask=True)
    approved = _list_approved(conversation, loaded)
    action, _, number = arguments.partition(" ")
    if action:
        await _remove_rule(conversation, approved, action, number.strip())
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
    """List the rules the user approved for the folder, then those for the session."""
    kept = [rule for rule in loaded.permissions.rules if rule.origin == FOLDER_ORIGIN]
    texts = [format_rule(rule) for rule in kept]
    of_session = conversation.approvals.questions.rules
    return [*kept, *(rule for rule in of_session if format_rule(rule) not in texts)]


async def _remove_rule(
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
    conversation.approvals.questions.remove_rules(rule)
    conversation.print_text(f"Removed: {rule}", "dim")
    # A folder's rules are fixed when the session opens.
    if rule.origin == FOLDER_ORIGIN:
        conversation.driver.open_later()
        await conversation.open_again(conversation.driver.plan)
