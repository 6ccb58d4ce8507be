"""Slash commands that change the session or its rules, or write its contents elsewhere."""

from __future__ import annotations

import base64
import os
from pathlib import Path

from msgspec.structs import replace

from ...._core.listings import count_noun
from ...._projections.safe_text import sanitize_line
from ...._projections.transcript import ADDED_RULE, REMOVED_RULE
from ....errors import UsageError
from ...actions.session_store import find_session, read_session_folder, resolve_replayed
from ...actions.user_store import open_store
from ..conversation import Conversation, NextStep
from ..recap import choose_session

# Permission modes in the order of Shift+Tab.
MODE_DESCRIPTIONS = {
    "default": "ask before edits and before commands that do more than read",
    "acceptEdits": "run edits and sandboxed commands without asking",
    "plan": "read only",
}


async def clear(conversation: Conversation, _: str) -> NextStep:
    conversation.print_text(
        "Started a new session. The previous one is saved (mudroom runs).", "dim"
    )
    return NextStep(is_cleared=True)


async def exit_prompt(conversation: Conversation, _: str) -> NextStep:
    return NextStep(exit_code=0)


async def compact(conversation: Conversation, focus: str) -> None:
    await conversation.compact(focus)


async def model(conversation: Conversation, name: str) -> None:
    from ...._adapters.models.providers import list_usable_models, parse_model_name

    current = conversation.session.model
    if not name:
        names = [*list_usable_models(os.environ), "offline"]
        name = (
            await conversation.ui.choose(
                f"Current model: {current}. Choose another, or type a name.",
                [(other, other) for other in names if other != current],
                free_text=True,
            )
            or ""
        )
    if not name:
        return
    # The ids of replayed sessions are checked below.
    for part in name.split(","):
        if not part.strip().startswith("replay:"):
            parse_model_name(part.strip())
    store = open_store(conversation.settings.home)
    session = conversation.session
    name = await resolve_replayed(store, session.cwd, name, without=session.id)
    await conversation.open_again(replace(conversation.driver.plan, model=name))


async def mode(conversation: Conversation, name: str) -> None:
    """Change the permission mode; "next" takes the next. Without a name, list the modes."""
    current = conversation.status.mode
    if not name:
        description = MODE_DESCRIPTIONS.get(current, "explained by mudroom permissions")
        conversation.print_text(f"{current}: {description}")
        conversation.ui.scrollback.write_table(MODE_DESCRIPTIONS.items())
        return
    if name == "next":
        name = _get_next_mode(current)
    if name not in MODE_DESCRIPTIONS:
        modes = ", ".join(MODE_DESCRIPTIONS)
        raise UsageError(f"no such mode: {name}", remedy=f"The modes are {modes}.")
    conversation.print_text(f"mode {name}: {MODE_DESCRIPTIONS[name]}", "dim")
    settings = replace(conversation.settings, permission_mode=name)
    await conversation.open_again(replace(conversation.driver.plan, settings=settings))


def _get_next_mode(current: str) -> str:
    modes = list(MODE_DESCRIPTIONS)
    return modes[(modes.index(current) + 1) % len(modes)] if current in modes else modes[0]


async def resume(conversation: Conversation, session_id: str) -> NextStep | None:
    """Continue another session of this folder, given by id or name or chosen from a list."""
    store = open_store(conversation.settings.home)
    current = conversation.session
    if session_id:
        chosen = await find_session(store, current.cwd, session_id, without=current.id)
        folder = await read_session_folder(store, chosen)
        if folder not in ("", current.cwd):  # with other settings, permissions and servers
            raise UsageError(
                "this session works in another folder",
                where=folder,
                remedy=f"In a shell: mudroom --resume {chosen[:8]}; if that folder was moved here, "
                f"mudroom -C . --resume {chosen[:8]}",
            )
        return None if chosen == current.id else NextStep(resume=chosen)
    chosen = await choose_session(
        conversation.ui, conversation.settings.home, current.cwd, without=current.id
    )
    return NextStep(resume=chosen) if chosen else None


async def rename(conversation: Conversation, name: str) -> None:
    await open_store(conversation.settings.home).rename(conversation.session.id, name)
    text = "Session name removed."
    if name:
        text = f"Session renamed to {name}. Resume it with: mudroom --resume {name!r}"
    conversation.print_text(text, "dim")


async def export(conversation: Conversation, file: str) -> None:
    """Write the conversation to a new file; the suffix chooses the format."""
    from ...actions.export import render_session

    session = conversation.session
    path = Path(session.cwd, os.path.expanduser(file or f"mudroom-{session.id[:8]}.txt"))
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise UsageError(
            f"the conversation cannot be written: {error.strerror}",
            where=str(path),
            remedy="Name a new file in a folder that exists: /export FILE",
        ) from None
    with open(descriptor, "w", encoding="utf-8", errors="replace") as target:
        async for piece in render_session(conversation.settings.home, session.id, path.suffix):
            target.write(piece)
    conversation.print_text(f"Written: {path}")


async def copy(conversation: Conversation, _: str) -> None:
    answer = conversation.last_answer
    if not answer:
        conversation.print_text("There is no answer to copy yet.")
        return
    encoded = base64.b64encode(answer.encode("utf-8", "replace")).decode()
    # OSC 52: the terminal copies, so this also works over SSH.
    conversation.ui.scrollback.write(f"\x1b]52;c;{encoded}\x07")
    conversation.print_text(
        f"Sent the last answer ({count_noun(len(answer), 'character')}) to the clipboard of the "
        "terminal.",
        "dim",
    )


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
    """Tell the model with the next prompt that a rule no longer applies."""
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
