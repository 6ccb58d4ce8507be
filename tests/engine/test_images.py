"""Tests of images in tool results: from the tool to the model, the record and the screens."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.transcripts import render_transcript

from mudroom import AnyEvent, Session, ToolResult, tool
from mudroom._adapters.models.scripted import ScriptedModel, call
from mudroom._cli.actions.export import redact_events, render_session_markdown, write_transcripts
from mudroom._core.events import Delta, StoredEvent, ToolCallFinished, decode_event, encode_event
from mudroom._core.messages import ImageBlock
from mudroom._projections.stream_json import StreamJson
from mudroom._projections.transcript import build_transcript

IMAGE = ImageBlock("image/png", b"\x89PNG" * 3000, 640, 480)
SESSION = "5e55a1d0-0000-4000-8000-00000000abcd"
PLACEHOLDER = "[image: image/png, 640x480, 12 KB]"


@tool
def camera() -> ToolResult:
    """Take a picture."""
    return ToolResult("a duck", images=(IMAGE,))


@pytest.fixture
async def recorded(tmp_path: Path) -> tuple[ScriptedModel, list[StoredEvent], list[AnyEvent]]:
    model = ScriptedModel([[call("camera")], "It is a duck."])
    events: list[AnyEvent] = []
    async with Session(
        model=model, tools=[camera], cwd=str(tmp_path), home=str(tmp_path), journal="memory"
    ) as session:
        session.watch(events.append)
        await session.run("What is this?")
    stored: list[StoredEvent] = [event for event in events if not isinstance(event, Delta)]
    return model, [decode_event(encode_event(event)) for event in stored], events


Recorded = tuple[ScriptedModel, list[StoredEvent], list[AnyEvent]]


def test_the_model_and_the_recorded_conversation_have_the_image(recorded: Recorded) -> None:
    model, stored, _ = recorded
    (result,) = model.requests[-1].results
    assert result.images == (IMAGE,)
    assert build_transcript(stored, "1")[:-1] == model.requests[-1].messages


def test_transcripts_and_exports_show_a_placeholder(recorded: Recorded, tmp_path: Path) -> None:
    _, stored, _ = recorded
    assert f"    {PLACEHOLDER}" in render_transcript(stored, "1").splitlines()
    assert f"a duck\n{PLACEHOLDER}" in "".join(render_session_markdown(stored))
    (path,) = write_transcripts(SESSION, stored, tmp_path / "out")
    assert json.dumps(f"a duck\n{PLACEHOLDER}") in path.read_text()


def test_stream_json_shows_a_placeholder(recorded: Recorded) -> None:
    _, _, events = recorded
    stream = StreamJson(session="s", cwd="/", model="m", tools=["camera"], agents=[])
    lines = [line for event in events for line in stream.make_event_lines(event)]
    contents = [
        block["content"]
        for line in lines
        if line["type"] == "user"
        for block in line["message"]["content"]
        if block["type"] == "tool_result"
    ]
    assert contents == [f"a duck\n{PLACEHOLDER}"]


def test_redaction_does_not_change_an_image(recorded: Recorded) -> None:
    _, stored, _ = recorded
    redacted = list(redact_events(stored, lambda text: text.replace("duck", "[redacted]")))
    (finished,) = [event for event in redacted if isinstance(event, ToolCallFinished)]
    assert finished.result.text == "a [redacted]"
    assert finished.result.images == (IMAGE,)
