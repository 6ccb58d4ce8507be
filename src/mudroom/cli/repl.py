"""The prompt to type at: session after session with one face, until the person leaves."""

from __future__ import annotations

import sys
from typing import Any

from msgspec.structs import replace

from .._version import __version__
from ..config import Settings
from .approve import Asked, introduced
from .commands import COMMANDS, recap
from .going_on import NEW, Start, begun
from .permissions import permitted
from .print_mode import session
from .screens import drawable
from .talk import Face, Next, Talk


async def converse(
    settings: Settings, *, cwd: str, start: Start = NEW, first: str = "", early: str = "", verbose: bool = False, quiet: bool = False
) -> int:
    """Talk until the person leaves; the exit code.

    Arguments:
        start: which session it begins with. first: a prompt given on the command line, run before anything is asked.
        early: what was typed before there was a prompt. quiet: no notices.
    """
    after, before = Next(), ""
    face = _face(settings, cwd, verbose)
    face.paper.lines([("mudroom ", "bold"), (__version__, "dim"), ("   /help and ? say what you can do", "dim")])
    async with face:
        face.take(early)
        approver, settings = Asked(face), await introduced(face, settings, cwd)
        while after.code is None:
            chosen: dict[str, Any] = {"model": after.model} if after.model else {}
            opened = session(settings, cwd, prices=True, approver=approver, **start.opening, **chosen)
            talk = Talk(opened, face, settings, COMMANDS)
            talk.status.mode = permitted(settings, cwd)[0].mode
            async with opened, talk.stack:
                begun(opened, settings.home, start)
                talk.status.model = opened.model
                if start.resume:
                    talk.take_up()
                if start.resume and start.resume != before:
                    recap(talk)
                for notice in () if quiet or before else opened.notices:
                    talk.say(notice, "dim")
                face.attach(talk)
                after = await talk.until_done(first)
            before, first, start = opened.id, "", Start(resume=after.resume)
            settings = replace(settings, permission_mode=after.mode or settings.permission_mode)
    return after.code or face.code


def _face(settings: Settings, cwd: str, verbose: bool) -> Face:
    if settings.screen == "plain" or not (drawable(sys.stdin) and drawable(sys.stdout)):
        from .lines import Lines

        return Lines(settings, verbose=verbose)
    from .desk import Desk

    return Desk(settings, cwd)
