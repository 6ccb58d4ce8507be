"""The built site in a real browser, opened from disk without a server."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from tests.docs.conftest import BuiltSite
from tests.viewer.browser.conftest import CHROMIUM, Page, open_browser

USER_PAGES = {"compaction": "long-conversations.html", "before_compaction": "reference/ports.html"}
DIALOG = "[...document.querySelectorAll('*')].find(each => each.shadowRoot)?.shadowRoot"


@pytest.fixture
async def page(tmp_path: Path) -> AsyncGenerator[Page]:
    """Return a tab of a new browser."""
    if CHROMIUM is None:
        pytest.skip("there is no chromium here; .ci/run installs it")
    async with open_browser(tmp_path) as tab:
        yield tab


@pytest.mark.timeout(600)  # the first test builds the site: slow on a busy machine
async def test_search_finds_the_page_for_users_first(built_site: BuiltSite, page: Page) -> None:
    """The page that the worker lists first (`test_search.py`) is the first one on the screen."""
    for words, first in USER_PAGES.items():
        await page.send("Page.navigate", url="about:blank")
        await page.send("Page.navigate", url=(built_site.folder / "index.html").as_uri())
        await page.wait_until("document.querySelector('.md-search__button')")
        await page.wait_until("document.readyState === 'complete'")
        await page.run("document.querySelector('.md-search__button').click()")
        await page.wait_until(f"{DIALOG}?.activeElement?.tagName === 'INPUT'")
        await page.send("Input.insertText", text=words)
        await page.wait_until(f"{DIALOG}.querySelector('li a')?.href.includes('/docs/{first}')")


@pytest.mark.timeout(600)  # the first test builds the site: slow on a busy machine
async def test_search_works_from_disk(built_site: BuiltSite, page: Page) -> None:
    assert built_site.done.returncode == 0, built_site.done.stdout
    await page.send("Page.navigate", url=(built_site.folder / "docs" / "budgets.html").as_uri())
    await page.wait_until("document.readyState === 'complete'")
    await page.run("document.querySelector('.md-search__button').click()")
    await page.wait_until(f"{DIALOG}?.activeElement?.tagName === 'INPUT'")
    await page.press(*"Landlock")
    await page.wait_until(f"{DIALOG}.querySelector('li a')?.textContent.includes('Landlock')")
    await page.press("Enter")
    await page.wait_until("!location.pathname.endsWith('/budgets.html')")
    await page.wait_until("document.readyState === 'complete'")
    assert "Landlock" in await page.run("document.querySelector('article').textContent")
    assert page.errors == []
    assert {address.partition(":")[0] for address in page.requested} <= {"file", "blob", "data"}
