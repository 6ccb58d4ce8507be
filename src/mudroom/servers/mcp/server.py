"""McpServer: the session of the server, and its connections."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import find_spec

from msgspec import Struct

from ..._core.budgets import Budget
from ..._core.ports import Approver
from ...errors import UsageError
from ...permissions.rules import Permissions
from ...session import Session
from .approver import ANSWER_SECONDS, McpApprover
from .host_tasks import DEFAULT_PARALLEL, HEARTBEAT, HostTasks
from .results import AnswerMaker
from .stdio_claim import Pipes, claim_standard_streams

INSTALL_COMMAND = "pip install 'mudroom[mcp]'"


class ServerOptions(Struct, frozen=True, kw_only=True):
    """Options of the server.

    Arguments:
        limits: of each task. parallel: tasks that run at the same time.
        permissions: of the session.
        cwd: folder of the session. home: mudroom's state folder. user_home: home of the user.
        nesting: servers of mudroom that this one works for.
        answer_seconds: time for the answer to a question.
        heartbeat: seconds between two messages about progress if nothing happens.
    """

    limits: Budget = Budget()
    parallel: int = DEFAULT_PARALLEL
    permissions: Permissions = Permissions()
    cwd: str
    home: str
    user_home: str = "/"
    nesting: int = 0
    answer_seconds: float = ANSWER_SECONDS
    heartbeat: float = HEARTBEAT


class McpServer:
    """One session whose tasks MCP hosts start.

    Arguments:
        make_session: makes the session, which is not open, with an approver.
        notify: takes a line for stderr.

    Attributes:
        select_notices: selects the notices of the session that are shown.
    """

    def __init__(
        self,
        make_session: Callable[[Approver], Session],
        options: ServerOptions,
        notify: Callable[[str], object],
    ) -> None:
        self._make_session = make_session
        self._options = options
        self._notify = notify
        self._stop = asyncio.Event()
        self.select_notices: Callable[[Iterable[str]], Iterable[str]] = list

    def stop(self) -> bool:
        """Stop all tasks and end the server. Return False if it ends already."""
        if self._stop.is_set():
            return False
        self._stop.set()
        return True

    async def serve_stdio(self) -> None:
        """Serve the host at stdin and stdout until it closes stdin. Raises MudroomError."""
        with claim_standard_streams() as pipes:
            await self.serve(pipes)

    async def serve(self, pipes: Pipes) -> None:
        """Serve the host at two pipes until it closes its end. Raises MudroomError."""
        loading = asyncio.create_task(load_package())
        options = self._options
        calls = HostTasks(options.limits, parallel=options.parallel, nesting=options.nesting)
        approver = McpApprover(
            calls,
            options.permissions,
            cwd=options.cwd,
            user_home=options.user_home,
            seconds=options.answer_seconds,
        )
        async with self._make_session(approver) as session:
            for notice in self.select_notices(session.notices):
                self._notify(notice)
            calls.open(session)
            spills = os.path.join(options.home, "spills", session.id)
            answers = AnswerMaker(session.id, spills)
            await loading
            from .protocol import McpProtocol
            from .stdio import serve

            protocol = McpProtocol(calls, answers, heartbeat=options.heartbeat)
            try:
                await serve(protocol.make_server(), calls, pipes, self._stop, self._notify)
            finally:
                await calls.close()


def require_package() -> None:
    """Raise UsageError if the package `mcp` is not installed."""
    if find_spec("mcp") is None:
        raise UsageError("the package mcp is not installed", remedy=f"Run: {INSTALL_COMMAND}")


async def load_package() -> None:
    """Import the handlers, and the package, in a thread."""
    await asyncio.to_thread(import_module, f"{__package__}.protocol")
