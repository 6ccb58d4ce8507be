"""What happens behind the prompt: session after session with one face, until the person leaves."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from ...config import Settings
from ..actions.load_permissions import load_permissions
from ..actions.open_session import create_session
from ..actions.preload import preload_packages
from ..actions.select_session import delete_expired_sessions, name_session
from ..actions.session_start import SessionStart
from ..output.sandbox_notice import describe_sandbox
from .approvals import ApprovalPrompt, ask_for_trust
from .conversation import UI, Conversation, NextStep
from .slash_commands import COMMANDS, print_recap


async def run_sessions(
    face: UI,
    settings: Settings,
    cwd: str,
    start: SessionStart,
    *,
    first: str = "",
    quiet: bool = False,
) -> int:
    """Talk until the person leaves; the exit code. Arguments as those of `repl.converse`."""
    preload_packages(settings.model, show_context_window=True)
    after, before = NextStep(), ""
    approver, settings = ApprovalPrompt(face), await ask_for_trust(face, settings, cwd)
    while after.exit_code is None:
        chosen: dict[str, Any] = {"model": after.model} if after.model else {}
        opened = create_session(
            settings, cwd, prices=True, approver=approver, **start.session_arguments, **chosen
        )
        talk = Conversation(opened, face, settings, COMMANDS)
        talk.status.mode = load_permissions(settings, cwd)[0].mode
        async with opened, talk.resources:
            name_session(opened, settings.home, start)
            if start.resume:
                talk.load_history()
            talk.status.model = opened.model
            if start.resume and start.resume != before:
                print_recap(talk)
            for notice in (
                ()
                if quiet or before
                else (describe_sandbox(opened, network=settings.allow_net), *opened.notices)
            ):
                talk.print_text(notice, "dim") if notice else None
            if not before and (
                tidied := await asyncio.to_thread(delete_expired_sessions, settings)
            ):
                talk.print_text(tidied, "dim")
            face.attach(talk)
            after = await talk.run_until_done(first)
        before, first, start = opened.id, "", SessionStart(resume=after.resume)
        settings = replace(settings, permission_mode=after.mode or settings.permission_mode)
    return after.exit_code or face.exit_code
