"""Worker processes on other machines: how a session starts them, and their own files."""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from ..._adapters.models.sent_variables import list_address_variables, list_header_variables
from ..._adapters.output_filters import is_secret_name
from ..._adapters.workers.remote.connection import WorkerTransport
from ..._adapters.workers.remote.messages import WorkerConfig
from ..._adapters.workers.remote.remote_services import SessionLink
from ..._adapters.workers.remote.worker import RemoteWorker
from ..._engine.session_context import SessionServices
from ..._platform.private_files import make_private_folder
from ...errors import UsageError
from ...permissions.policy import RulePolicy
from ..config import find_home
from ..environments import EnvironmentFactory, SessionEnvironments
from ..model_registry import ModelRegistry
from ..options import MAX_PROCESSES

if TYPE_CHECKING:
    from ..._adapters.workers.ray.node_check import NodeRequirements
    from ..._adapters.workers.ray.transport import RayTransport

PROGRAM = "mudroom._session.worker_process:serve"


def make_hidden_check(services: SessionServices) -> Callable[[str], bool] | None:
    """Return a function that tells which files may not leave this machine: none may read them.

    Returns None if there are none.
    """
    policy = services.environments.shared.policy
    if isinstance(policy, RulePolicy) and policy.read_denials:
        return policy.denies_reading
    return None


def can_send_files() -> bool:
    """Return whether files can be sent to machines that do not see the folder: git is needed."""
    from ..._adapters.workspaces.isolated.git import explain_unusable_git

    return not explain_unusable_git()


async def open_ray_worker(
    services: SessionServices,
    config: WorkerConfig,
    models: ModelRegistry,
    actors: int,
    environ: Mapping[str, str],
) -> RemoteWorker:
    """Start worker processes on the nodes of a Ray cluster, and return the worker that uses them.

    Arguments:
        actors: number of worker processes; 0 means one per processor of the cluster, at most
            MAX_PROCESSES.
        environ: the session's variables.

    Raises UsageError.
    """
    requirements = make_requirements(config)
    transport, processors = await connect_to_ray(environ, requirements)
    return await open_far_worker(services, config, models, transport, actors or processors, environ)


async def connect_to_ray(
    environ: Mapping[str, str], requirements: NodeRequirements
) -> tuple[RayTransport, int]:
    """Connect to a Ray cluster, or start one on this machine.

    Returns the transport, and the number of worker processes that the cluster has room for: one per
    processor, at most MAX_PROCESSES. Raises UsageError.
    """
    from ..._adapters.workers.ray.transport import RayTransport

    transport = RayTransport(PROGRAM, environ, requirements)
    try:
        processors = await transport.start()
    except BaseException:
        await transport.close()
        raise
    return transport, max(1, min(processors, MAX_PROCESSES))


def make_requirements(config: WorkerConfig) -> NodeRequirements:
    """List what a node must have for a session."""
    from ..._adapters.workers.ray.node_check import NodeRequirements

    return NodeRequirements(
        (config.folder, config.home),
        config.import_path,
        config.tool_references,
        files_travel=can_send_files(),
    )


async def open_far_worker(
    services: SessionServices,
    config: WorkerConfig,
    models: ModelRegistry,
    transport: WorkerTransport,
    processes: int,
    environ: Mapping[str, str],
) -> RemoteWorker:
    """Open worker processes that may be on other machines, and return the worker that uses them.

    Raises UsageError.
    """
    worker = RemoteWorker(
        services,
        _leave_secrets_out(config, environ),
        transport,
        processes,
        models.get_rate_limiter,
        make_hidden_check(services),
    )
    await worker.open()
    return worker


def _leave_secrets_out(config: WorkerConfig, environ: Mapping[str, str]) -> WorkerConfig:
    """Leave secrets out of the config for another machine: its environment has its own."""
    if config.environ is None:
        names = list_address_variables()
        sent = {name: environ[name] for name in names if name in environ}
        return replace(config, environ=sent, own_variables="all")
    sent = {name: text for name, text in config.environ.items() if not may_be_secret(name)}
    return replace(config, environ=sent, own_variables="secrets")


def may_be_secret(name: str) -> bool:
    """Guess by its name whether a variable may have a secret."""
    return is_secret_name(name) or name in list_header_variables()


def adapt_to_node(config: WorkerConfig) -> WorkerConfig:
    """Adapt the config to a machine that does not see the folders: it has a state folder itself.

    The task board and the earlier contents of files stay on the session's machine. Raises
    UsageError if the folder cannot be made.
    """
    from ..node_environments import find_node_folder

    home = find_home(os.environ)
    folder = find_node_folder(home, platform.node(), config.session)
    try:
        make_private_folder(Path(folder))
    except OSError as error:
        raise UsageError(
            f"this machine has no folder for files of its own: {error}",
            where="worker",
            remedy="Make the folder writable, or set MUDROOM_HOME on this machine to another one.",
        ) from error
    return replace(
        config,
        home=home,
        node_folder=folder,
        spill_folder=os.path.join(folder, "spill"),
        versions_folder="",
        board_offer="",
    )


def open_node_environments(
    config: WorkerConfig, factory: EnvironmentFactory, link: SessionLink
) -> SessionEnvironments:
    """Open the environments of a worker process that does not see the session's folder."""
    from ..._adapters.workers.remote.tree_transfer import TreeLink
    from ..._adapters.workspaces.isolated.node_workspaces import NodeWorkspaces, remove_old_sessions
    from ..node_environments import NodeEnvironments

    # Sessions whose process was killed here leave their files.
    remove_old_sessions(os.path.dirname(config.node_folder), config.session)
    workspaces = NodeWorkspaces(
        config.node_folder,
        config.folder,
        config.home,
        TreeLink(link, asyncio.get_running_loop()),
        config.isolated_bytes,
    )
    return NodeEnvironments(factory, config.folder, workspaces)
