"""The prompt of a one-shot run: words of the command line, joined with what is piped in."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import IO, Any

from ...errors import UsageError

MAX_STDIN_BYTES = 10 * 1024 * 1024
"""Most bytes taken from stdin."""

STDIN_TIMEOUT = 3.0
"""Seconds a pipe may stay silent when there is a prompt already: many programs leave theirs open and never write."""


def read_prompt(
    words: str | None,
    stdin: IO[Any] | None,
    *,
    wait: bool,
    warn: Callable[[str], None],
    timeout: float = STDIN_TIMEOUT,
) -> str:
    """The whole prompt.

    Arguments:
        given: words of the command line; None when all of it comes from stdin.
        stdin: this process's; None when it was closed. A terminal is not read.
        wait: read stdin to its end however long it stays silent. warn: takes one line for stderr.
        patience: seconds to wait for the first byte otherwise.

    Raises UsageError: nothing to do, too much, or not UTF-8.
    """
    if words is not None and not words.strip():
        raise UsageError(
            "the prompt is empty",
            remedy='Say what is to be done: mudroom -p "find the testing framework"',
        )
    if words is None:
        return _worded(_decode(_piped(stdin, None, warn)))
    try:
        words.encode()
    except UnicodeEncodeError:
        raise UsageError("the prompt is not UTF-8", remedy="Check the terminal's locale.") from None
    piped = _decode(_piped(stdin, None if wait else timeout, warn))
    return f"{words}\n\n<stdin>\n{piped.rstrip()}\n</stdin>" if piped.strip() else words


def _worded(text: str) -> str:
    if not text.strip():
        raise UsageError(
            "the prompt is empty",
            remedy='Nothing came on stdin. Say what is to be done: mudroom -p "…"',
        )
    return text.strip()


def _decode(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"stdin is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}",
            remedy="Convert it first (iconv -t utf-8), or name the file in the prompt.",
        ) from None


def _piped(stdin: IO[Any] | None, patience: float | None, warn: Callable[[str], None]) -> bytes:
    if stdin is None or stdin.isatty():
        return b""
    descriptor = stdin.fileno()
    try:
        if not select.select([descriptor], [], [], patience)[0]:
            warn(
                f"nothing came on stdin within {patience:.0f} s; going on without it (a last argument - waits for it)"
            )
            return b""
        return _read(descriptor)
    except OSError as error:
        warn(f"stdin cannot be read ({error.strerror}); going on without it")
        return b""


def _read(descriptor: int) -> bytes:
    data = bytearray()
    while chunk := os.read(descriptor, 1 << 20):
        data += chunk
        if len(data) > MAX_STDIN_BYTES:
            raise UsageError(
                "stdin is larger than 10 MB",
                remedy="Put it into a file of the folder and name that file in the prompt.",
            )
    return bytes(data)
