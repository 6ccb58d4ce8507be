"""Starts the interactive prompt: draws it first, and imports the rest afterwards."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from ..._version import __version__
from ..actions.session_start import StartOptions
from ..output.progress import supports_cursor

if TYPE_CHECKING:
    from .session_loop import SessionUI


# Columns; narrower terminals have no room for a hint on the first line.
MIN_COLUMNS_FOR_HINT = 60


def run_prompt_ui(options: StartOptions, *, first: str = "") -> int:
    from .typeahead import hold_input

    with hold_input(options.settings.screen != "plain" and supports_cursor(sys.stdin)) as early:
        # Slow to import; keys typed meanwhile are kept.
        from ..._platform.event_loop import run_event_loop

        return run_event_loop(_start_prompt(options, first, early))


async def _start_prompt(options: StartOptions, first: str, early: str) -> int:
    ui = _create_ui(options)
    ui.add_early_input(early)
    wide = ui.scrollback.columns() >= MIN_COLUMNS_FOR_HINT
    hint = "   Type /help for commands, ? for shortcuts" if wide else ""
    ui.scrollback.write_lines([("mudroom ", "bold"), (__version__, "dim"), (hint, "dim")])
    async with ui:
        from .session_loop import run_sessions

        return await run_sessions(ui, options, first=first)


def _create_ui(options: StartOptions) -> SessionUI:
    settings = options.settings
    if settings.screen == "plain" or not (
        supports_cursor(sys.stdin) and supports_cursor(sys.stdout)
    ):
        from .plain_ui import PlainUI

        return PlainUI(settings, verbose=options.verbose)
    from .prompt_ui import PromptUI

    return PromptUI(settings, options.cwd)
