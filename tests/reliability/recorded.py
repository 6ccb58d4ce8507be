"""Sessions of scripted models whose record ends early, as a kill leaves it, and goes on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.records import read_record, write_record

from mudroom import Report, Session, Tool, ToolResult
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel
from mudroom._core.events import RunStarted, SessionOpened, StoredEvent
from mudroom._replay import replay
from mudroom.testing.invariants import find_violations

from .killed import LONG

Script = ScriptedModel | Callable[[Request], Answer | Awaitable[Answer]]


def make_tool(name: str, run: Callable[..., Awaitable[ToolResult]], **facts: Any) -> Tool:
    """Return a tool that takes any arguments."""
    facts = {"description": "", "parameters": {"type": "object"}, "parse": dict, **facts}
    return Tool(name=name, run=run, **facts)


def open_scripted(folder: Path, script: Script, **options: Any) -> Session:
    """Return a session of a folder, with its home below. A resumed one has its own folder."""
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
    settings: dict[str, Any] = {} if options.get("resume") else {"cwd": str(folder)}
    settings |= {"home": str(folder / "home"), **options}
    return Session(model=model, **settings)


async def record_session(
    folder: Path, script: Script, **options: Any
) -> tuple[Report, list[StoredEvent]]:
    """Run the prompt PARENT without a sandbox; return the report and the record."""
    folder.mkdir(exist_ok=True)
    async with open_scripted(folder, script, **{"sandbox": "off", **options}) as session:
        report = await session.run("PARENT")
    return report, read_record(folder / "home", session.id)


def get_session_id(events: list[StoredEvent]) -> str:
    return next(event.session for event in events if isinstance(event, SessionOpened))


async def resume_record(
    folder: Path,
    events: list[StoredEvent],
    script: Script,
    *,
    replays: bool = True,
    **options: Any,
) -> tuple[Report | None, list[StoredEvent]]:
    """Continue a record that ends early. The new one keeps all promises, and replays."""
    session = get_session_id(events)
    await write_record(folder / "home", session, *events)
    options = {"sandbox": "off", "resume": session, **options}
    async with open_scripted(folder, script, **options) as resumed:
        report = await resumed.resume_unfinished()
    record = read_record(folder / "home", session)
    where = f"cut off after {len(events)} records"
    assert record[: len(events)] == events, where
    assert not find_violations(record), where
    assert not replays or await replay(record) == record, where
    return report, record


def list_cuts(events: list[StoredEvent], step: int = 1) -> range:
    """Return the numbers of records after which to cut: each in the long form."""
    first = next(n for n, event in enumerate(events) if isinstance(event, RunStarted)) + 1
    return range(first, len(events) - 1, 1 if LONG else step)
