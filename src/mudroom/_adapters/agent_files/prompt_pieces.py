"""The parts of a command's or skill's text that are not plain text."""

from __future__ import annotations

from msgspec import Struct


class ShellText(Struct, frozen=True):
    """A shell command in a text; its output replaces `source`.

    Arguments:
        problem: why the command must not run, "" if it may.
    """

    command: str
    source: str
    problem: str = ""
