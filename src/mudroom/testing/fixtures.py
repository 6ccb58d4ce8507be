"""A recorded session as the model of a test: `replayed("fixture.jsonl")`, offline and the same every time."""

from __future__ import annotations

from pathlib import Path

import msgspec

from .._core.events import StoredEvent
from .._engine.replay_check import recorded_conversations
from ..models.replay_model import ReplayModel


def load_replay_model(path: str | Path) -> ReplayModel:
    """The model that gives the answers of a recorded session, one event a line as `mudroom export --format fixture` writes it.

    Whoever asks it something that was not asked then gets ModelRefused with the difference.

    Example:
        async with Session(model=replayed("tests/fixture.jsonl"), cwd=folder, journal="memory") as session:
            report = await session.run("the recorded prompt")
    """
    lines = Path(path).read_bytes().splitlines()
    events = [msgspec.json.decode(line, type=StoredEvent) for line in lines if line.strip()]
    return ReplayModel(recorded_conversations(events), name=f"replay:{Path(path).name}")
