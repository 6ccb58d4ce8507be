"""A conversation at the prompt: its window, an early interrupt, its hooks, and its recap."""

from __future__ import annotations

import asyncio
import json
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.viewer.sessions import SessionBuilder

from mudroom import Compaction, Session
from mudroom._adapters.journals.sessions import open_store
from mudroom._adapters.models.scripted import ScriptedModel
from mudroom._adapters.workspaces.shared import SharedWorkspace
from mudroom._cli.actions.load_settings import load_settings
from mudroom._cli.actions.session_start import SessionStart, StartOptions
from mudroom._cli.interactive.conversation import Conversation
from mudroom._cli.interactive.plain_ui import PlainUI
from mudroom._cli.interactive.recap import Recap
from mudroom._cli.interactive.session_loop import list_amounts, run_sessions
from mudroom._cli.output.scrollback import Scrollback
from mudroom._cli.output.text import UNICODE
from mudroom._core.messages import AssistantMessage, TextBlock, Usage
from mudroom._core.runs import Reason
from mudroom._projections.run_tree import RunTree
from mudroom._session.config import Settings

from ..shown_session import show
from ..waiting import SECONDS, wait_until


def open_session(folder: Path, *, tokens: int = 8_000, **options: Any) -> Session:
    """Return a session whose model reports the tokens of its requests."""
    answer = AssistantMessage((TextBlock("ok"),), usage=Usage(tokens, 0))
    model = ScriptedModel([answer])
    return Session(model=model, cwd=str(folder), home=str(folder), journal="memory", **options)


async def show_share(session: Session, folder: Path) -> str:
    """Run one prompt and `/context`; return the status line."""
    settings = Settings(home=str(folder))
    async with show(session, settings) as conversation:
        await conversation.handle_line("hello")
        await conversation.handle_line("/context")
        return "".join(conversation.status.format_line(200, UNICODE))


async def test_the_share_is_of_the_window_in_the_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = open_session(tmp_path, compaction=Compaction(context_window=32_000))
    assert "context 25%" in await show_share(session, tmp_path)
    assert "8.0k of 32.0k (25%) tokens" in capsys.readouterr().out


async def test_a_model_without_a_limit_has_no_share(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = await show_share(open_session(tmp_path), tmp_path)
    assert shown.endswith("context 8.0k")
    printed = " ".join(capsys.readouterr().out.split())
    assert "8.0k tokens at the last model call; the context window of this" in printed


async def test_the_session_states_the_window_that_its_runs_use(tmp_path: Path) -> None:
    environ = {"OLLAMA_HOST": "http://127.0.0.1:1", "ANTHROPIC_API_KEY": "k-test"}
    session = open_session(tmp_path, environ=environ)
    async with session:
        assert session.find_context_window("lmstudio:model-of-this-test") == 32_000
        assert session.find_context_window("anthropic:claude-sonnet-4-5") == 200_000
        services = session._require_open().resources.services
        services.context_policy.learn_window("lmstudio:model-of-this-test", 20_000, "too long")
        assert session.find_context_window("lmstudio:model-of-this-test") == 18_000
    assert session.find_context_window("lmstudio:model-of-this-test") == 0


class HeldWorkspace(SharedWorkspace):
    """Files whose first read waits until the test lets it end."""

    def __init__(self, root: str) -> None:
        super().__init__(root)
        self.is_reading = threading.Event()
        self.may_read = threading.Event()

    def read(self, path: str, offset: int, size: int) -> bytes:
        self.is_reading.set()
        assert self.may_read.wait(SECONDS)
        return super().read(path, offset, size)


@pytest.mark.parametrize("stop", [Conversation.interrupt, Conversation.stop_all])
async def test_a_prompt_that_is_not_sent_yet_is_stopped(
    stop: Callable[[Conversation], bool], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("notes")
    files = HeldWorkspace(str(tmp_path))
    model = ScriptedModel([AssistantMessage((TextBlock("the answer"),))])
    session = Session(model=model, cwd=files, home=str(tmp_path), journal="memory")
    settings = Settings(home=str(tmp_path))
    async with show(session, settings) as conversation:
        sending = asyncio.ensure_future(conversation.handle_line("read @notes.txt"))
        try:
            await wait_until(files.is_reading.is_set)
            assert conversation.is_busy and stop(conversation)
            await sending
        finally:
            files.may_read.set()
        assert not conversation.is_busy and not conversation.tree.runs
        assert "Stopped before anything was sent." in capsys.readouterr().out
        await conversation.handle_line("again")
        assert "the answer" in capsys.readouterr().out


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


def test_the_costs_of_a_run_without_an_end_are_not_claimed() -> None:
    builder = SessionBuilder()
    builder.open_session()
    builder.start_run("1", "Why?", builder.at)
    builder.add_turn("1", 1, builder.at, 2.0, (TextBlock("Because."),), 10_000)
    tree = RunTree()
    for event in builder.events:
        tree.apply(event)
    tokens, costs, seconds = list_amounts(tree.roots)
    assert tokens.endswith("k tokens") and costs == "cost not known" and seconds == "2.0s"
    builder.finish_run("1", builder.at + 2, "Because.", Reason.GOAL, usd=0.25)
    tree.apply(builder.events[-1])
    assert list_amounts(tree.roots) == [tokens, "$0.25", seconds]
    builder.start_run("2", "And then?", builder.at, continues="1")
    builder.add_turn("2", 1, builder.at, 2.0, (TextBlock("Then"),), 10_000)
    tree = RunTree.from_events(builder.events)
    assert list_amounts(tree.roots)[1] == "at least $0.25"


def test_a_recap_has_the_prompts_without_attached_files_and_their_answers() -> None:
    builder = SessionBuilder()
    builder.open_session()
    prompt = 'Look at @a.py\n\n<file path="a.py">\nx = 1\n</file>'
    for run, continues in (("1", ""), ("2", "1")):
        builder.start_run(run, prompt, builder.at, continues=continues)
        builder.add_turn(run, 1, builder.at, 2.0, (TextBlock("It is short."),), 10_000)
        builder.finish_run(run, builder.at + 2, "It is short.", Reason.GOAL, usd=0.25)
    written: list[str] = []
    scrollback = Scrollback(write=written.append, columns=lambda: 80, color=False, glyphs=UNICODE)
    tree = RunTree()
    recap = Recap(tree)
    for event in builder.events:
        tree.apply(event)
        recap.apply(event)
    recap.print(scrollback, builder.session)
    lines = [line.rstrip() for line in "".join(written).splitlines() if line.strip()]
    assert lines == ["> Look at @a.py", "It is short."] * 2
