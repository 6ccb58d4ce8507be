"""For tests, ours and those of whoever writes adapters or embeds agents: everything here is public.

    ScriptedModel, call, Request    a model that says what a test tells it to
    replayed                        a recorded session as the model of a test
    ModelServer, Fault, Asked       a model server on loopback that speaks three wires, and breaks as real ones do
    FakeClock, run_virtual          time that takes none
    MemoryJournal                   a journal that keeps nothing

The suites an adapter must pass are modules of their own: `mudroom.testing.journal_conformance`, `mudroom.testing.invariants`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..journals.memory import MemoryJournal
    from ..models.scripted import Request, ScriptedModel, call
    from .clock import FakeClock, run_virtual
    from .fixtures import load_replay_model
    from .model_server import Fault, ModelServer, ServerRequest

_HOMES = {
    "..journals.memory": "MemoryJournal",
    "..models.scripted": "Request ScriptedModel call",
    ".clock": "FakeClock run_virtual",
    ".fixtures": "load_replay_model",
    ".model_server": "Fault ModelServer ServerRequest",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [
    "FakeClock",
    "Fault",
    "MemoryJournal",
    "ModelServer",
    "Request",
    "ScriptedModel",
    "ServerRequest",
    "call",
    "load_replay_model",
    "run_virtual",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name], __name__), name)
