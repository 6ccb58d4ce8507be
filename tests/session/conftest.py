"""Options of sessions that touch nothing of this machine's user."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypedDict

import pytest

from mudroom import Session, TextBlock, ToolResultBlock
from mudroom.errors import SessionPaused
from mudroom.testing import Request


class IsolatedOptions(TypedDict):
    cwd: str
    home: str
    environ: dict[str, str]
    sandbox: str


@pytest.fixture
def isolated(tmp_path: Path) -> IsolatedOptions:
    """A folder with one file, and a state folder, both temporary; no keys."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "notes.txt").write_text("one\ntwo\n")
    return {"cwd": str(folder), "home": str(tmp_path / "home"), "environ": {}, "sandbox": "off"}


def list_texts(request: Request) -> list[str]:
    """Return the texts and tool results of a request, in order."""
    return [
        block.text
        for message in request.messages
        for block in message.content
        if isinstance(block, TextBlock | ToolResultBlock)
    ]


async def pause_during(
    session: Session, work: Coroutine[Any, Any, object], waiting: asyncio.Event
) -> None:
    """Start work, and pause the session when its model waits."""
    running = asyncio.create_task(work)
    await waiting.wait()
    assert session.pause()
    with pytest.raises(SessionPaused):
        await running
