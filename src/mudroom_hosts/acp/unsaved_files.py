"""The tool `read` with the texts that are not saved in the editor yet."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from mudroom._adapters.tools import read
from mudroom._core.ports import ToolContext
from mudroom._core.tools import Tool, ToolResult
from mudroom._platform.time_limits import time_limit
from mudroom.errors import WorkspaceError

from .errors import RequestError

READ_METHOD = "fs/read_text_file"
MAX_BYTES = 1 << 20
"""Size of a file on the disk up to which the editor is asked; its answer is one line."""
SECONDS = 2.0
"""Seconds to wait for the editor."""
UNSAVED_NOTE = (
    "(these lines are not saved: the editor has a text of {path} that differs from the file, and "
    "edit, write, grep and bash see the file. Ask the user to save it before you change it.)"
)

AskClient = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


class UnsavedFiles:
    """Texts of the editor for one session.

    Arguments:
        ask: sends a request with its parameters to the editor. Raises RequestError.
        find_session: returns the id of the session.
        notify: takes a line for stderr.
        seconds: time for an answer. An editor that exceeds it is not asked again.
    """

    def __init__(
        self,
        ask: AskClient,
        find_session: Callable[[], str],
        notify: Callable[[str], object],
        *,
        seconds: float = SECONDS,
    ) -> None:
        self._ask = ask
        self._find_session = find_session
        self._notify = notify
        self._seconds = seconds
        self._is_silent = False
        self._saved_texts: dict[str, set[bytes]] = {}

    def make_tool(self) -> Tool:
        """Return the tool."""
        return replace(read.READ, run=self._read)

    async def _read(self, ctx: ToolContext, arguments: read.Arguments) -> ToolResult:
        """Read the lines of the editor's text if it differs from the file, else of the file."""
        path = ctx.workspace.locate(arguments.file_path)
        saved = None if self._is_silent else await asyncio.to_thread(_read_saved, ctx, path)
        if saved is not None:
            full_path = os.path.join(ctx.workspace.root, path)
            known = self._saved_texts.setdefault(full_path, set())
            known.add(_make_digest(saved))
            text = await self._fetch(full_path)
            # A text that was saved once is that of an editor which has not loaded a change yet.
            if text is not None and _make_digest(text) not in known:
                result = read.read_content(path, text.encode("utf-8", "replace"), arguments)
                return replace(result, text=f"{result.text}\n{UNSAVED_NOTE.format(path=path)}")
        return await read.run(ctx, arguments)

    async def _fetch(self, path: str) -> str | None:
        """Return the text that the editor has for a file, None if it gives none."""
        try:
            async with time_limit(self._seconds):
                params = {"sessionId": self._find_session(), "path": path}
                answer = await self._ask(READ_METHOD, params)
        except RequestError:
            return None  # such as a file that the editor does not show
        except TimeoutError:
            self._is_silent = True
            self._notify(
                f"the editor did not answer {READ_METHOD} in {self._seconds:g} s; this session "
                "reads saved files only"
            )
            return None
        text = answer.get("content")
        return text if isinstance(text, str) else None


def _read_saved(ctx: ToolContext, path: str) -> str | None:
    """Return the text of a file of the workspace, None for any other and for a large one."""
    if os.path.isabs(path):
        return None
    try:
        info = ctx.workspace.stat(path)
        if not stat.S_ISREG(info.mode) or info.size > MAX_BYTES:
            return None
        data = ctx.workspace.read(path, 0, MAX_BYTES + 1)
    except WorkspaceError:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return None if "\0" in text else text


def _make_digest(text: str) -> bytes:
    """Return a digest of a text as editors give it: without a byte order mark, lines end in LF."""
    normalized = text.removeprefix("\ufeff").replace("\r\n", "\n")
    return hashlib.blake2b(normalized.encode("utf-8", "surrogatepass"), digest_size=16).digest()
