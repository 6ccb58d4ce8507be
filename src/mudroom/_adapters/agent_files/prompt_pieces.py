"""Parts of the text of a command or a skill that are no text."""

from __future__ import annotations

from msgspec import Struct


class ShellText(Struct, frozen=True):
    """A shell command in a text; its output takes the place of `source`.

    Arguments:
        problem: why the command must not run, "" if it may.
    """

    command: str
    source: str
    problem: str = ""
