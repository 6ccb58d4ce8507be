"""Journal of a worker process: it gets only the events that it asks for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from mudroom._adapters.workers.remote.messages import CallSession
from mudroom._adapters.workers.remote.remote_services import RemoteJournal, SessionLink
from mudroom._adapters.workers.remote.session_calls import SessionCalls
from mudroom._adapters.workers.remote.tree_transfer import TravellingFiles, TreeTransfers
from mudroom._core.events import RunFinished, TurnStarted
from mudroom.testing.event_builders import run_finished, run_started
from mudroom.testing.worker_stage import WorkerStage


class DirectChannel:
    """Channel whose other end, in this process, has the calls of a session."""

    def __init__(self, stage: WorkerStage) -> None:
        files = TravellingFiles(stage.services, (), TreeTransfers(stage.services, 0))
        self.calls = SessionCalls(stage.services, files, lambda _: True)
        self.link = SessionLink(self.send, self.check_lease)
        self.received_bytes = 0

    def send(self, message: msgspec.Struct) -> None:
        assert isinstance(message, CallSession)
        self._task = asyncio.create_task(self._answer(message))

    async def _answer(self, call: CallSession) -> None:
        reply = await self.calls.execute(call)
        self.received_bytes += len(reply.result)
        self.link.handle_reply(reply)

    def check_lease(self) -> None:
        pass


async def test_only_events_of_the_asked_types_are_sent(tmp_path: Path) -> None:
    stage = WorkerStage(tmp_path)
    started, finished = run_started("1"), run_finished("1")
    await stage.journal.append(started, *[run_started(f"1.{n}") for n in range(200)], finished)
    channel = DirectChannel(stage)
    journal = RemoteJournal(channel.link)
    assert [event async for event in journal.read(types=(RunFinished, TurnStarted))] == [finished]
    assert channel.received_bytes < 2_000
    assert [event async for event in journal.read()][::201] == [started, finished]
