"""The summary of a session: its figures, what to look at first, and where each line leads."""

from __future__ import annotations

import re

import pytest
from tests.viewer.sessions import SessionBuilder, build_busy_session, build_session

from mudroom._core.messages import TextBlock, ToolCallBlock
from mudroom._core.runs import Reason
from mudroom._core.tools import ToolResult
from mudroom._projections.ledger import Ledger, PromptLedgers, describe_ledger
from mudroom.events import (
    NoteInjected,
    RunFinished,
    RunStarted,
    ToolCallFinished,
    TurnFailed,
    TurnStarted,
)
from mudroom.testing.event_builders import tool_call_started

from .conftest import Page
from .test_page import open_page, read_selection, read_text, read_texts


async def test_a_session_opens_on_a_summary_with_the_figures_of_the_terminal(page: Page) -> None:
    script = build_busy_session()
    async with open_page(page, script):
        assert (await read_selection(page))[3] == "summary"
        ledger = Ledger.from_events(script.events)
        saved = 1 - ledger.parent_tokens / ledger.without_children_tokens
        (share,) = await read_texts(page, ".share-saved b")
        assert share == f"{saved:.0%}" and f", {saved:.0%} less than" in describe_ledger(ledger)
        (width,) = await page.run(
            "[...document.querySelectorAll('.savedbar i')].map(i => i.style.width)"
        )
        assert float(width.rstrip("%")) == pytest.approx(100 * saved, abs=1)
        tiles = dict(
            zip(
                await read_texts(page, ".tile span"),
                await read_texts(page, ".tile b"),
                strict=True,
            )
        )
        runs = [event for event in script.events if isinstance(event, RunStarted)]
        assert tiles["runs"] == str(len(runs))
        assert list(tiles) == ["time", "cost", "tokens", "runs", "errors"]
        assert tiles["errors"] == str(await page.run("app.fold.errors")) != "0"
        is_kept = await page.run("surveyItems(app.fold) === surveyItems(app.fold)")
        assert is_kept, "all items are read once, not once for each section"


async def test_each_line_of_the_summary_leads_to_its_place(page: Page) -> None:
    script = build_busy_session()
    async with open_page(page, script):
        await page.click(".row:nth-child(3)")
        assert (await read_selection(page))[3] == "transcript", "a row leaves the summary"
        await page.press("1")
        await page.press("ArrowDown")
        assert (await read_selection(page))[3] == "transcript"
        lines = await page.run("findAttention(app.fold).map(line => line.words)")
        assert lines and any("failed" in line for line in lines)
        for number in range(len(lines)):
            go = await page.run(f"findAttention(app.fold)[{number}].go")
            await page.run("app.navigate({ tab: 'summary' })")
            await page.wait_until("document.querySelector('.attention .line')")
            await page.run(f"document.querySelectorAll('.attention .line')[{number}].click()")
            assert await read_selection(page) == (go["run"], go["turn"], go["call"], go["tab"])
            await page.wait_until("app.reader.items.length > 0")
        await page.run("app.navigate({ tab: 'summary' })")
        await page.click(".share-saved")
        assert (await read_selection(page))[3] == "ledger"
        await page.press("1")
        await page.run("app.reader.show(app.shown.findIndex(item => item.pane === 'slowest'))")
        await page.wait_until("document.querySelector('.slowest .line')")
        slowest = await page.run("document.querySelector('.slowest .line').textContent")
        await page.run("document.querySelectorAll('.switch button')[1].click()")
        await page.wait_until(
            "document.querySelector('.switch [aria-pressed=true]').textContent === 'most tokens'"
        )
        assert await page.run("document.querySelector('.slowest .line').textContent") != slowest
        await page.run("document.querySelector('.slowest .line').click()")
        selected = await read_selection(page)
        assert selected[0].startswith("1.") and selected[3] == "transcript"


