"""Secrets that a model writes: in which places they are kept, and that none shows them."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mudroom import Children, Output, Session
from mudroom._adapters.models.scripted import Request, ScriptedModel, call
from mudroom._adapters.output_filters import Redactor
from mudroom._cli.main import main
from mudroom._core.agents import Mode
from mudroom._core.events import Delta, StoredEvent
from mudroom._core.messages import AssistantMessage, TextBlock, ThinkingBlock, ToolCallBlock
from mudroom._projections.safe_text import redact_answer, redact_event
from mudroom.permissions.rules import Permissions
from mudroom.testing.event_builders import turn_finished

from .test_redaction import ORDINARY, SHAPES

VALUE = "correct-horse-9 and more"
PLACES = (
    "text",
    "thinking",
    "signed thinking",
    "command",
    "content",
    "no such tool",
    "malformed",
    "prompt of a child",
    "description of a child",
    "report of a child",
    "output",
    "task of the board",
    "last answer",
)
KEPT = {"signed thinking", "command", "content", "no such tool"}
"""Places in which the record keeps a secret: a resumed run needs the exact text."""


def plant(place: str) -> str:
    """Return a text with a secret of a known form that says where it is."""
    return f"here is ghp_{PLACES.index(place):02}{'aB3dE6gH9jK2mN5pQ8rS' * 2} indeed"


def find_planted(data: bytes) -> set[str]:
    return {place for place in PLACES if plant(place).split()[2].encode() in data}


def answer(request: Request) -> Sequence[Any] | str:
    """Write a secret in every place that a model can write to."""
    if "CHILD" in str(request.messages):
        return plant("report of a child")
    if request.number > 1:
        return plant("last answer")
    return [
        ThinkingBlock(plant("thinking")),
        ThinkingBlock(plant("signed thinking"), "signature"),
        TextBlock(plant("text")),
        call("bash", command=f"true '{plant('command')}'"),
        call("write", file_path="written", content=plant("content")),
        call("mcp__gone__tool", text=plant("no such tool")),
        ToolCallBlock("bad", "read", {}, malformed=plant("malformed")),
        call(
            "task",
            prompt=f"CHILD {plant('prompt of a child')}",
            description=plant("description of a child"),
        ),
        call("self.emitvalue", emit_variable_name="out", emit_variable_value=plant("output")),
        call("task_create", subject="s", description=plant("task of the board")),
    ]


async def run_and_find(home: Path, work: Path) -> tuple[str, set[str]]:
    """Run a session whose model writes secrets; return its id, and the places that are kept."""
    seen: list[Any] = []
    async with Session(
        model=ScriptedModel(answer),
        cwd=str(work),
        home=str(home),
        sandbox="off",
        children=Children(board=True),
        permissions=Permissions(mode=Mode.BYPASS),
    ) as session:
        session.watch(seen.append)
        report = await session.run("Write.", outputs={"out": Output("a value")})
        files = [path for path in home.rglob("*") if path.is_file()]
        kept = find_planted(b"".join(path.read_bytes() for path in files))
    assert "[redacted: GitHub token]" in report.text
    assert "[redacted: GitHub token]" in report.outputs["out"]
    assert find_planted(str(seen).encode() + str(report).encode()) == set()
    return session.id, kept


def test_a_secret_of_the_model_is_kept_only_where_the_exact_text_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    home, work = tmp_path / "home", tmp_path / "work"
    work.mkdir()
    session, kept = asyncio.run(run_and_find(home, work))
    assert (work / "written").read_text() == plant("content"), "what acts is not changed"
    assert kept == KEPT
    monkeypatch.setenv("MUDROOM_HOME", str(home))
    for command in [
        ["show", session],
        ["show", session, "--run", "1.1.5"],
        ["resume", session, "-o", "stream-json"],
        ["resume", session],
        ["runs", "--json"],
        ["export", session, "--format", "md"],
        ["export", session, "--format", "fixture"],
        ["export", session, "--format", "html"],
    ]:
        with pytest.raises(SystemExit):
            main(command)
        sys.stdout.flush()
        out, err = capfdbinary.readouterr()
        assert out, (command, err)
        assert find_planted(out + err) == set(), command


@pytest.mark.parametrize("shape", SHAPES)
@given(st.lists(st.integers(1, 30), max_size=12))
def test_a_streamed_secret_is_held_back_until_it_is_whole(shape: str, sizes: list[int]) -> None:
    redactor = Redactor({"MY_SECRET": VALUE})
    secrets = [SHAPES[shape], VALUE]
    text = f"I found {SHAPES[shape]}\nand {VALUE}.\n" + "\n".join(ORDINARY)
    shown = stream(redactor, text, sizes)
    assert not any(secret in shown for secret in secrets)
    assert shown == redactor(text)


@pytest.mark.parametrize("text", [*ORDINARY, "See https://example.org/a and sk- or s", "-----BE"])
def test_little_of_an_ordinary_text_is_held_back(text: str) -> None:
    redactor = Redactor({"MY_SECRET": VALUE})
    assert stream(redactor, text, [1] * len(text)) == text
    assert redactor.find_unfinished(f"{text} said") == len(f"{text} said") or "BEGIN" in text


def stream(redactor: Redactor, text: str, sizes: Sequence[int]) -> str:
    """Return what is shown of a text that arrives in chunks."""
    shown = pending = ""
    for size in [*sizes, len(text)]:
        pending += text[:size]
        text = text[size:]
        end = redactor.find_unfinished(pending)
        shown += redactor(pending[:end])
        pending = pending[end:]
    return shown + redactor(pending)


async def test_no_chunk_shows_a_part_of_a_secret(tmp_path: Path) -> None:
    secret = "ghp_" + "aB3dE6gH9jK2mN5pQ8rS" * 2
    text = "x" * 20 + f" {secret} and then more"
    seen: list[Any] = []
    async with Session(model=ScriptedModel([text]), cwd=str(tmp_path), home=str(tmp_path)) as ours:
        ours.watch(seen.append)
        await ours.run("Go.")
    shown = [event.text for event in seen if isinstance(event, Delta)]
    assert len(shown) > 1 and not any("aB3d" in each for each in shown)
    assert "".join(shown) == text.replace(secret, "[redacted: GitHub token]")


def test_a_secret_across_blocks_of_one_text_is_found() -> None:
    secret = SHAPES["GitHub token"]
    blocks = (TextBlock(f"a {secret[:20]}"), TextBlock(f"{secret[20:]} b", is_continuation=True))
    redacted = redact_answer(AssistantMessage(blocks), Redactor({}))
    assert redacted.text == "a [redacted: GitHub token] b"


def test_what_has_no_secret_is_the_same_object() -> None:
    event: StoredEvent = turn_finished("1", TextBlock("a"), ThinkingBlock("b", "s"), text="c")
    assert redact_event(event, Redactor({})) is event
