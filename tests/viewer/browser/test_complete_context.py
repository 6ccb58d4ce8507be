"""The contexts of model calls in the viewer are the whole requests, also around a compaction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from tests.compaction.conftest import Stage, is_summary, list_message_texts, make_talker
from tests.session.test_request_heads import delegate, read_request
from tests.viewer.sessions import SessionBuilder

from mudroom import Integrations, Session, ThinkingBlock
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Request
from mudroom._core.events import ResultsCleared
from mudroom.events import RunStarted, TurnFinished
from mudroom.testing.event_builders import (
    run_started,
    tool_call,
    tool_call_events,
    turn_events,
    turn_started,
)
from mudroom.testing.model_server import ModelServer, ServerRequest

from .conftest import Page
from .test_page import open_page, read_selection, read_text

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


BLOCKS = (
    "contextBlocks(app.fold, app.fold.runs.get({run!r}), {turn})"
    ".filter(each => !['system', 'files', 'tools', 'call'].includes(each.kind))"
    ".map(each => each.text)"
)


SHOW = "app.reader.show(app.shown.findIndex(item => item.kind === 'compacted'))"


def list_request_texts(request: Request) -> list[str]:
    return [text for message in request.messages for text in list_message_texts(message)]


async def test_contexts_before_and_after_a_compaction_are_those_of_the_requests(
    page: Page, tmp_path: Path
) -> None:
    stage = Stage(tmp_path)
    stage.write_files(40)
    async with stage.open(make_talker(14)) as session:
        await session.run("Read all files. Never touch 3.txt.")
        await session.run("And now?")
    script = SessionBuilder(session=session.id, events=stage.events)
    requests = [request for request in stage.model.requests if not is_summary(request)]
    (summary,) = [request for request in stage.model.requests if is_summary(request)]
    assert stage.clearings and stage.compactions
    async with open_page(page, script, "&run=1&tab=transcript"):
        for turn, request in enumerate(requests[:15], 1):
            blocks = await page.run(BLOCKS.format(run="1", turn=turn))
            assert blocks == list_request_texts(request), turn
        assert await page.run(BLOCKS.format(run="2", turn=1)) == list_request_texts(requests[15])
        summary_run = stage.compactions[0].summary_run
        blocks = await page.run(BLOCKS.format(run=summary_run, turn=1))
        assert blocks == list_request_texts(summary)
        kinds = await page.run("app.fold.runs.get('1').items.map(item => item.kind)")
        assert kinds.count("compacted") == 1
        notices = await page.run(
            "app.fold.runs.get('1').items.filter(item => item.kind === 'compacted')"
            ".map(item => ITEM_RENDERERS.compacted(item).textContent)"
        )
        assert "1 message of the user · 11 files · notes of the model" in notices[0]
        await page.run(SHOW)
        await page.wait_until("document.querySelector('.compaction')")
        widths = await page.run(
            "[...document.querySelectorAll('.compaction .stack')].map(bar => bar.offsetWidth)"
        )
        assert len(widths) == 2 and widths[0] > 3 * widths[1]
        turns = await page.run("app.run.items.find(item => item.kind === 'compacted').turn")
        for number, turn in enumerate((turns, turns + 1)):
            await page.run(f"app.navigate({{ run: '1', turn: 0, tab: 'transcript' }}); {SHOW}")
            await page.wait_until("document.querySelectorAll('.compaction .more').length === 2")
            await page.run(f"document.querySelectorAll('.compaction .more')[{number}].click()")
            assert (await read_selection(page))[1:4] == (turn, "", "context")
        await page.run("app.navigate({ tab: 'summary' })")
        assert "the context was compacted" in await read_text(page, ".attention")
        await page.run("app.navigate({ run: '1', turn: 3, tab: 'context' })")
        assert "turn 3" in await read_text(page, ".stepper")
        await page.click(".stepper button:last-of-type")
        assert (await read_selection(page))[:2] == ("1", 4)
        await page.click(".blockhead")
        first = await page.run("contextBlocks(app.fold, app.run, 4)[0].text")
        assert first and first in await read_text(page, ".block.open pre")


async def test_long_arguments_that_were_cut_are_shown_as_they_were_sent(
    page: Page, tmp_path: Path
) -> None:
    script = SessionBuilder()
    write = tool_call("c1", "write", file_path="a.txt", content="long text")
    script.events = [
        run_started("1"),
        *turn_events("1", ThinkingBlock("Well."), write),
        *tool_call_events("1", write, "written"),
        ResultsCleared(at=1, run="1", turn=1, texts={}, arguments={"c1": {"content": "cut"}}),
        turn_started("1", turn=2),
    ]
    shown = (
        "contextBlocks(app.fold, app.fold.runs.get('1'), 2)"
        ".filter(each => !['system', 'tools'].includes(each.kind)).map(each => each.text)"
    )
    async with open_page(page, script, "&run=1&tab=transcript"):
        prompt, thought, arguments, result = await page.run(shown)
    assert (prompt, thought, result) == ("Look.", "Well.", "written")
    assert json.loads(arguments) == {"content": "cut"}