async def test_one_failure_has_one_line_of_what_to_look_at_first(page: Page) -> None:
    script = SessionBuilder()
    script.open_session()
    prompt = "Why is it slow?\n\nAttached: 4,000 lines of a log"
    script.start_run("1", prompt, script.at)
    call = ToolCallBlock("call_1", "task", {"prompt": "Look."})
    script.add_turn("1", 1, script.at, 1.0, (call,), 100)
    script.events.append(tool_call_started("1", call, at=script.at + 1, turn=1))
    script.start_run("1.1", "Look.", script.at + 1, parent="1", call_id="call_1", depth=1)
    script.events.append(TurnStarted(at=script.at + 1, run="1.1", turn=1))
    error = "the provider refused: HTTP 401"
    script.events.append(TurnFailed(at=script.at + 2, run="1.1", turn=1, error=error))
    script.finish_run("1.1", script.at + 2, "", Reason.ERROR, error=error)
    failed = ToolResult(error, error=True, detail={"run": "1.1"})
    script.events.append(
        ToolCallFinished(
            at=script.at + 2, run="1", turn=1, call_id="call_1", name="task", result=failed
        )
    )
    script.finish_run("1", script.at + 3, "I do not know.")
    async with open_page(page, script):
        lines = await page.run("findAttention(app.fold).map(line => `${line.words}: ${line.more}`)")
        assert lines == [f"main 1.1 failed: {error}"]
        assert (await read_texts(page, "#totals .bad")) == ["1error"]
        assert (await read_texts(page, "#title"))[-1] == "Why is it slow?"


async def test_each_of_several_prompts_has_the_share_that_its_children_saved(page: Page) -> None:
    script = build_session(2, 3)
    script.at += 5
    script.start_run("2", "Nothing to delegate.", script.at, continues="1")
    script.add_turn("2", 1, script.at, 1.0, (TextBlock("No."),), 4_000)
    script.finish_run("2", script.at + 1, "No.")
    script.at += 5
    script.add_root("3", "And in the tests?", 1, 2, continues="2")
    ledgers = PromptLedgers()
    shares: dict[str, str] = {}
    for event in script.events:
        ledgers.apply(event)
        if isinstance(event, RunFinished) and event.run in ("1", "2", "3"):
            saved = re.search(r", (\d+%) less than", describe_ledger(ledgers.prompt))
            shares[event.run] = f" · {saved[1]} less context" if saved else ""
    assert shares["1"] and shares["3"] and not shares["2"] and shares["1"] != shares["3"]
    async with open_page(page, script):
        ends = await read_texts(page, ".prompts .line em")
        assert len(ends) == 3
        for end, share in zip(ends, shares.values(), strict=True):
            assert end.endswith(share) and ("less context" in end) == bool(share)


async def test_a_long_session_lists_its_newest_prompts_and_all_on_request(page: Page) -> None:
    script = SessionBuilder()
    script.open_session()
    for number in range(1, 16):
        before = {"continues": str(number - 1)} if number > 1 else {}
        script.start_run(str(number), f"Question {number}?", script.at, **before)
        script.finish_run(str(number), script.at + 1, f"Answer {number}.")
    async with open_page(page, script):
        lines = await read_texts(page, ".prompts .line b")
        assert (len(lines), lines[0], lines[-1]) == (12, "Question 4?", "Question 15?")
        assert "newest 12 of 15 prompts" in await read_text(page, ".prompts .note")
        await page.run("document.querySelector('.prompts .more').click()")
        await page.wait_until("document.querySelectorAll('.prompts .line').length === 15")
        assert await read_texts(page, ".prompts .note") == []
        assert "Answer 15." in await read_text(page, ".prompts .prose")


async def test_a_calm_session_says_that_nothing_failed(page: Page) -> None:
    script = SessionBuilder()
    script.open_session()
    script.start_run("1", "Why?", script.at)
    script.finish_run("1", script.at + 2, "Because.")
    async with open_page(page, script):
        assert "Nothing failed" in await read_text(page, ".attention")
        assert "No child ran" in await read_text(page, ".saved")
        assert await page.run("document.querySelector('.team')") is None
        assert "Because." in await read_text(page, ".prompts .prose")


