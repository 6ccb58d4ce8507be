"""The prompt of a one-shot run: the words of the command line, joined with piped text."""

from __future__ import annotations

import os
import select
from collections.abc import Callable
from typing import IO, Any

from ..._core.listings import format_size
from ..._core.messages import estimate_tokens
from ...errors import UsageError

MAX_STDIN_BYTES = 10 * 1024 * 1024

# Tokens of piped text from which a line says how large it is: each request sends it again.
MANY_TOKENS = 50_000

# Seconds to wait for the first byte: many programs neither write to their pipe nor close it.
STDIN_TIMEOUT = 3.0


def read_prompt(
    words: str | None,
    stdin: IO[Any] | None,
    *,
    wait: bool,
    warn: Callable[[str], None],
    timeout: float = STDIN_TIMEOUT,
) -> str:
    """Read the whole prompt.

    Arguments:
        words: the command line's prompt; None if all of it comes from stdin.
        stdin: of this process; None if it was closed. A terminal is not read.
        wait: read stdin to its end without a timeout. warn: takes one line for stderr.
        timeout: seconds to wait for the first byte otherwise.

    Raises UsageError if the prompt is empty, too large, or not UTF-8.
    """
    if words is None:
        piped = _decode(_read_pipe(stdin, None, warn), warn).strip()
        if not piped:
            raise UsageError(
                "the prompt is empty",
                remedy='Nothing came on stdin. Describe the task: mudroom -p "…"',
            )
        return piped
    if not words.strip():
        raise UsageError(
            "the prompt is empty",
            remedy='Describe the task: mudroom -p "find the testing framework"',
        )
    try:
        # Arguments with bytes that are not UTF-8 contain surrogates, which no provider accepts.
        words.encode()
    except UnicodeEncodeError:
        raise UsageError("the prompt is not UTF-8", remedy="Check the terminal's locale.") from None
    piped = _decode(_read_pipe(stdin, None if wait else timeout, warn), warn)
    if not piped.strip():
        return words
    from ..._projections.engine_text import quote, wrap  # most prompts have no input

    return f"{words}\n\n{wrap('stdin', quote(piped.rstrip()))}"


def _decode(data: bytes, warn: Callable[[str], None]) -> str:
    """Return the text of stdin; say how large it is if it costs a lot."""
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"stdin is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}",
            remedy="Convert it first (iconv -t utf-8), or name the file in the prompt.",
        ) from None
    tokens = estimate_tokens(text)
    if tokens >= MANY_TOKENS:
        warn(
            f"stdin has {format_size(len(data))}, about {tokens:,} tokens, which each request "
            "sends; name a file instead, and only what is read of it is sent"
        )
    return text


def _read_pipe(stdin: IO[Any] | None, timeout: float | None, warn: Callable[[str], None]) -> bytes:
    if stdin is None or stdin.isatty():
        return b""
    descriptor = stdin.fileno()
    try:
        readable, _, _ = select.select([descriptor], [], [], timeout)
        if readable:
            return _read_all(descriptor)
        warn(
            f"no input on stdin within {timeout:.0f} s; continuing without it"
            ' (add "-" after the prompt to wait for it)'
        )
    except OSError as error:
        warn(f"stdin cannot be read ({error.strerror}); continuing without it")
    return b""


def _read_all(descriptor: int) -> bytes:
    data = bytearray()
    while chunk := os.read(descriptor, 1 << 20):
        data += chunk
        if len(data) > MAX_STDIN_BYTES:
            raise UsageError(
                "stdin is larger than 10 MB",
                remedy="Save it as a file in the folder and name that file in the prompt.",
            )
    return bytes(data)
