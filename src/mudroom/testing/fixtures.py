"""A recorded session as the model of a test: `replayed("fixture.jsonl")`, offline and the same every time."""

from __future__ import annotations

from pathlib import Path

import msgspec

from .._core.events import Stored
from .._engine.replay_check import conversations
from ..models.replay_model import ReplayedModel


def replayed(path: str | Path) -> ReplayedModel:
    """The model that gives the answers of a recorded session, one event a line as `mudroom export --format fixture` writes it.

    Whoever asks it something that was not asked then gets ModelRefused with the difference.

    Example:
        async with Session(model=replayed("tests/fixture.jsonl"), cwd=folder, journal="memory") as session:
            report = await session.run("the recorded prompt")
    """
    lines = Path(path).read_bytes().splitlines()
    events = [msgspec.json.decode(line, type=Stored) for line in lines if line.strip()]
    return ReplayedModel(conversations(events), name=f"replay:{Path(path).name}")