@pytest.mark.parametrize("width", [360, 800, 1600])
async def test_summary_legend_and_chart_are_readable_in_each_window(page: Page, width: int) -> None:
    await page.set_size(width, 844, phone=width < 500)
    async with open_page(page, build_busy_session()):
        body = "document.getElementById('body')"
        assert await page.run(f"{body}.scrollWidth <= {body}.clientWidth")
        assert await page.run("document.documentElement.scrollWidth <= window.innerWidth")
        legend = await page.run(
            "[...document.querySelectorAll('.key i')].every(each => "
            "each.getBoundingClientRect().right <= document.querySelector('#runs')"
            ".getBoundingClientRect().right)"
        )
        assert legend, "the legend is cut"
        await page.run("app.navigate({ tab: 'ledger' })")
        await page.wait_until("document.querySelector('.growth')")
        scale = await page.run(
            "document.querySelector('.growth').getBoundingClientRect().width"
            " / document.querySelector('.growth').viewBox.baseVal.width"
        )
        assert 0.9 < scale < 1.1, "text of the chart has another size than that of the page"
        cut = await page.run(
            "[...document.querySelectorAll('.growth text')].filter(each => { "
            "const box = each.getBBox(); const view = each.ownerSVGElement.viewBox.baseVal; "
            "return box.x < 0 || box.x + box.width > view.width + 1 })"
            ".map(each => each.textContent)"
        )
        assert cut == []


@pytest.mark.parametrize("width", [375, 768, 1280])
async def test_tabs_and_heads_of_cards_are_whole_in_each_window(page: Page, width: int) -> None:
    await page.set_size(width, 1800, phone=width < 500)
    script = SessionBuilder()
    script.open_session()
    for run, prompt in (("1", "Watch."), ("1.1", "Watch the folder for changes.")):
        parent = {"parent": "1", "depth": 1} if run == "1.1" else {}
        script.start_run(run, prompt, script.at, **parent)
        script.add_turn(run, 1, script.at, 90.0, (TextBlock("I look."),), 1_000_000)
    lines = ("<task-id>1.1</task-id>", "<status>completed</status>", "<task>see the folder</task>")
    text = "\n".join(("<task-notification>", *lines, "<result>", "No.", "</result>"))
    script.events.append(NoteInjected(at=script.at, run="1", turn=1, text=text, origin="engine"))
    script.finish_run("1", script.at + 90, "Nothing.", usd=12.25, turns=1)
    async with open_page(page, script, "&run=1&turn=1"):
        await page.wait_until(
            "document.querySelector('.arrival') && document.querySelector('.report')"
        )
        assert "Context · 1" in await read_text(page, "#tabs button")
        cut = await page.run(
            "[...document.querySelectorAll('#tabs, .report .callhead, .arrival .callhead')]"
            ".filter(each => each.scrollWidth > each.clientWidth).map(each => each.className)"
        )
        assert cut == []
        heights = "[...document.querySelectorAll('.callhead b')].map(each => each.offsetHeight)"
        assert max(await page.run(heights)) < 30, "the name of a card is broken into lines"


async def test_a_session_says_that_it_loads_until_its_events_are_here(page: Page) -> None:
    script = build_session()
    async with open_page(page, script):
        words = await page.run(
            "(app.openSession(app.selection.session), ['title', 'totals', 'count', 'body']"
            ".map(id => document.getElementById(id).textContent))"
        )
        loading = f"Loading session {script.session[:8]}…"
        assert words == [loading, "", "", loading]
        await page.wait_until("app.isLoaded && app.fold.runs.size > 1 && !app.frame")
        assert "runs" in await read_text(page, "#totals")
        assert "Loading" not in await read_text(page, "#title, #body")
