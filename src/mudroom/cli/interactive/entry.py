"""The prompt to type at: there first of all; what answers at it is imported once it is drawn."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..._version import __version__
from ...config import Settings
from ..actions.session_start import NEW_SESSION, SessionStart
from ..output.progress import supports_cursor

if TYPE_CHECKING:
    from .conversation import UI


MIN_COLUMNS_FOR_HINT = 60
"""Columns from which the first line has a hint."""


async def start_prompt(
    settings: Settings,
    *,
    cwd: str,
    start: SessionStart = NEW_SESSION,
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
    hint = (
        "   /help and ? say what you can do"
        if face.scrollback.columns() >= MIN_COLUMNS_FOR_HINT
        else ""
    )
    face.scrollback.write_lines([("mudroom ", "bold"), (__version__, "dim"), (hint, "dim")])
    async with face:
        face.add_early_input(early)
        from .session_loop import run_sessions

        return await run_sessions(face, settings, cwd, start, first=first, quiet=quiet)


def _face(settings: Settings, cwd: str, verbose: bool) -> UI:
    if settings.screen == "plain" or not (
        supports_cursor(sys.stdin) and supports_cursor(sys.stdout)
    ):
        from .plain_ui import PlainUI

        return PlainUI(settings, verbose=verbose)
    from .prompt_ui import PromptUI

    return PromptUI(settings, cwd)
