"""The answer to a host's first request, sent before the package `mcp` is imported.

The import takes about a second, and a host's first request is always the same, so the package's
answer is kept for the next start. This module knows nothing of the protocol.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from mudroom import __version__
from mudroom.driving import replace_private_file

from ..line_streams import LineInput, LineOutput
from .tool_definitions import INSTRUCTIONS, TOOLS

FILE = "mcp/first-answers.json"  # the kept answers, in mudroom's state folder
_METHODS = ("initialize", "server/discover")
_MAX_KEPT = 20  # answers to different requests


class FirstAnswer:
    """A host's lines, the first of which may be answered immediately."""

    def __init__(self, lines: LineInput, output: LineOutput, home: str) -> None:
        self.lines = lines
        self.output = output
        self._path = Path(home, FILE)
        self._rest = lines.read()
        self._first: bytes | None = None
        self._id: object = None
        self._key = ""
        self._sent: Any = None

    async def begin(self) -> None:
        """Wait for the first line, and answer it if the answer is known."""
        self._first = await anext(self._rest, None)
        try:
            message = msgspec.json.decode(self._first or b"", type=dict[str, Any])
        except msgspec.MsgspecError:
            return
        if message.get("method") not in _METHODS or not isinstance(message.get("id"), int | str):
            return
        self._id = message.pop("id")
        facts = (__version__, INSTRUCTIONS, TOOLS, _identify_package(), message)
        encoded = msgspec.json.encode(facts, order="deterministic")
        self._key = hashlib.sha256(encoded).hexdigest()
        self._sent = self._load().get(self._key)
        if self._sent is not None:
            answer = {"jsonrpc": "2.0", "id": self._id, "result": self._sent}
            self.output.write(msgspec.json.encode(answer) + b"\n")

    async def read(self) -> AsyncIterator[bytes]:
        """Yield all lines, including the first. Call this after `begin` has returned."""
        if self._first is not None:
            yield self._first
        async for line in self._rest:
            yield line

    def suppresses(self, message: bytes) -> bool:
        """Return whether to withhold one of the package's messages: the host has the answer."""
        return self._sent is not None and self._read_answer(message) is not None

    def keep(self, message: bytes) -> None:
        """Keep the package's answer to the first request, once; forget it on an error.

        Call this after `suppresses`, which is false from then on.
        """
        answer = self._read_answer(message)
        if answer is None:
            return
        key = self._key
        self._key = ""
        if answer.get("result") != self._sent:
            with suppress(OSError):  # only makes the next start slower
                self._store(key, answer.get("result"))

    def _read_answer(self, message: bytes) -> dict[str, Any] | None:
        """Read the answer to the first request, None for other messages and after `keep`."""
        if not self._key:
            return None
        answer = msgspec.json.decode(message, type=dict[str, Any])
        return answer if answer.get("id") == self._id and "method" not in answer else None

    def _load(self) -> dict[str, Any]:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=dict[str, Any])
        except (OSError, msgspec.MsgspecError):
            return {}

    def _store(self, key: str, result: object) -> None:
        """Store the answer to a request; remove it if the result is None."""
        answers = self._load()
        answers.pop(key, None)
        if result is not None:
            answers = {**dict(list(answers.items())[1 - _MAX_KEPT :]), key: result}
        replace_private_file(self._path, msgspec.json.encode(answers))


def _identify_package() -> tuple[str, int]:
    """Find what changes with each installation of the package; its version takes 0.2 s."""
    spec = find_spec("mcp")
    origin = spec.origin if spec and spec.origin else ""
    return origin, os.stat(origin).st_mtime_ns if origin else 0
