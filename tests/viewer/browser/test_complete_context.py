"""The context of each model call in the viewer is the whole request that the model received."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from tests.session.test_request_heads import delegate, read_request
from tests.viewer.sessions import SessionBuilder

from mudroom import Integrations, Session
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom.events import RunStarted, TurnFinished
from mudroom.testing.model_server import ModelServer, ServerRequest

from .conftest import Page
from .test_page import open_page, read_text

HEADS = """
    [...app.fold.runs.values()].map(run => {
        const blocks = contextBlocks(app.fold, run, 1);
        const texts = kind => blocks.filter(each => each.kind === kind).map(each => each.text);
        return [[...texts("system"), ...texts("files")].join("\\n\\n"), texts("tools")];
    })
"""
COVERED = """
    [...app.fold.runs.values()].every(run => {
        const [gauge] = contextItems(app.fold, run);
        const sum = gauge.parts.reduce((all, each) => all + each.tokens, 0);
        return gauge.isComplete && Math.abs(sum - gauge.whole) < 0.01;
    })
"""


async def record_session(folder: Path) -> tuple[SessionBuilder, list[ServerRequest]]:
    """Run a session with two children; return its events and the requests."""
    (folder / "work").mkdir()
    (folder / "work" / "AGENTS.md").write_text("Write short answers.\n", encoding="utf-8")
    journal = MemoryJournal()
    async with ModelServer(delegate) as server:
        environ = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_BASE_URL": server.url}
        options: dict[str, Any] = {"cwd": str(folder / "work"), "home": str(folder / "home")}
        options["integrations"] = Integrations(agent_files=True)
        model = "anthropic:claude-sonnet-4-5"
        async with Session(**options, model=model, environ=environ, journal=journal) as session:
            await session.run("DELEGATE this.")
        script = SessionBuilder(session=session.id, events=list(journal.events))
        return script, server.requests


def describe_tools(tools: list[dict[str, Any]]) -> list[str]:
    return [
        f"{tool['description']}\n\n{json.dumps(tool['input_schema'], indent=2, ensure_ascii=False)}"
        for tool in tools
    ]


async def test_the_context_has_every_part_of_every_request(page: Page, tmp_path: Path) -> None:
    script, requests = await record_session(tmp_path)
    async with open_page(page, script, "&run=1&tab=context"):
        shown = await page.run(HEADS)
        sent = [read_request(request) for request in requests]
        assert len(shown) == 3
        expected = [[system, describe_tools(tools)] for system, tools in sent]
        for head in shown:
            assert head in expected
        assert await page.run(COVERED)
        assert "Write short answers." in shown[0][0]
        assert "whole request" in await read_text(page, ".gauge .note")
        legend = await read_text(page, ".legend")
        assert "not recorded" not in legend and "context files" in legend
    for index, event in enumerate(script.events):  # a record without heads, as old ones are
        if isinstance(event, RunStarted):
            script.events[index] = replace(event, head=None)
        elif isinstance(event, TurnFinished):
            usage = replace(event.message.usage, input_tokens=50_000)
            message = replace(event.message, usage=usage)
            script.events[index] = replace(event, message=message)
    async with open_page(page, script, "&run=1&tab=context"):
        assert "no tool schemas" in await read_text(page, ".gauge .note")
        assert "not recorded" in await read_text(page, ".legend")
