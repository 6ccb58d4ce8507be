"""`mudroom -p`: read the prompt and run it once."""

from __future__ import annotations

import sys
from typing import Any

from ...config import Settings
from ..output.progress import print_notice
from .preload import preload_packages


def run_print_mode(
    words: str | None, settings: Settings, *, wait_for_stdin: bool, **options: Any
) -> int:
    """Run one prompt and return the exit code.

    Arguments:
        words: prompt of the command line; None if it comes from stdin.
        wait_for_stdin: read stdin to its end without a timeout. options: see `run_one_shot`.
    """
    preload_packages(settings.model)
    import asyncio  # slow to import, as is one_shot: both beside the preloading thread

    from .one_shot import run_one_shot
    from .read_prompt import read_prompt

    prompt = read_prompt(words, sys.stdin, wait=wait_for_stdin, warn=print_notice)
    return asyncio.run(run_one_shot(prompt, settings, **options))
