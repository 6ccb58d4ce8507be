"""Worker process of the conformance suite: `python conformance_process.py SOCKET`."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from mudroom._adapters.workers.process.channel import Channel
from mudroom._adapters.workers.remote.connection import MessageChannel, ToProcess
from mudroom._adapters.workers.remote.messages import WorkerConfig
from mudroom._adapters.workers.remote.remote_services import (
    RemoteApprover,
    RemoteJournal,
    SessionLink,
)
from mudroom._adapters.workers.remote.serve import RunServer
from mudroom._adapters.workers.remote.session_calls import RemoteTeams
from mudroom._adapters.workers.remote.shared_messages import ShareProcess
from mudroom._adapters.workers.shared.serve import SharedServer
from mudroom._engine.meters.request_gate import Meters
from mudroom._engine.recorded_conversations import PastEvents
from mudroom._engine.session_context import Watchers
from mudroom.testing.worker_stage import WorkerStage


async def serve(channel: MessageChannel[Any]) -> None:
    """Execute runs with the model and the tools of the suite."""
    config = await channel.receive()
    if isinstance(config, ShareProcess):
        await SharedServer(channel, serve).serve()
        return
    assert isinstance(config, WorkerConfig)
    link = SessionLink(channel)
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
    channel.start_beats()
    await RunServer(link, services, past_events, config.max_children).serve(channel)


async def main(connection: socket.socket) -> None:
    """Serve a socket and exit."""
    await serve(await Channel[Any].open(connection, ToProcess))
    os._exit(0)


if __name__ == "__main__":
    asyncio.run(main(socket.socket(fileno=int(sys.argv[1]))))
