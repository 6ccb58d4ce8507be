"""How a session reaches its worker processes: its own, or ones shared by several sessions."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..._adapters.workers.process import ProcessTransport
from ..._core.ports import WorkerTransport
from ..._core.type_checks import check_type
from ...errors import UsageError
from ..options import MAX_PROCESSES, SessionOptions, WorkerChoice, parse_worker

if TYPE_CHECKING:
    from mudroom_fleet.shared_processes import SharedProcesses

RUN_PROGRAM = "mudroom._session.worker_setup.process_services:serve"
"""Executed by a worker process for a single session."""
SHARE_PROGRAM = "mudroom_fleet.shared_program:serve"
"""Executed by a process shared by several sessions."""


async def connect(
    options: SessionOptions, environ: Mapping[str, str]
) -> tuple[WorkerTransport, int]:
    workers = options.worker
    if isinstance(workers, str):
        return await _open_transport(parse_worker(workers), environ, RUN_PROGRAM)
    if not isinstance(workers, Workers):
        raise UsageError(
            f"worker is no mudroom.Workers, but {type(workers).__name__}",
            where="Session",
            remedy="Pass what `async with Workers(...) as workers:` gives.",
        )
    return workers._connect()  # noqa: SLF001  (same module)


async def _open_transport(
    choice: WorkerChoice, environ: Mapping[str, str], program: str
) -> tuple[WorkerTransport, int]:
    """Open new worker processes, by default one per processor, and return their number."""
    if choice.kind == "process":
        transport = ProcessTransport(make_command(program))
        return transport, choice.processes or os.cpu_count() or 1
    from mudroom_fleet.ray_transport import RayTransport

    transport = RayTransport(program, environ)
    try:
        processors = await transport.start()
    except BaseException:
        await transport.close()
        raise
    return transport, choice.processes or max(1, min(processors, MAX_PROCESSES))


def make_command(program: str) -> tuple[str, ...]:
    """Return a worker process's command line, without the number of its socket."""
    # Without -P, Python would import modules from the current folder, perhaps a stranger's, first.
    return (sys.executable, "-P", "-m", "mudroom._session.worker_process", program)


class Workers:
    """Worker processes shared by several sessions of a program.

    By itself, a session with the option `worker` opens its own processes. A program with many
    sessions, such as a server with one per user, opens the processes once and passes them to each
    session. The children of all sessions run there; a lost process is replaced, and its runs
    continue from their last recorded step.

    Arguments:
        worker: "process" (one process per processor) or "process:N"; "ray" or "ray:N". See the
            option `worker`.
        environ: variables for the connection to Ray, such as RAY_ADDRESS; default: those of this
            process.

    Errors: UsageError (another `worker`, no usable cluster).

    Example:
        async with Workers("process:4") as workers:
            async with Session(worker=workers) as first, Session(worker=workers) as second:
                reports = await asyncio.gather(first.task("..."), second.task("..."))
    """

    def __init__(
        self, worker: str = "process", *, environ: Mapping[str, str] | None = None
    ) -> None:
        check_type("worker", worker, str, "Workers")
        self.worker = worker
        self._kind, self._count = parse_worker(worker)
        if self._kind == "local":
            raise UsageError(
                'the worker "local" has no processes',
                where="Workers",
                remedy='Use "process" or "ray", or sessions without the option `worker`.',
            )
        self._environ: Mapping[str, str] = os.environ if environ is None else environ
        self._processes: SharedProcesses | None = None

    @property
    def pids(self) -> tuple[int, ...]:
        """Ids of the started processes, each on its machine."""
        return self._processes.pids if self._processes else ()

    async def __aenter__(self) -> Workers:
        from mudroom_fleet.shared_processes import SharedProcesses

        if self._processes is not None:
            raise UsageError("the worker processes are open already", where="Workers")
        transport, count = await _open_transport(
            WorkerChoice(self._kind, self._count), self._environ, SHARE_PROGRAM
        )
        self._processes = SharedProcesses(transport, count, RUN_PROGRAM)
        if transport.is_far:
            try:
                await self._processes.open()
            except BaseException:
                await self.__aexit__()
                raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._processes is not None:
            try:
                await self._processes.close()
            finally:
                self._processes = None

    def _connect(self) -> tuple[WorkerTransport, int]:
        from mudroom_fleet.shared_processes import SharedTransport

        if self._processes is None:
            raise UsageError(
                "the worker processes are not open",
                where="worker",
                remedy="Open the session inside `async with Workers(...) as workers:`.",
            )
        return SharedTransport(self._processes), self._processes.size
