"""Worker processes that several sessions of a program share: `mudroom.Workers`."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ..._adapters.workers.process.connection import ProcessTransport
from ..._adapters.workers.ray.node_check import NodeRequirements
from ..._adapters.workers.remote.messages import WorkerConfig
from ..._adapters.workers.remote.worker import RemoteWorker
from ..._adapters.workers.shared.connection import SharedTransport
from ..._adapters.workers.shared.processes import SharedProcesses
from ..._core.ports import WorkerProcesses
from ..._core.type_checks import check_type
from ..._engine.session_context import SessionServices
from ...errors import UsageError
from ..model_registry import ModelRegistry
from ..options import parse_worker
from .cluster import (
    can_send_files,
    connect_to_ray,
    make_hidden_check,
    make_requirements,
    open_far_worker,
)
from .session_side import COMMAND


class Workers:
    """Worker processes that several sessions of a program share.

    A session with the option `worker` has processes of its own. A program with many sessions, such
    as a server with one for each user, opens the processes once and gives them to each session.
    The children of all sessions run there; a process that is lost is replaced, and its runs
    continue from their last recorded step.

    Arguments:
        worker: "process" (one process per processor) or "process:N"; "ray" or "ray:N". See the
            option `worker`.
        environ: variables of the connection to Ray, such as RAY_ADDRESS; default: those of this
            process.

    Errors: UsageError (another `worker`, no usable cluster).

    Example:
        async with Workers("process:4") as workers:
            async with Session(workers=workers) as first, Session(workers=workers) as second:
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
                remedy='Use "process" or "ray", or sessions without the option `workers`.',
            )
        self._environ: Mapping[str, str] = os.environ if environ is None else environ
        self._processes: SharedProcesses | None = None

    @property
    def pids(self) -> tuple[int, ...]:
        """Ids of the processes that have started, each on its machine."""
        return self._processes.pids if self._processes else ()

    async def __aenter__(self) -> Workers:
        if self._processes is not None:
            raise UsageError("the worker processes are open already", where="Workers")
        if self._kind == "ray":
            requirements = NodeRequirements(files_travel=can_send_files())
            transport, processors = await connect_to_ray(self._environ, requirements)
            self._processes = SharedProcesses(transport, self._count or processors)
            try:
                await self._processes.open()
            except BaseException:
                await self.__aexit__()
                raise
        else:
            count = self._count or os.cpu_count() or 1
            self._processes = SharedProcesses(ProcessTransport(COMMAND), count)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._processes is not None:
            try:
                await self._processes.close()
            finally:
                self._processes = None

    async def _open_worker(
        self, services: SessionServices, config: WorkerConfig, models: ModelRegistry
    ) -> RemoteWorker:
        """Return the worker of a session that uses the processes. Raises UsageError."""
        processes = self._processes
        if processes is None:
            raise UsageError(
                "the worker processes are not open",
                where="workers",
                remedy="Open the session inside `async with Workers(...) as workers:`.",
            )
        if self._kind == "ray":
            transport = SharedTransport(processes, make_requirements(config))
            return await open_far_worker(
                services, config, models, transport, processes.size, self._environ
            )
        return RemoteWorker(
            services,
            config,
            SharedTransport(processes, NodeRequirements()),
            processes.size,
            models.get_rate_limiter,
            make_hidden_check(services),
        )


async def open_shared_worker(
    workers: WorkerProcesses,
    services: SessionServices,
    config: WorkerConfig,
    models: ModelRegistry,
) -> RemoteWorker:
    """Return the worker of a session that uses shared processes. Raises UsageError."""
    if not isinstance(workers, Workers):
        raise UsageError(
            f"workers is no mudroom.Workers, but {type(workers).__name__}",
            where="Session",
            remedy="Pass what `async with Workers(...) as workers:` gives.",
        )
    return await workers._open_worker(services, config, models)  # noqa: SLF001  (same module)
