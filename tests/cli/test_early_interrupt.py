"""An interrupt right after Enter: the prompt is still being prepared."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from mudroom import Session
from mudroom._adapters.models.scripted import ScriptedModel
from mudroom._adapters.workspaces.shared import SharedWorkspace
from mudroom._cli.interactive.conversation import Conversation
from mudroom._core.messages import AssistantMessage, TextBlock
from mudroom._session.config import Settings

from ..shown_session import show
from ..waiting import SECONDS, wait_until


class HeldWorkspace(SharedWorkspace):
    """Files whose first read waits until the test lets it end."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.is_reading = threading.Event()
        self.may_read = threading.Event()

    def read(self, path: str, offset: int, size: int) -> bytes:
        self.is_reading.set()
        assert self.may_read.wait(SECONDS)
        return super().read(path, offset, size)


@pytest.mark.parametrize("stop", [Conversation.interrupt, Conversation.stop_all])
async def test_a_prompt_that_is_not_sent_yet_is_stopped(
    stop: Callable[[Conversation], bool], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("notes")
    files = HeldWorkspace(str(tmp_path))
    model = ScriptedModel([AssistantMessage((TextBlock("the answer"),))])
    session = Session(model=model, cwd=files, home=str(tmp_path), journal="memory")
    settings = Settings(home=str(tmp_path))
    async with show(session, settings) as conversation:
        sending = asyncio.ensure_future(conversation.handle_line("read @notes.txt"))
        try:
            await wait_until(files.is_reading.is_set)
            assert conversation.is_busy and stop(conversation)
            await sending
        finally:
            files.may_read.set()
        assert not conversation.is_busy and not conversation.tree.runs
        assert "Stopped before anything was sent." in capsys.readouterr().out
        await conversation.handle_line("again")
        assert "the answer" in capsys.readouterr().out
