"""McpServer: the server's session and its connections."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import asynccontextmanager, closing, contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from mudroom import Approver, Budget, Session
from mudroom.driving import Listener, ListenOptions, Notice, ServerAddress, SessionDriver
from mudroom.errors import UsageError

from ..line_streams import LineInput, LineOutput
from .approver import ANSWER_SECONDS, McpApprover
from .first_answer import FirstAnswer
from .host_tasks import DEFAULT_PARALLEL, HEARTBEAT, LOCAL_OWNER, HostTasks
from .protocol_tasks import ProtocolTasks
from .results import AnswerMaker

if TYPE_CHECKING:
    from .http import FindOwner
    from .protocol import McpProtocol

INSTALL_COMMAND = "pip install 'mudroom[mcp]'"
_FIRST_SECONDS = 0.05
"""Longest wait at the start for the first request, whose answer may be known."""


class McpOptions(Struct, frozen=True, kw_only=True):
    limits: Budget = Budget()  # of each task
    parallel: int = DEFAULT_PARALLEL
    nesting: int = 0  # mudroom servers this one works for
    answer_seconds: float = ANSWER_SECONDS
    heartbeat: float = HEARTBEAT  # seconds between progress messages while nothing happens


class McpServer:
    """A session whose tasks MCP hosts start. `make_session` makes it without opening it."""

    def __init__(
        self,
        make_session: Callable[[Approver], Session],
        options: McpOptions,
        notify: Callable[[str], object],
    ) -> None:
        self._make_session = make_session
        self._options = options
        self._notify = notify
        self._stop = asyncio.Event()
        self.select_notices: Callable[[Iterable[Notice]], Iterable[Notice]] = list

    def stop(self) -> bool:
        """Stop all tasks and end the server. Return False if it is already ending."""
        if self._stop.is_set():
            return False
        self._stop.set()
        return True

    async def serve_stdio(self) -> None:
        with claim_standard_streams() as pipes:
            await self.serve(pipes)

    async def serve(self, pipes: Pipes) -> None:
        """Serve the host on two pipes until it closes its end.

        If the session cannot be opened, nothing is answered, not even with a known answer.
        """
        output = LineOutput(pipes.output, self._note_closed_output)
        try:
            async with self._open_session() as (session, host_tasks):
                first = FirstAnswer(LineInput(pipes.input), output, session.home)
                await self._serve_pipes(session, host_tasks, first)
        finally:
            output.end()

    async def _serve_pipes(
        self, session: Session, host_tasks: HostTasks, first: FirstAnswer
    ) -> None:
        answering = asyncio.create_task(first.begin())
        try:
            await asyncio.wait({answering}, timeout=_FIRST_SECONDS)
            async with self._open_protocol(session, host_tasks) as protocol:
                from .stdio import serve

                server = protocol.make_server(LOCAL_OWNER)
                await serve(server, host_tasks, first, answering, self._stop, self._notify)
        finally:
            answering.cancel()
            await asyncio.gather(answering, return_exceptions=True)

    def _note_closed_output(self, reason: str) -> None:
        if reason:
            self._notify(f"{reason}. The tasks stop.")
        self._stop.set()

    async def serve_http(
        self,
        options: ListenOptions,
        find_owner: FindOwner,
        on_open: Callable[[ServerAddress], object],
    ) -> None:
        """Serve hosts over HTTP until `stop` is called; `on_open` gets the address once they can
        connect.
        """
        listener = Listener(options)
        with closing(listener.open_socket()) as opened:
            async with (
                self._open_session() as (session, host_tasks),
                self._open_protocol(session, host_tasks) as protocol,
            ):
                from .http import PATH, serve_http

                address = listener.address
                on_open(replace(address, url=address.url + PATH))
                server = protocol.make_server(None)
                await serve_http(
                    server, host_tasks, opened, listener, find_owner, self._stop, self._notify
                )

    @asynccontextmanager
    async def _open_session(self) -> AsyncGenerator[tuple[Session, HostTasks]]:
        options = self._options
        host_tasks = HostTasks(options.limits, parallel=options.parallel, nesting=options.nesting)
        approver = McpApprover(host_tasks, options.answer_seconds)
        driver = SessionDriver(
            lambda plan, start: self._make_session(approver), None, on_open=approver.start_session
        )
        async with driver:
            for notice in self.select_notices(driver.session.notices):
                self._notify(notice.text)
            host_tasks.open(driver)
            yield driver.session, host_tasks

    @asynccontextmanager
    async def _open_protocol(
        self, session: Session, host_tasks: HostTasks
    ) -> AsyncGenerator[McpProtocol]:
        """Load the package and its handlers; cancel all tasks at the end of the block."""
        await load_package()
        from .protocol import McpProtocol

        answers = AnswerMaker(session.id, os.path.join(session.home, "spills", session.id))
        protocol_tasks = ProtocolTasks(host_tasks, session.home, session.id)
        await asyncio.to_thread(protocol_tasks.delete_old)
        try:
            yield McpProtocol(
                host_tasks, answers, protocol_tasks, heartbeat=self._options.heartbeat
            )
        finally:
            await host_tasks.close()
            await protocol_tasks.close()


def require_package() -> None:
    if find_spec("mcp") is None:
        raise UsageError("the package mcp is not installed", remedy=f"Run: {INSTALL_COMMAND}")


async def load_package() -> None:
    await asyncio.to_thread(import_module, f"{__package__}.protocol")


class Pipes(Struct, frozen=True):
    """Descriptors of the pipes from and to the host."""

    input: int
    output: int


@contextmanager
def claim_standard_streams() -> Generator[Pipes]:
    """Reserve stdin and stdout for messages: others read nothing and write to stderr.

    Descriptors are not closed, because a thread may still be waiting on one.
    """
    pipes = Pipes(os.dup(0), os.dup(1))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    try:
        yield pipes
    finally:
        os.dup2(pipes.input, 0)
        os.dup2(pipes.output, 1)
