"""Shares of a context, as `/context` shows them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mudroom import Session
from mudroom._core.messages import (
    AssistantMessage,
    TextBlock,
    ToolCallBlock,
    ToolResultBlock,
    Usage,
    UserMessage,
)
from mudroom.cli.interactive.conversation import Conversation
from mudroom.cli.interactive.plain_ui import PlainUI
from mudroom.cli.interactive.slash_commands.registry import COMMANDS
from mudroom.config import Settings
from mudroom.events import ToolCallStarted
from mudroom.models.scripted import ScriptedModel
from mudroom.projections.context_size.shares import ContextShares


async def test_context_lists_the_share_of_each_part(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("x" * 400_000)
    usage = Usage(8_000, 0)
    model = ScriptedModel(
        [
            AssistantMessage((ToolCallBlock("r", "read", {"file_path": "notes.txt"}),)),
            AssistantMessage((ToolCallBlock("t", "task", {"prompt": "look"}),)),
            AssistantMessage((TextBlock("the report " * 400),)),
            AssistantMessage((TextBlock("the answer"),), usage=usage),
        ]
    )
    session = Session(model=model, cwd=str(tmp_path), home=str(tmp_path))
    settings = Settings(home=str(tmp_path))
    conversation = Conversation(session, PlainUI(settings), settings, COMMANDS)
    async with session, conversation.resources:
        await conversation.handle_line("/context")
        assert "%" not in capsys.readouterr().out, "nothing was sent yet"
        await conversation.handle_line("look at everything")
        capsys.readouterr()
        await conversation.handle_line("/context")
    rows = [row.strip() for row in capsys.readouterr().out.splitlines() if "%, ~" in row]
    shares = {name.strip(): rest for name, _, rest in (row.partition("  ") for row in rows)}
    percents = [int(rest.partition("%")[0].strip(" <")) for rest in shares.values()]
    assert percents == sorted(percents, reverse=True) and 96 <= sum(percents) <= 104
    parts = {"instructions", "tool descriptions", "your messages", "answers", "tool calls"}
    assert shares.keys() == parts | {"tool results", "child reports"}
    assert shares["answers"].strip().startswith("<1%, ~")


def test_a_call_of_a_child_with_the_id_of_a_call_of_its_parent_is_another_call() -> None:
    shares = ContextShares()
    for run, tool in (("1", "read"), ("1", "task"), ("1.1.1", "read"), ("1.1.1", "task")):
        call_id = "a" if (run == "1") is (tool == "read") else "b"
        view = "run" if tool == "task" else ""
        call = ToolCallBlock(call_id, tool, {})
        shares.apply(ToolCallStarted(at=1, run=run, call=call, view=view))
    results = ToolResultBlock("a", "read", "x" * 4_000), ToolResultBlock("b", "task", "y" * 400)
    sizes = dict(shares.measure("1", [UserMessage(results)]))
    assert sizes["tool results"] > 900 and sizes["child reports"] < 200
