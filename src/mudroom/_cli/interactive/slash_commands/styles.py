"""Slash command that shows the output styles and chooses one."""

from __future__ import annotations

import asyncio
import os

from msgspec.structs import replace

from ...._adapters.agent_files import NO_STYLE, find_style, fold_name, load_output_styles
from ...._projections.safe_text import escape_line
from ....errors import UnknownName
from ..conversation import Conversation

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
