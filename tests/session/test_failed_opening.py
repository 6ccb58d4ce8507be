"""A session that cannot be opened leaves nothing open."""

from __future__ import annotations

import os
from pathlib import Path
from threading import enumerate as list_threads

import pytest

from mudroom import Children, Session, ToolContext, tool
from mudroom.errors import UsageError
from mudroom.testing import ScriptedModel


@tool
def count_words(context: ToolContext, text: str) -> str:
    """Count the words of a text."""
    return f"{context.run_id} {len(text.split())}"


async def test_a_session_that_fails_to_open_leaves_no_file_and_no_thread(tmp_path: Path) -> None:
    for _ in range(2):
        session = Session(
            model=ScriptedModel(["Done."]),
            cwd=str(tmp_path),
            home=str(tmp_path / "home"),
            children=Children(board=True),
            worker="process",
            tools=[count_words],  # a worker process cannot have it
        )
        with pytest.raises(UsageError, match="the tool count_words cannot be used"):
            async with session:
                pass
    own = [thread.name for thread in list_threads() if thread.name.startswith("mudroom")]
    assert own == []
    folder = tmp_path / "home" / "sessions"
    assert not folder.exists() or os.listdir(folder) == []
