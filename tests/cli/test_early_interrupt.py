"""An interrupt right after Enter: the prompt is still being prepared."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from mudroom import Session
from mudroom._core.messages import AssistantMessage, TextBlock
from mudroom.cli.interactive.conversation import Conversation
from mudroom.cli.interactive.plain_ui import PlainUI
from mudroom.cli.interactive.slash_commands.registry import COMMANDS
from mudroom.config import Settings
from mudroom.models.scripted import ScriptedModel


async def test_a_prompt_that_is_not_sent_yet_is_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ScriptedModel([AssistantMessage((TextBlock("the answer"),))])
    session = Session(model=model, cwd=str(tmp_path), home=str(tmp_path), journal="memory")
    settings = Settings(home=str(tmp_path))
    conversation = Conversation(session, PlainUI(settings), settings, COMMANDS)
    async with session, conversation.resources:
        sending = asyncio.ensure_future(conversation.handle_line("read @notes.txt"))
        await asyncio.sleep(0)
        assert conversation.is_busy and conversation.interrupt()
        await sending
        assert not conversation.is_busy and not conversation.tree.runs
        assert "Stopped before anything was sent." in capsys.readouterr().out
        await conversation.handle_line("again")
        assert "the answer" in capsys.readouterr().out
