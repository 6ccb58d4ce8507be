"""Start of the interactive prompt: draws the prompt first, imports the rest afterwards."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from ..._version import __version__
from ...config import Settings
from ..actions.session_start import NEW_SESSION, SessionStart
from ..output.progress import supports_cursor

if TYPE_CHECKING:
    from .conversation import UI


MIN_COLUMNS_FOR_HINT = 60
"""Columns from which the first line contains a hint."""


def run_prompt_ui(settings: Settings, **options: Any) -> int:
    """Run the prompt until the user leaves and return the exit code. Arguments as for `start_prompt`."""
    from .typeahead import hold_input

    with hold_input(settings.screen != "plain" and supports_cursor(sys.stdin)) as early:
        import asyncio  # slow to import: keys typed meanwhile are held

        return asyncio.run(start_prompt(settings, early=early, **options))


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
    """Run the interactive prompt until the user leaves; return the exit code.

    Arguments:
        start: the session to open first.
        first: prompt from the command line, run before any input is read.
        early: text typed before the prompt was there.
        quiet: print no notices.
    """
    ui = _create_ui(settings, cwd, verbose)
    wide = ui.scrollback.columns() >= MIN_COLUMNS_FOR_HINT
    hint = "   Type /help for commands, ? for shortcuts" if wide else ""
    ui.scrollback.write_lines([("mudroom ", "bold"), (__version__, "dim"), (hint, "dim")])
    async with ui:
        ui.add_early_input(early)
        from .session_loop import run_sessions

        return await run_sessions(ui, settings, cwd, start, first=first, quiet=quiet)


def _create_ui(settings: Settings, cwd: str, verbose: bool) -> UI:
    if settings.screen == "plain" or not (
        supports_cursor(sys.stdin) and supports_cursor(sys.stdout)
    ):
        from .plain_ui import PlainUI

        return PlainUI(settings, verbose=verbose)
    from .prompt_ui import PromptUI

    return PromptUI(settings, cwd)
