"""What suites and tests share: recorded sessions as models, and the checks of a suite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .._adapters.models.replay_model import ReplayModel
from .._core.events import decode_event
from .._engine.recorded_conversations import rebuild_conversations


def load_replay_model(path: str | Path) -> ReplayModel:
    """Load a recorded session and return a model that always gives the same answers.

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


def collect_checks(names: Mapping[str, Any]) -> tuple[Callable[..., Any], ...]:
    """Return the functions `check_...` of a module in their order. `names`: its `globals()`."""
    return tuple(value for name, value in names.items() if name.startswith("check_"))
