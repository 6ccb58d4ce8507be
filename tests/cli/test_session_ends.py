"""Sources and reasons with which sessions at the prompt begin and end, as hooks read them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from mudroom._adapters.journals.sessions import open_store
from mudroom._cli.actions.load_settings import load_settings
from mudroom._cli.actions.session_start import SessionStart, StartOptions
from mudroom._cli.interactive.plain_ui import PlainUI
from mudroom._cli.interactive.session_loop import run_sessions


async def send_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: bytes, start: SessionStart
) -> None:
    """Send lines to the prompt as a user of this folder whose state folder is empty."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setenv("MUDROOM_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    reader, writer = os.pipe()
    os.write(writer, lines)
    os.close(writer)
    settings = load_settings(".", model="offline")
    with os.fdopen(reader) as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        async with PlainUI(settings) as ui:
            options = StartOptions(settings=settings, cwd=".", quiet=True, start=start)
            assert await run_sessions(ui, options) == 0


async def test_a_change_of_the_mode_before_the_first_prompt_keeps_id_and_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = SessionStart(id="00000000-0000-4000-8000-000000000001", name="the first")
    await send_lines(tmp_path, monkeypatch, b"/mode plan\n/mode default\nHello.\n", start)
    assert await open_store(str(tmp_path / "home")).find("the first") == start.id
    assert (tmp_path / "home" / "sessions" / f"{start.id}.db").exists()


async def test_hooks_read_how_each_session_at_the_prompt_begins_and_why_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "events"
    hook = {"type": "command", "command": f'line=$(cat); echo "$line" >> {file}'}
    clears = {"type": "command", "command": f"cat >> {tmp_path}/cleared"}
    starts = [{"hooks": [hook]}, {"matcher": "clear", "hooks": [clears]}]
    exits = {"type": "command", "command": f"touch {tmp_path}/exited"}
    groups = [{"hooks": [hook]}, {"matcher": "prompt_input_exit", "hooks": [exits]}]
    settings_file = tmp_path / "user" / ".claude" / "settings.json"
    settings_file.parent.mkdir(parents=True)
    settings_file.write_text(json.dumps({"hooks": {"SessionStart": starts, "SessionEnd": groups}}))
    lines = b"/mode plan\nHello.\n/mode default\n/clear\nHello.\n"
    await send_lines(tmp_path, monkeypatch, lines, SessionStart())
    events = [json.loads(line) for line in file.read_text().splitlines()]
    names = [
        f"{event['hook_event_name']}:{event.get('source') or event['reason']}" for event in events
    ]
    # The first session and the third end before a prompt, and stop the hooks of their beginning,
    # which may have written their line or not.
    assert re.fullmatch(
        "(SessionStart:startup )?SessionEnd:resume "
        "SessionStart:startup SessionEnd:resume "
        "(SessionStart:resume )?SessionEnd:clear "
        "SessionStart:clear SessionEnd:prompt_input_exit",
        " ".join(names),
    ), names
    assert (tmp_path / "exited").exists()
    assert json.loads((tmp_path / "cleared").read_text())["source"] == "clear"
