"""Lines of a server that are no messages, and the request that each of them was to answer."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, NamedTuple, cast

KEPT_BYTES = 4096
"""Bytes that are kept of the beginning and of the end of a line that is too long."""

_SCALAR = rb'(?:"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null)'
_MEMBER = rb'\s*"\w+"\s*:\s*' + _SCALAR + rb"\s*"
# Only members directly behind the first brace, or directly before the last one, certainly belong
# to the message. Between them is the result, which can contain anything, such as another "id".
_FIRST_MEMBERS = re.compile(rb"\s*\{((?:" + _MEMBER + rb",)*)")
_LAST_MEMBERS = re.compile(rb"((?:," + _MEMBER + rb")+)\}\s*$")


class LongLine(NamedTuple):
    """Beginning and end of a line that is too long."""

    head: bytes
    tail: bytes


async def read_line(stream: asyncio.StreamReader) -> bytes | LongLine:
    """Return the next line, b"" at the end. The middle of a line above the limit is dropped."""
    head = tail = b""
    while True:
        try:
            rest = await stream.readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            rest = error.partial
        except asyncio.LimitOverrunError as error:
            part = await stream.readexactly(error.consumed)
            head = head or part[:KEPT_BYTES]
            tail = (tail + part[-KEPT_BYTES:])[-KEPT_BYTES:]
            continue
        return LongLine(head, (tail + rest)[-KEPT_BYTES:]) if head else rest


def read_members(line: bytes | LongLine) -> dict[str, Any]:
    """Return the members of a JSON-RPC message that are certain; {} if the line is none.

    Of a line that is too long or broken, these are the short members at its beginning; of one that
    is too long, also those at its end.
    """
    if isinstance(line, LongLine):
        members = _read_first_members(line.head) | _read_last_members(line.tail)
    else:
        try:
            value = json.loads(line)
        except ValueError:
            value = _read_first_members(line)
        members = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    return members if members.get("jsonrpc") == "2.0" else {}


def _read_first_members(head: bytes) -> dict[str, Any]:
    match = _FIRST_MEMBERS.match(head)
    return _decode_members(match[1]) if match else {}


def _read_last_members(tail: bytes) -> dict[str, Any]:
    match = _LAST_MEMBERS.search(tail)
    return _decode_members(match[1]) if match else {}


def _decode_members(text: bytes) -> dict[str, Any]:
    try:
        return json.loads(b"{" + text.strip(b" \t\r\n,") + b"}")
    except ValueError:
        return {}
