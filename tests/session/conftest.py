"""Options of sessions that touch nothing of this machine's user."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

import pytest

from mudroom import TextBlock, ToolResultBlock
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
