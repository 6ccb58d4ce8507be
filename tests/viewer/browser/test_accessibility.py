"""Accessibility of every page and tab: names of all controls, and axe-core where it is installed.

`npm install --no-save axe-core` installs it, or AXE_CORE names the file axe.min.js.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from tests.compaction.conftest import Stage, make_talker
from tests.viewer.sessions import SessionBuilder, build_session, write_session
from tests.workspaces.git_projects import make_repository

from mudroom._core.tools import ToolResult
from mudroom.events import PermissionDecided
from mudroom.testing.event_builders import tool_call

from .conftest import Page
from .test_page import open_home, open_page
from .test_team import record_team
from .test_work import record

ROOT = Path(__file__).parents[3]
AXE = Path(os.environ.get("AXE_CORE", ROOT / "node_modules" / "axe-core" / "axe.min.js"))
MARKDOWN = """# Result

| file | lines |
|---|--:|
| `a.py` | 12 |

1. First, see [the page](https://example.org).
   - [x] done

> quoted

```python
print("x" * 200)
```
"""
VIEWS = {
    "list": "",
    "summary": "#session={one}",
    "transcript": "#session={one}&run=1",
    "commands": "#session={one}&run=2",
    "context": "#session={one}&run=1&tab=context",
    "ledger": "#session={one}&tab=ledger",
    "compaction": "#session={two}&run=1",
    "changes": "#session={three}&run=1.1.1&tab=work",
    "team": "#session={four}",
    "comparison": "#compare={one}%2F1&with={two}%2F1",
}
WINDOWS = {"light": (1440, 900), "dark": (1440, 900), "phone": (390, 844)}
NAMED_ROLES = {
    *("button", "link", "textbox", "searchbox", "combobox", "checkbox", "tab", "treeitem"),
    *("img", "image", "heading", "dialog", "tree", "tablist", "toolbar", "splitter"),
}
VIOLATIONS = """axe.run(document, { resultTypes: ["violations"] }).then(result => result.violations
    .filter(each => ["serious", "critical"].includes(each.impact))
    .map(each => `${each.id}: ${each.nodes[0].target} ${each.nodes[0].failureSummary}`))"""


async def write_sessions(home: Path) -> tuple[str, str, str, str]:
    """Write sessions with failures and Markdown, a compaction, a conflict, a team; return ids."""
    script = build_session(2, 4)
    call = tool_call("bash", "c9", command="false")
    script.start_run("2", "And now?", script.at + 20, continues="1")
    script.add_turn("2", 1, script.at + 21, 2.0, (call,), 4_000)
    script.events.append(
        PermissionDecided(
            at=script.at + 23, run="2", call_id="c9", name="bash", verdict="ask", allowed=True
        )
    )
    script.add_call("2", 1, script.at + 23, 1.0, call, ToolResult("exit 1", error=True))
    script.add_call("2", 1, script.at + 24, 1.0, call, ToolResult("no", error=True), refused=True)
    script.finish_run("2", script.at + 30, MARKDOWN, files_changed=("a.py",), usd=0.25)
    await write_session(home, script)
    (home / "stage").mkdir()
    stage = Stage(home / "stage")
    stage.write_files(40)
    async with stage.open(make_talker(14)) as session:
        await session.run("Read all files. Never touch 3.txt.")
    compacted = SessionBuilder(session=session.id, events=stage.events)
    await write_session(home, compacted)
    project = make_repository(home.parent / "project", {"a.txt": "before\n", "old.txt": "old\n"})
    team, _ = await record_team(home / "team")
    await write_session(home, team)
    return script.session, session.id, await record(project, home), team.session


async def visit_views(page: Page, home: Path, window: str) -> AsyncGenerator[str]:
    """Open each view, and then the list of keys; yield their names."""
    one, two, three, four = await write_sessions(home)
    width, height = WINDOWS[window]
    await page.set_size(width, height, phone=window == "phone")
    await page.set_dark(window == "dark")
    async with open_home(page, home) as url:
        for view, link in VIEWS.items():
            await page.open(url + link.format(one=one, two=two, three=three, four=four))
            await page.wait_until(
                "document.querySelector('.session, .versus-table') || (app.isLoaded && app.run"
                " && !app.frame && document.querySelector('#body .placed'))"
            )
            yield view
        await page.run("document.getElementById('keys').click()")
        yield "keys"


async def list_unnamed(page: Page) -> list[str]:
    await page.send("Accessibility.enable")
    tree: list[dict[str, Any]] = (await page.send("Accessibility.getFullAXTree"))["nodes"]
    return [
        f"{node['role']['value']} {node.get('backendDOMNodeId')}"
        for node in tree
        if not node["ignored"]
        and node["role"]["value"] in NAMED_ROLES
        and not node.get("name", {}).get("value", "").strip()
    ]


async def test_every_control_has_a_name(page: Page, tmp_path: Path) -> None:
    async for view in visit_views(page, tmp_path, "light"):
        assert await list_unnamed(page) == [], view


@pytest.mark.parametrize("window", WINDOWS)
async def test_axe_has_no_serious_findings(page: Page, tmp_path: Path, window: str) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: npm install --no-save axe-core")
    axe = AXE.read_text(encoding="utf-8")
    async for view in visit_views(page, tmp_path, window):
        await page.run(f"{axe}; 1")
        assert await page.run(VIOLATIONS) == [], view


async def test_a_user_of_the_keyboard_sees_and_keeps_the_focus(page: Page) -> None:
    script = build_session(1, 4)
    focus = (
        "(e => e.closest('#tabs') ? e.dataset.tab : e.id || e.className)(document.activeElement)"
    )
    async with open_page(page, script):
        for selector in ("#rows", "#body"):
            await page.press("Tab")  # the focus that follows is one of the keyboard
            await page.run(f"document.querySelector('{selector}').focus()")
            style = f"getComputedStyle(document.querySelector('{selector}')).outlineStyle"
            assert await page.run(style) == "solid"
        await page.run("document.querySelector('.attention .line').focus()")
        await page.run("document.activeElement.click()")
        assert await page.run(focus) == "body"
        await page.run("document.querySelector('[data-tab=context]').focus()")
        await page.run("document.activeElement.click()")
        assert await page.run(focus) == "context"
        await page.run("document.querySelector('.chip.errors').focus()")
        await page.run("document.activeElement.click()")
        assert await page.run(focus) == "chip errors"
        await page.run("document.querySelector('#head .copy').focus(); app.draw()")
        assert await page.run(focus) == "copy"
