"""Asks the questions of MCP servers in lines of a terminal, for commands without a screen."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ...._core.ports import ApprovalDecision
from ...._core.ports.approval import FormField, InputForm, list_fields, parse_value
from ...._projections.safe_text import escape_hidden, sanitize_line
from ...output.progress import print_notice

_YES_OR_NO = FormField("answer", "boolean", is_required=True)


class TerminalQuestions:
    """Asks the user at stdin and stderr, if both are terminals, one question after another."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def ask(self, form: InputForm) -> ApprovalDecision:
        """Ask the user, who declines with the end of input (Ctrl-D)."""
        if not _has_terminal():
            why = "declined without asking: stdin or stderr is not a terminal"
            print_notice(f"{why}: {sanitize_line(form.message)}", prefix="")
            return ApprovalDecision(False, "no one can be asked")
        async with self._lock:
            return await _ask(form)


def _has_terminal() -> bool:
    streams = (sys.stdin, sys.stderr)
    return all(stream is not None and not stream.closed and stream.isatty() for stream in streams)


async def _ask(form: InputForm) -> ApprovalDecision:
    # What was typed before the question is shown does not answer it.
    with suppress(termios.error):  # the terminal has gone: the end of input declines
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
    print_notice(f"MCP server {form.server} asks: {escape_hidden(form.message)}", prefix="")
    fields = list_fields(form)
    if form.url:
        host = escape_hidden(urlsplit(form.url).hostname or "?")
        print_notice(
            f"It wants you to open this address:\n{escape_hidden(form.url)}\n"
            f"on the host {host}. mudroom does not open it.",
            prefix="",
        )
    if not fields:
        return _decide(await _ask_field(_YES_OR_NO, "Do you agree? (yes or no)") is True)
    print_notice("Ctrl-D declines.", prefix="")
    values: dict[str, Any] = {}
    for field in fields:
        value = await _ask_field(field, _describe_field(field))
        if value is _DECLINED:
            return _decide(False)
        if value is not None:
            values[field.name] = value
    return ApprovalDecision(True, "the user answered", arguments=values)


def _decide(is_allowed: bool) -> ApprovalDecision:
    return ApprovalDecision(is_allowed, "the user answered" if is_allowed else "the user declined")


def _describe_field(field: FormField) -> str:
    notes = [field.description]
    if field.choices:
        labels = ", ".join(label for _, label in field.choices)
        notes.append(f"{'some' if field.kind == 'choices' else 'one'} of: {labels}")
    elif field.kind == "boolean":
        notes.append("yes or no")
    else:
        notes += [field.kind, *field.describe_limits()]
    if field.default is not None:
        text = field.default
        text = text if isinstance(text, str) else msgspec.json.encode(text).decode()
        notes.append(f"Enter alone: {text}")
    elif not field.is_required:
        notes.append("not required")
    return escape_hidden(f"{field.label} ({'; '.join(filter(None, notes))})")


async def _ask_field(field: FormField, title: str) -> object:
    """Return the value of a field, None for no value, or _DECLINED."""
    while True:
        print_notice(f"{title}:", prefix="")
        line = await _read_line()
        if line is None:
            return _DECLINED
        if not line.strip() and not (field.is_required and field.default is None):
            return field.default
        try:
            return parse_value(field, line)
        except ValueError as error:
            print_notice(escape_hidden(str(error)), prefix="")


async def _read_line() -> str | None:
    """Read a line of the terminal, None at the end of input."""
    # With a reader of the event loop, unlike a thread in `readline`, this can be cancelled.
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()
    handle = sys.stdin.fileno()

    def read() -> None:
        loop.remove_reader(handle)
        try:
            data = os.read(handle, 1 << 16)
        except OSError:  # the terminal has gone
            data = b""
        if not line.done():
            line.set_result(data.decode("utf-8", "replace"))

    loop.add_reader(handle, read)
    try:
        text = await line
    finally:
        loop.remove_reader(handle)
    return text.rstrip("\n") if text else None


class _Mark:
    pass


# None is an answer, too: a field left empty.
_DECLINED = _Mark()
