"""The tool `read`, showing text not yet saved in the editor."""

from __future__ import annotations

import asyncio
import hashlib
import os
import stat
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from mudroom import Tool, ToolContext, ToolResult
from mudroom.errors import WorkspaceError
from mudroom.ports import FileInfo, Workspace, time_limit
from mudroom.views import find_builtin_tool

from .json_rpc import RequestError

READ_METHOD = "fs/read_text_file"
MAX_BYTES = 1 << 20
"""Bytes; the editor is not asked for larger files on disk, as its answer is one line."""
SECONDS = 2.0  # seconds to wait for the editor
UNSAVED_NOTE = (
    "(these lines are not saved: the editor has a text of {path} that differs from the file, and "
    "edit, write, grep and bash see the file. Ask the user to save it before you change it.)"
)

AskClient = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]


class UnsavedFiles:
    """The editor's text for one session. An editor that is too slow is not asked again."""

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
        tool = find_builtin_tool("read")
        assert tool
        self._tool = tool
        self._is_silent = False
        self._saved_texts: dict[str, set[bytes]] = {}

    def make_tool(self) -> Tool:
        return replace(self._tool, run=self._read)

    async def _read(self, ctx: ToolContext, arguments: Any) -> ToolResult:  # noqa: ANN401
        """Read lines from the editor's text if it differs from the file, else from the file."""
        path = ctx.workspace.locate(arguments.file_path)
        saved = None if self._is_silent else await asyncio.to_thread(_read_saved, ctx, path)
        if saved is not None:
            full_path = os.path.join(ctx.workspace.root, path)
            known = self._saved_texts.setdefault(full_path, set())
            known.add(_make_digest(saved))
            text = await self._fetch(full_path)
            # Text that was saved before comes from an editor yet to load a change.
            if text is not None and _make_digest(text) not in known:
                files = _WithText(ctx.workspace, path, text.encode("utf-8", "replace"))
                context: Any = _WithFiles(ctx, files)
                result = await self._tool.run(context, arguments)
                return replace(result, text=f"{result.text}\n{UNSAVED_NOTE.format(path=path)}")
        return await self._tool.run(ctx, arguments)

    async def _fetch(self, path: str) -> str | None:
        try:
            async with time_limit(self._seconds):
                params = {"sessionId": self._find_session(), "path": path}
                answer = await self._ask(READ_METHOD, params)
        except RequestError:
            return None  # such as a file not open in the editor
        except TimeoutError:
            self._is_silent = True
            self._notify(
                f"the editor did not answer {READ_METHOD} in {self._seconds:g} s; this session "
                "reads saved files only"
            )
            return None
        text = answer.get("content")
        return text if isinstance(text, str) else None


class _WithText:
    """A workspace in which one file has different content."""

    local = None  # not the file on disk

    def __init__(self, inner: Workspace, path: str, content: bytes) -> None:
        self._inner = inner
        self._path = path
        self._content = content

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (the methods not defined here)
        return getattr(self._inner, name)

    def stat(self, path: str) -> FileInfo:
        info = self._inner.stat(path)
        return replace(info, size=len(self._content)) if path == self._path else info

    def read(self, path: str, offset: int, size: int) -> bytes:
        if path != self._path:
            return self._inner.read(path, offset, size)
        return self._content[offset : offset + size]


class _WithFiles:
    """A call's context with a different workspace."""

    def __init__(self, inner: ToolContext, workspace: _WithText) -> None:
        self._inner = inner
        self.workspace = workspace

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (the fields not defined here)
        return getattr(self._inner, name)


def _read_saved(ctx: ToolContext, path: str) -> str | None:
    """Read a workspace file's text, None for any other file and for a large one."""
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
    """Make a digest of text as editors give it: no byte order mark, lines ending in LF."""
    normalized = text.removeprefix("\ufeff").replace("\r\n", "\n")
    return hashlib.blake2b(normalized.encode("utf-8", "surrogatepass"), digest_size=16).digest()
