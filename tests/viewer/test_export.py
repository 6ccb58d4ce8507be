"""Tests of the exported file: complete, self-contained, and safe against hostile text."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
from tests.viewer.sessions import (
    HOSTILE_TEXT,
    SessionBuilder,
    SingleSession,
    build_hostile_session,
    build_large_session,
    write_session,
)

from mudroom._cli.actions.serve_viewer import can_open_browser
from mudroom._viewer.export import render_single_file


def read_embedded(page: str) -> Any:
    match = re.search(
        r'<script type="application/json" id="embedded" data-session="([^"]*)">(.*?)</script>',
        page,
        re.DOTALL,
    )
    assert match
    return json.loads(match[2])


async def render(script: SessionBuilder) -> str:
    source = SingleSession(script.session, script.events)
    return "".join([piece async for piece in render_single_file(source, script.session)])


def run_mudroom(home: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "MUDROOM_HOME": str(home), **environ}
    return subprocess.run(
        [sys.executable, "-m", "mudroom", *words],
        env=environ,
        capture_output=True,
        text=True,
        cwd=home,
    )


async def test_the_file_contains_every_event_and_loads_nothing() -> None:
    script = build_large_session()
    page = await render(script)
    embedded = read_embedded(page)
    assert [number for number, _ in embedded["events"]] == [*range(1, len(script.events) + 1)]
    assert embedded["error"] == ""
    start = page.index('id="embedded"')
    shell = page[:start] + page[page.index("</script>", start) :]
    assert not re.search(r"""(?:src|href)=["'](?!#|data:)|@import|url\((?!#)""", shell)
    assert "default-src 'none'" in page
    assert "unsafe" not in page.split("</head>")[0].split("<style>")[0]


async def test_hostile_text_stays_inside_its_element() -> None:
    script = build_hostile_session()
    page = await render(script)
    assert "<img src=x" not in page and page.count("</script>") == page.count("<script")
    assert HOSTILE_TEXT in read_embedded(page)["events"][1][1]["brief"]["prompt"]


async def test_the_commands_write_the_file(tmp_path: Path) -> None:
    await write_session(tmp_path, build_hostile_session())
    done = run_mudroom(tmp_path, "export", "5e55a1d0", "--html", "run.html")
    target = tmp_path / "run.html"
    assert done.returncode == 0 and "needs no server" in done.stderr and not done.stdout
    assert (
        read_embedded(target.read_text(encoding="utf-8"))["events"]
        and target.stat().st_mode & 0o777 == 0o600
    )
    assert run_mudroom(tmp_path, "view", "5e55a1d0", "--export", "-").stdout == target.read_text(
        encoding="utf-8"
    )
    unknown = run_mudroom(tmp_path, "view", "nosuch", "--export", "-")
    assert unknown.returncode == 2 and "unknown session 'nosuch'" in unknown.stderr


async def test_secrets_are_redacted_in_the_file(tmp_path: Path) -> None:
    script = SessionBuilder()
    script.start_run("1", "The key is sk-planted-key-of-some-length-0123456789.", script.at)
    await write_session(tmp_path, script)
    environ = {"ANTHROPIC_API_KEY": "sk-planted-key-of-some-length-0123456789"}
    done = run_mudroom(tmp_path, "export", "5e55a1d0", "--format", "html", "-o", "-", **environ)
    assert done.returncode == 0 and "The key is" in done.stdout and "sk-planted" not in done.stdout


async def test_the_viewer_is_served_until_it_is_interrupted(tmp_path: Path) -> None:
    await write_session(tmp_path, build_hostile_session())
    viewer = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "mudroom", "view", "--no-open", "--port", "0"),
        env={**os.environ, "MUDROOM_HOME": str(tmp_path)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert viewer.stdout and viewer.stderr
    async with asyncio.timeout(60):
        url = (await viewer.stdout.readline()).decode().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=\S+#session=5e55a1d0", url)
        async with (
            aiohttp.ClientSession() as session,
            session.get(url.replace("/?", "/api/sessions?")) as answer,
        ):
            listed = (await answer.json())["sessions"]
            assert [each["id"][:8] for each in listed] == ["5e55a1d0"]
        viewer.send_signal(signal.SIGINT)
        assert await viewer.wait() == 0 and b"Traceback" not in await viewer.stderr.read()


def test_a_browser_is_opened_only_where_there_is_a_screen() -> None:
    assert can_open_browser({"DISPLAY": ":0"}, "linux") and can_open_browser({}, "darwin")
    assert not can_open_browser({}, "linux") and not can_open_browser(
        {"DISPLAY": ":0", "SSH_CONNECTION": "x"}, "linux"
    )
