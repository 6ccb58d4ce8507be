"""The settings of a command line, and what all its commands share."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from ...errors import UsageError

if TYPE_CHECKING:
    import click
    from click.shell_completion import CompletionItem

CONTEXT_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "max_content_width": 120}
"""Context settings of every command."""


def load_settings(cwd: str, **flags: Any) -> Any:
    """Settings of this command line, once the folder is known to be there.

    Raises UsageError: no such folder, or a wrong setting.
    """
    from ... import config

    if not os.path.isdir(cwd):
        raise UsageError(
            "no such directory" if not os.path.exists(cwd) else "not a directory",
            where=cwd,
            remedy="Name a folder with -C.",
        )
    return config.load_settings(cwd=cwd, environ=os.environ, flags=flags)


def complete_folders(_: click.Context, __: click.Parameter, begun: str) -> list[CompletionItem]:
    """What a shell completes an option to that takes a folder."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(begun, type="dir")]
