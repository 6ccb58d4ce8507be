"""Recorded sessions as models for tests: they work offline and always give the same answers."""

from __future__ import annotations

from pathlib import Path

from .._adapters.models.replay_model import ReplayModel
from .._core.events import decode_event
from .._engine.recorded_conversations import rebuild_conversations


def load_replay_model(path: str | Path) -> ReplayModel:
    """Load a recorded session as a model that gives its answers.

    Arguments:
        path: a file with one event per line, as `mudroom export --format fixture` writes it.

    A request that differs from the recorded one raises ModelRefused with the difference.

    Example:
        def test_the_agent() -> None:
            model = load_replay_model("tests/fixture.jsonl")
            report = Session.run_sync("the recorded prompt", model=model, journal="memory")
            assert report.ok, report.error
    """
    lines = Path(path).read_bytes().splitlines()
    events = [decode_event(line) for line in lines if line.strip()]
    return ReplayModel(rebuild_conversations(events), name=f"replay:{Path(path).name}")
