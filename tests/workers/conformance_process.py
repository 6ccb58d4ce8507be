"""The program of the worker processes of the conformance suite."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec.structs import replace

from mudroom._adapters.workers.remote.messages import AskNode, NodeFacts, ToProcess, WorkerConfig
from mudroom._adapters.workers.remote.remote_services import (
    RemoteApprover,
    RemoteJournal,
    SessionLink,
)
from mudroom._adapters.workers.remote.serve import RunServer
from mudroom._adapters.workers.remote.session_calls import RemoteTeams
from mudroom._core.ports import RunLink
from mudroom._engine.meters.request_gate import Meters
from mudroom._engine.recorded_conversations import PastEvents
from mudroom._engine.session_context import Watchers
from mudroom._peers import MessageStream
from mudroom.testing.worker_stage import WorkerStage


async def serve(run_link: RunLink) -> None:
    """Execute runs with the model and the tools of the suite."""
    stream = MessageStream[Any](run_link, ToProcess)
    config = await stream.receive()
    if isinstance(config, AskNode):
        stream.send(NodeFacts())
        config = await stream.receive()
    assert isinstance(config, WorkerConfig)
    link = SessionLink(stream.send, run_link.check_lease)
    past_events = PastEvents()
    services = replace(
        WorkerStage(Path(config.folder)).services,
        journal=RemoteJournal(link),
        approver=RemoteApprover(link),
        past_events=past_events,
        watchers=Watchers((link.show,)),
        teams=RemoteTeams(link),
        meters=Meters(),
    )
    run_link.start_beats()
    await RunServer(link, services, past_events, config.max_children).serve(stream)
