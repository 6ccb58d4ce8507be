"""The prompt to type at: there first of all; what answers at it is imported once it is drawn."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..._version import __version__
from ...config import Settings
from ..actions.session_start import NEW, Start
from ..output.progress import movable

if TYPE_CHECKING:
    from .conversation import Face


WIDE = 60
"""Columns from which the first line has a hint."""


async def converse(
    settings: Settings,
    *,
    cwd: str,
    start: Start = NEW,
    first: str = "",
    early: str = "",
    verbose: bool = False,
    quiet: bool = False,
) -> int:
    """Talk until the person leaves; the exit code.

    Arguments:
        start: which session it begins with. first: a prompt given on the command line, run before anything is asked.
        early: what was typed before there was a prompt. quiet: no notices.
    """
    face = _face(settings, cwd, verbose)
    hint = "   /help and ? say what you can do" if face.paper.columns() >= WIDE else ""
    face.paper.lines([("mudroom ", "bold"), (__version__, "dim"), (hint, "dim")])
    async with face:
        face.take(early)
        from .session_loop import conversed

        return await conversed(face, settings, cwd, start, first=first, quiet=quiet)


def _face(settings: Settings, cwd: str, verbose: bool) -> Face:
    if settings.screen == "plain" or not (movable(sys.stdin) and movable(sys.stdout)):
        from .plain_ui import Lines

        return Lines(settings, verbose=verbose)
    from .prompt_ui import Desk

    return Desk(settings, cwd)
