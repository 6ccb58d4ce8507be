"""What happens behind the prompt: session after session with one face, until the person leaves."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec.structs import replace

from ...config import Settings
from ..actions.load_permissions import permitted
from ..actions.open_session import session
from ..actions.preload import warm
from ..actions.select_session import begun, tidy
from ..actions.session_start import Start
from ..output.sandbox_notice import walls
from .approvals import Asked, introduced
from .conversation import Face, Next, Talk
from .slash_commands import COMMANDS, recap


async def conversed(
    face: Face, settings: Settings, cwd: str, start: Start, *, first: str = "", quiet: bool = False
) -> int:
    """Talk until the person leaves; the exit code. Arguments as those of `repl.converse`."""
    warm(settings.model, talking=True)
    after, before = Next(), ""
    approver, settings = Asked(face), await introduced(face, settings, cwd)
    while after.code is None:
        chosen: dict[str, Any] = {"model": after.model} if after.model else {}
        opened = session(settings, cwd, prices=True, approver=approver, **start.opening, **chosen)
        talk = Talk(opened, face, settings, COMMANDS)
        talk.status.mode = permitted(settings, cwd)[0].mode
        async with opened, talk.stack:
            begun(opened, settings.home, start)
            if start.resume:
                talk.take_up()
            talk.status.model = opened.model
            if start.resume and start.resume != before:
                recap(talk)
            for notice in (
                ()
                if quiet or before
                else (walls(opened, network=settings.allow_net), *opened.notices)
            ):
                talk.say(notice, "dim") if notice else None
            if not before and (tidied := await asyncio.to_thread(tidy, settings)):
                talk.say(tidied, "dim")
            face.attach(talk)
            after = await talk.until_done(first)
        before, first, start = opened.id, "", Start(resume=after.resume)
        settings = replace(settings, permission_mode=after.mode or settings.permission_mode)
    return after.code or face.code
