"""`mudroom -p`: read the prompt and run it once."""

from __future__ import annotations

import sys

from ..output.progress import print_notice
from .session_start import StartOptions


def run_print_mode(words: str | None, options: StartOptions, *, wait_for_stdin: bool) -> int:
    """Run one prompt and return the exit code.

    Arguments:
        words: prompt of the command line; None if it comes from stdin.
        wait_for_stdin: read stdin to its end without a timeout.
    """
    import asyncio

    from .one_shot import run_one_shot
    from .read_prompt import read_prompt

    prompt = read_prompt(words, sys.stdin, wait=wait_for_stdin, warn=print_notice)
    return asyncio.run(run_one_shot(prompt, options))
