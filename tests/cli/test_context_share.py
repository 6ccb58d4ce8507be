"""The share of the context window that the screens show: it is the window that the runs use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mudroom import Compaction, Session
from mudroom._adapters.models.scripted import ScriptedModel
from mudroom._cli.output.text import UNICODE
from mudroom._core.messages import AssistantMessage, TextBlock, Usage
from mudroom._session.config import Settings

from ..shown_session import show


def open_session(folder: Path, *, tokens: int = 8_000, **options: Any) -> Session:
    """Return a session whose model reports the tokens of its requests."""
    answer = AssistantMessage((TextBlock("ok"),), usage=Usage(tokens, 0))
    model = ScriptedModel([answer])
    return Session(model=model, cwd=str(folder), home=str(folder), journal="memory", **options)


async def show_share(session: Session, folder: Path) -> str:
    """Run one prompt and `/context`; return the status line."""
    settings = Settings(home=str(folder))
    async with show(session, settings) as conversation:
        await conversation.handle_line("hello")
        await conversation.handle_line("/context")
        return "".join(conversation.status.format_line(200, UNICODE))


async def test_the_share_is_of_the_window_in_the_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = open_session(tmp_path, compaction=Compaction(context_window=32_000))
    assert "context 25%" in await show_share(session, tmp_path)
    assert "8.0k of 32.0k (25%) tokens" in capsys.readouterr().out


async def test_a_model_without_a_limit_has_no_share(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = await show_share(open_session(tmp_path), tmp_path)
    assert shown.endswith("context 8.0k")
    printed = " ".join(capsys.readouterr().out.split())
    assert "8.0k tokens at the last model call; the context window of this" in printed


async def test_the_session_states_the_window_that_its_runs_use(tmp_path: Path) -> None:
    environ = {"OLLAMA_HOST": "http://127.0.0.1:1", "ANTHROPIC_API_KEY": "k-test"}
    session = open_session(tmp_path, environ=environ)
    async with session:
        assert session.find_context_window("lmstudio:model-of-this-test") == 32_000
        assert session.find_context_window("anthropic:claude-sonnet-4-5") == 200_000
        services = session._require_open().resources.services
        services.context_policy.learn_window("lmstudio:model-of-this-test", 20_000, "too long")
        assert session.find_context_window("lmstudio:model-of-this-test") == 18_000
    assert session.find_context_window("lmstudio:model-of-this-test") == 0
