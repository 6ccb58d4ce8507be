"""A session shown at a prompt of plain lines."""

from __future__ import annotations

from mudroom import Session
from mudroom._cli.interactive.conversation import Conversation, Plan
from mudroom._cli.interactive.plain_ui import PlainUI
from mudroom._cli.interactive.questions.approvals import ApprovalPrompt
from mudroom._cli.interactive.slash_commands.registry import COMMANDS
from mudroom._session.config import Settings


def show(
    session: Session,
    settings: Settings,
    ui: PlainUI | None = None,
    approvals: ApprovalPrompt | None = None,
) -> Conversation:
    """Return the conversation of a session that is not open; `async with` opens both."""
    ui = ui or PlainUI(settings)
    return Conversation(
        lambda _plan, _start: session,
        Plan(settings),
        ui,
        COMMANDS,
        approvals=approvals or ApprovalPrompt(ui),
    )
