"""The list of sessions, and the comparison of two runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.viewer.sessions import SessionBuilder, SingleSession, write_session

from mudroom._core.runs import Reason
from mudroom._viewer.export import render_single_file

from .conftest import Page
from .test_page import open_home, read_text, read_texts


def build_session(number: int, prompt: str, reason: Reason, usd: float) -> SessionBuilder:
    builder = SessionBuilder(
        seed=number, session=f"5e55a1d0-0000-4000-8000-00000000000{number}", at=1_790_000_000.0
    )
    builder.open_session()
    builder.add_root("1", prompt, 1, number)
    builder.start_run("2", f"{prompt} Again.", builder.at + 9, continues="1")
    builder.finish_run(
        "2", builder.at + 9 + number, f"Answer {number}", reason, usd=usd, seconds=number
    )
    builder.close_session()
    return builder


@asynccontextmanager
async def open_list(page: Page, home: Path, count: int = 2) -> AsyncGenerator[None]:
    for number, (prompt, reason, usd) in enumerate(
        (("Plant roses", Reason.GOAL, 0.5), ("Water the garden", Reason.ERROR, 2.0)), 1
    ):
        await write_session(home, build_session(number, prompt, reason, usd))
    async with open_home(page, home):
        await page.wait_until(f"document.querySelectorAll('.session').length === {count}")
        yield


async def test_the_list_is_searched_filtered_and_ordered(page: Page, tmp_path: Path) -> None:
    builder = SessionBuilder(session="5e55a1d0-0000-4000-8000-000000000009", at=1_760_000_000.0)
    builder.open_session()
    builder.close_session()
    await write_session(tmp_path, builder)
    async with open_list(page, tmp_path, count=3):
        assert await read_texts(page, ".session .badge") == ["failed", "done", "empty"]
        await page.press("/")
        await page.send("Input.insertText", text="ROSES plant")
        await page.wait_until("document.querySelectorAll('.session').length === 1")
        assert await read_texts(page, "#list-title") == ["1 of 3 sessions"]
        assert await page.run("document.activeElement.id") == "list-query"
        await page.send("Input.insertText", text="nothing")
        await page.wait_until("document.querySelector('#list-foot .empty')")
        await page.run("sessionList.words = ''; sessionList.outcome = 'done'; drawSessionRows()")
        assert "Plant roses" in await read_text(page, ".session .asked")
        order = "sessionList.outcome = ''; sessionList.order = '{}'; drawSessionRows()"
        await page.run(order.format("seconds"))
        assert (await read_texts(page, ".session .asked b"))[0] == "Water the garden"
        await page.run(order.format("tokens"))
        assert len(await read_texts(page, ".session")) == 3
        await page.run("sessionList.outcome = 'empty'; drawSessionRows()")
        assert await read_texts(page, ".session .asked b") == ["no prompt yet"]
        await page.run("sessionList.outcome = 'done'; drawSessionRows()")
        await page.set_size(360, 700, phone=True)
        shown = await page.run("document.querySelector('.session em').innerText")
        assert ", 20" in shown and "$" in shown, "a narrow list shows date and cost"
        await page.set_size(1440, 900)
        shown = await page.run("document.querySelector('.session em').innerText")
        assert "$" not in shown


async def test_a_long_list_says_what_it_leaves_out_and_lists_it_on_request(
    page: Page, tmp_path: Path
) -> None:
    for number in range(5):
        builder = SessionBuilder(session=f"5e55a1d0-0000-4000-8000-{number:012}", at=1_790_000_000)
        builder.open_session()
        builder.start_run("1", f"Plant {'roses' if number else 'a tree'}", builder.at)
        builder.finish_run("1", builder.at + 2, "Done.")
        await write_session(tmp_path, builder)
        os.utime(tmp_path / "sessions" / f"{builder.session}.db", (number + 1, number + 1))
    async with open_home(page, tmp_path):
        await page.wait_until("document.querySelectorAll('.session').length === 5")
        assert await read_texts(page, "#list-title") == ["5 sessions"]
        assert await page.run("sessionList.limit") == 200
        await page.run("sessionList.limit = 2; fetchSessions(2).then(drawSessions)")
        assert await read_texts(page, "#list-title") == ["2 of 5 sessions"]
        await page.press("/")
        await page.send("Input.insertText", text="tree")
        await page.wait_until("!document.querySelector('.session')")
        assert await read_texts(page, "#list-title") == ["0 of the newest 2 sessions"]
        assert "newest 2 of 5 sessions. list 3 older" in (await read_texts(page, ".older"))[0]
        await page.run("document.querySelector('.older button').click()")
        await page.wait_until("document.querySelector('.session')")
        assert await read_texts(page, ".asked b") == ["Plant a tree"]
        assert await read_texts(page, "#list-title") == ["1 of 5 sessions"]
        assert await read_texts(page, ".older") == []


async def test_two_sessions_are_compared(page: Page, tmp_path: Path) -> None:
    async with open_list(page, tmp_path):
        await page.click(".session:nth-child(1) input")
        assert "another session" in await read_text(page, ".comparebar")
        await page.click(".session:nth-child(2) input")
        await page.click(".comparebar a")
        await page.wait_until("document.querySelector('.versus-table')")
        rows = await page.run(
            "Object.fromEntries([...document.querySelectorAll('.numbers tbody tr')].map(row =>"
            " [row.cells[0].textContent, [...row.cells].slice(1).map(each => each.textContent)]))"
        )
        assert rows["outcome"] == ["Failed", "Done", ""]
        assert rows["time"] == ["2.0s", "1.0s", "−50%"]
        assert rows["cost"] == ["$2.00", "$0.50", "−75%"]
        reports = await read_text(page, ".texts .prose")
        assert "Answer 2" in reports and "Answer 1" in reports
        await page.run("document.querySelector('.texts .more').click()")
        assert await page.run("document.querySelectorAll('.diff .went, .diff .came').length") > 1
        await page.run(
            "(picker => { picker.value = '1'; picker.dispatchEvent(new Event('change')) })"
            "(document.querySelectorAll('.side select')[3])"
        )
        await page.wait_until(
            "comparison.sides[1].shown?.id === '1' && location.hash.includes('1')"
        )
        assert "read" in await read_text(page, ".tools tbody th")
        await page.run("history.back()")
        await page.wait_until("comparison.sides[1].shown?.id === '2'")
        await page.click("#brand")
        await page.wait_until("document.querySelectorAll('.session').length === 2")


async def test_two_runs_of_a_file_are_compared(page: Page, tmp_path: Path) -> None:
    script = build_session(3, "Plant roses", Reason.GOAL, 0.5)
    source = SingleSession(script.session, script.events)
    pieces = [piece async for piece in render_single_file(source, script.session)]
    file = tmp_path / "run.html"
    await asyncio.to_thread(file.write_text, "".join(pieces), encoding="utf-8")
    await page.open(f"{file.as_uri()}#run=1")
    await page.wait_until("app.fold?.events > 0 && document.querySelector('.path a')")
    await page.click(".path a.link")
    await page.wait_until("document.querySelector('.versus-table')")
    assert len(await read_texts(page, ".side select")) == 2
    await page.click(".side a.more")
    await page.wait_until("app.fold && app.selection.run === '1'")


async def test_an_unknown_session_is_an_error_not_an_empty_page(page: Page, tmp_path: Path) -> None:
    async with open_list(page, tmp_path):
        await page.run("location.hash = compareLink({ session: 'x' }, { session: 'y' })")
        await page.wait_until("!document.getElementById('trouble').hidden")
        assert "unknown session 'x'" in await read_text(page, "#trouble")
        page.errors.clear()  # the browser logs the answer 404


async def test_the_start_of_an_id_opens_the_session(page: Page, tmp_path: Path) -> None:
    builder = build_session(1, "Plant roses", Reason.GOAL, 0.5)
    await write_session(tmp_path, builder)
    other = SessionBuilder(session="7e55a1d0-0000-4000-8000-000000000002")
    other.open_session()
    await write_session(tmp_path, other)
    async with open_home(page, tmp_path, f"#session={builder.session[:10]}&tab=ledger"):
        await page.wait_until("app.isLoaded && app.fold.events > 0")
        assert await page.run("app.selection.session") == builder.session
        assert await page.run("app.selection.tab") == "ledger"
        assert not any("limit=" in url for url in page.requested), "all sessions are read for one"
        page.errors.clear()  # the browser logs the answer 404 to the incomplete id
