"""The answer to the first request of a host, which is sent before the package `mcp` is imported.

The import takes about a second, and the first request of a host is always the same. So the answer
of the package is kept for the next start. Nothing of the protocol is written here.
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

FILE = "mcp/first-answers.json"  # file of the answers, in mudroom's state folder
_METHODS = ("initialize", "server/discover")
_MAX_KEPT = 20  # answers of different requests that are kept


class FirstAnswer:
    """The lines of a host, the first of which may be answered at once."""

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
        """Yield all lines, the first one included. Call this after `begin` has returned."""
        if self._first is not None:
            yield self._first
        async for line in self._rest:
            yield line

    def suppresses(self, message: bytes) -> bool:
        """Tell whether a message of the package must not be sent: the host has the answer."""
        return self._sent is not None and self._read_answer(message) is not None

    def keep(self, message: bytes) -> None:
        """Keep the answer of the package to the first request, once; forget it for an error.

        Call this after `suppresses`, which is false from then on.
        """
        answer = self._read_answer(message)
        if answer is None:
            return
        key = self._key
        self._key = ""
        if answer.get("result") != self._sent:
            with suppress(OSError):  # then the next start is slower
                self._store(key, answer.get("result"))

    def _read_answer(self, message: bytes) -> dict[str, Any] | None:
        """Return the answer to the first request, None for other messages and after `keep`."""
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
    """Return what changes with each installation of the package; its version takes 0.2 s."""
    spec = find_spec("mcp")
    origin = spec.origin if spec and spec.origin else ""
    return origin, os.stat(origin).st_mtime_ns if origin else 0
