"""Markdown of models in the viewer: the forms that they write, without HTML and remote loads."""

from __future__ import annotations

import json

import pytest
from tests.viewer.sessions import SessionBuilder, build_session

from .conftest import Page
from .test_page import open_page, read_texts

FORMS = {
    "# Title\n\n### Below": '<h4 class="heading h-1">Title</h4><h5 class="heading h-3">Below</h5>',
    "one\ntwo\n\nthree": "<p>one<br>two</p><p>three</p>",
    "**bold** *soft* ~~gone~~ `a*b`": (
        '<p><strong>bold</strong> <em class="stress">soft</em> <del>gone</del> <code>a*b</code></p>'
    ),
    "snake_case_name and 2*3*4 = 24": "<p>snake_case_name and 2*3*4 = 24</p>",
    r"\*plain\*": "<p>*plain*</p>",
    "- a\n- b\n  - c\n- d": "<ul><li>a</li><li>b<ul><li>c</li></ul></li><li>d</li></ul>",
    "3. x\n4. y": '<ol start="3"><li>x</li><li>y</li></ol>',
    "- one\n\n- two\n\nEnd.": "<ul><li>one</li><li>two</li></ul><p>End.</p>",
    "> said\n> **so**": "<blockquote><p>said<br><strong>so</strong></p></blockquote>",
    "a\n\n---\n\nb": "<p>a</p><hr><p>b</p>",
    "一二**三**四": "<p>一二<strong>三</strong>四</p>",
    "<b>no</b> & <script>": "<p>&lt;b&gt;no&lt;/b&gt; &amp; &lt;script&gt;</p>",
    "[text](javascript:alert(1))": "<p>[text](javascript:alert(1))</p>",
    "[x](data:text/html,y)": "<p>[x](data:text/html,y)</p>",
    "[loop](src/loop.py)": '<p><span class="path-link" title="src/loop.py">loop</span></p>',
}


async def render(page: Page, text: str) -> str:
    return await page.run(f"renderMarkdown({json.dumps(text)}).innerHTML")


@pytest.fixture
def script() -> SessionBuilder:
    return build_session()


TABLE = "| a | b |\n|:--|--:|\n| `x|y` | 1 \\| 2 |\n| only |\n\nafter"
CODE = "```python\ndef f():\n    return '```'\n```\nafter"
LOADING = (
    "![p](https://example.org/p.png) <img src=https://example.org/i onerror=alert(1)>"
    "\n\n<script>document.title = 'x'</script>\n\n[a](java\tscript:alert(1)) <svg onload=x>"
)


async def test_the_forms_that_models_write_are_shown_and_nothing_is_loaded_or_run(
    page: Page, script: SessionBuilder
) -> None:
    async with open_page(page, script):
        for text, expected in FORMS.items():
            assert await render(page, text) == expected, text
        tasks = await render(page, "- [x] done\n- [ ] open")
        assert 'class="task done"' in tasks and "✓" in tasks and "[ ]" not in tasks
        link = await render(page, "See https://example.org/a_b_(c)?d=e, and [this](https://x.org).")
        assert '<a href="https://example.org/a_b_(c)?d=e"' in link
        assert 'href="https://x.org"' in link and 'rel="noopener noreferrer"' in link
        html = await render(page, TABLE)
        assert "<td><code>x|y</code></td>" in html and '<td class="right">1 | 2</td>' in html
        assert html.count("<tr>") == 3 and html.endswith("<p>after</p>")
        html = await render(page, CODE)
        assert "def f():\n    return '```'</pre>" in html and "python" in html
        assert html.endswith("<p>after</p>")
        assert "never closed</pre>" in await render(page, "```\nnever closed")
        nested = await render(page, "1. First:\n   ```sh\n   make\n   ```\n2. Then")
        assert nested.count("<li>") == 2 and ">make</pre>" in nested
        tags = await page.run(
            f"[...renderMarkdown({json.dumps(LOADING)}).querySelectorAll('*')].map(e => e.tagName)"
        )
        assert set(tags) <= {"P", "A", "SPAN"}


async def test_hostile_lengths_and_depths_take_little_time(
    page: Page, script: SessionBuilder
) -> None:
    texts = [
        "**a " * 20_000,
        "[" * 5_000 + "](" * 5_000,
        "> " * 3_000 + "deep",
        "".join(" " * n + "- x\n" for n in range(400)),
        "`" * 9_999 + " x",
        "| a " * 3_000 + "|\n" + "|---" * 3_000 + "|\n" + "| b " * 3_000,
        "_a" * 2_400,
        "*a" * 2_400,
    ]
    async with open_page(page, script):
        for text in texts:
            spent = await page.run(
                "(text => { const began = performance.now(); renderMarkdown(text);"
                f" return performance.now() - began }})({json.dumps(text)})"
            )
            assert spent < 3_000, text[:20]


async def test_answers_reports_commands_and_ids_can_be_copied(
    page: Page, script: SessionBuilder
) -> None:
    async with open_page(page, script, "&run=1"):
        await page.run(
            "navigator.clipboard.writeText = text => { window.taken = text; return 1 }; 1"
        )
        await page.click(".path .copy")
        await page.wait_until("window.taken === '1'")
        assert await page.run("document.getElementById('status').textContent") == "Copied"
        await page.run("navigator.clipboard.writeText = () => { throw 1 }; 1")
        await page.click(".path .copy")
        await page.wait_until("document.querySelector('.path .copied')")
        labels = set(
            await page.run("[...document.querySelectorAll('.copy')].map(e => e.ariaLabel)")
        )
        assert {"Copy the run id", "Copy the report"} <= labels
        assert await read_texts(page, ".back .prose")
