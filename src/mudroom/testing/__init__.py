"""Public test tools: fake models, servers, clocks and journals, for adapters and programs.

    ScriptedModel, Answer, Request, call   a model that answers as a test prescribes
    load_replay_model                      a recorded session as the model of a test
    ModelServer, Fault, ServerRequest      a model server on loopback with five wire formats, and
                                           the faults it can produce
    PromptCache                            what a provider's prompt cache does with each request
    FakeClock, run_virtual                 time that passes without waiting
    MemoryJournal, MemoryStore             a journal and a session store in memory

Suites for adapters are in `mudroom.testing.journal_conformance`, `store_conformance`,
`workspace_conformance` and `worker_conformance`; `invariants` checks a record.

Example:
    def answer(request: Request) -> Answer:
        return "It is about mud." if request.results else [call("read", file_path="paper.md")]

    async with mudroom.Session(model=ScriptedModel(answer), store=MemoryStore()) as scripted:
        report = await scripted.run("What is it about?")
    report.text == "It is about mud."

    def refuse(request: ServerRequest) -> Fault:
        return Fault(status=529, headers={"Retry-After": "1"})

    async with ModelServer(refuse) as server:
        print(server.url)

    clock = FakeClock()
    clock.advance(3600)
    journal = MemoryJournal()

    def test_an_hour_passes_at_once() -> None:
        run_virtual(asyncio.sleep(3600))
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._platform.imports import load_later

if TYPE_CHECKING:
    from .._adapters.journals.memory import MemoryJournal, MemoryStore
    from .._adapters.models.prompt_cache import PromptCache
    from .._adapters.models.scripted import Answer, Request, ScriptedModel, call
    from .clock import FakeClock, run_virtual
    from .fixtures import load_replay_model
    from .model_server import Fault, ModelServer, ServerRequest

__all__ = [
    "Answer",
    "FakeClock",
    "Fault",
    "MemoryJournal",
    "MemoryStore",
    "ModelServer",
    "PromptCache",
    "Request",
    "ScriptedModel",
    "ServerRequest",
    "call",
    "load_replay_model",
    "run_virtual",
]

__getattr__ = load_later(
    __name__,
    {
        "._adapters.journals.memory": "MemoryJournal MemoryStore",
        "._adapters.models.prompt_cache": "PromptCache",
        "._adapters.models.scripted": "Answer Request ScriptedModel call",
        "clock": "FakeClock run_virtual",
        "fixtures": "load_replay_model",
        "model_server": "Fault ModelServer ServerRequest",
    },
)
