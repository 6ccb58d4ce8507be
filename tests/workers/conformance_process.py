"""Worker process of the conformance suite: `python conformance_process.py SOCKET`."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path

from msgspec.structs import replace

from mudroom._engine.meters.registry import Meters
from mudroom.projections.past_events import PastEvents
from mudroom.testing.worker_stage import WorkerStage
from mudroom.workers.process.channel import Channel
from mudroom.workers.process.messages import ToWorker, WorkerConfig
from mudroom.workers.process.remote_services import RemoteApprover, RemoteJournal, SessionLink
from mudroom.workers.process.serve import RunServer
from mudroom.workers.process.session_calls import RemoteTeams


async def serve(connection: socket.socket) -> None:
    """Execute runs with the model and the tools of the suite."""
    channel = await Channel[ToWorker].open(connection, WorkerConfig | ToWorker)
    config = await channel.receive()
    assert isinstance(config, WorkerConfig)
    link = SessionLink(channel)
    past_events = PastEvents()
    services = replace(
        WorkerStage(Path(config.folder)).services,
        journal=RemoteJournal(link),
        approver=RemoteApprover(link),
        past_events=past_events,
        watchers=[link.show],
        teams=RemoteTeams(link),
        meters=Meters(),
    )
    await RunServer(link, services, past_events, config.max_children).serve(channel)
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(serve(socket.socket(fileno=int(sys.argv[1]))))
