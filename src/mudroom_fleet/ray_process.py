"""A session's Ray process: `python -m mudroom_fleet.ray_process SOCKET`.

It connects to a Ray cluster, or starts one on this machine, and carries bytes between the session's
process and the actors. It is a separate process because Ray takes over its process's signals,
environment and output, and ends it when the cluster is lost.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from mudroom.ports import MessageStream, SocketLink

from .actor import WorkerActor, read_clock
from .actor_link import ActorHandle, ActorLink, RayControl
from .messages import (
    ActorLost,
    AskLease,
    ClosePart,
    OpenPart,
    PartBytes,
    RayConfig,
    RayFailed,
    RayReady,
    ToRay,
    ToTransport,
)

_STORE_BYTES = 80_000_000
"""Size of the object store of a cluster on this machine. Unused, but Ray wants at least 75 MB."""
_REACH_SECONDS = 10.0
_AUTH_MODE = "RAY_AUTH_MODE"
_NO_AUTH = "disabled"
_ADDRESS_REMEDY = (
    'Check RAY_ADDRESS ("HOST:PORT", as `ray start --head` prints it), and that RAY_AUTH_TOKEN or '
    "RAY_AUTH_TOKEN_PATH has the token of that cluster."
)
_LOCAL_REMEDY = "Start a cluster with `ray start --head` to see more, and set RAY_ADDRESS to it."
_TOKEN_REMEDY = (
    "Set RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH to the token of the cluster, or "
    "RAY_AUTH_MODE=disabled if it has none: then all who reach it may run code on it."
)


def main() -> None:
    """Serve the socket with the number in the first argument, until its other end closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_serve(socket.socket(fileno=int(sys.argv[1]))))
    os._exit(0)


async def _serve(connection: socket.socket) -> None:
    link = await SocketLink.open(connection)
    stream = MessageStream[RayConfig | ToRay](link, RayConfig | ToRay)
    config = await stream.receive()
    if not isinstance(config, RayConfig):
        return
    failure = _connect(config)
    if failure is not None:
        stream.send(failure)
        stream.flush()
        await link.close()
        return
    ray: Any = import_module("ray")
    stream.send(RayReady(int(ray.cluster_resources().get("CPU", 1))))
    actors = ActorLinks(_RayCluster(config), stream.send, config.lease_seconds)
    while (message := await stream.receive()) is not None:
        if not isinstance(message, RayConfig):
            actors.handle(message)
    ray.shutdown()


class _RayCluster:
    """The cluster this process is connected to; see `Cluster`."""

    def __init__(self, config: RayConfig) -> None:
        self._config = config
        self._ray: Any = import_module("ray")

    def kill(self, handle: ActorHandle) -> None:
        self._ray.kill(handle)

    def is_gone(self, error: Exception, node: str) -> bool:
        # A node's daemon sees its processes end. If the daemon itself is lost, they may go on.
        if not isinstance(error, self._ray.exceptions.ActorDiedError):
            return False
        return any(each["NodeID"] == node and each["Alive"] for each in self._ray.nodes())

    def create_actor(self, node: str) -> ActorHandle:
        strategies = import_module("ray.util.scheduling_strategies")
        # With soft=True Ray chooses a node at random, because an actor reserves no processors.
        strategy = strategies.NodeAffinitySchedulingStrategy(node, soft=False)
        # Ray must not repeat anything: the journal decides what happens to a run.
        options = self._ray.remote(WorkerActor).options(
            num_cpus=0, max_restarts=0, max_task_retries=0, scheduling_strategy=strategy
        )
        return options.remote(self._config.program, self._config.lease_seconds)

    def list_nodes(self) -> list[Node]:
        return [
            Node(each["NodeID"], each["NodeManagerHostname"], each["Resources"].get("CPU", 0.0))
            for each in self._ray.nodes()
            if each["Alive"]
        ]


def _connect(config: RayConfig) -> RayFailed | None:
    """Connect to the cluster, or start one. Return why that failed, None on success."""
    if refusal := _check_address(config.address):
        return RayFailed(refusal, _ADDRESS_REMEDY)
    os.environ.setdefault(_AUTH_MODE, "token")  # Ray reads it on import
    try:
        import ray as installed_ray  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        return RayFailed(f"Ray is not installed: {error}", 'Install "mudroom[ray]".')
    ray: Any = installed_ray
    logging.getLogger("ray").setLevel(logging.CRITICAL)
    options: dict[str, Any] = {"log_to_driver": False, "configure_logging": False}
    try:
        if config.address:
            ray.init(address=config.address, **options)
        else:
            _protect_token()
            ray.init(
                address="local",
                include_dashboard=False,
                object_store_memory=_STORE_BYTES,
                _node_ip_address="127.0.0.1",
                _temp_dir=config.folder,
                **options,
            )
    except ray.exceptions.AuthenticationError as error:
        # Ray's own remedies follow, such as a new token.
        reason = _first_line(error).partition(". ")[0]
        return RayFailed(f"Ray refuses the connection: {reason}", _TOKEN_REMEDY)
    except Exception as error:  # noqa: BLE001  Ray raises many errors here, RuntimeError among them
        if config.address:
            text = f"cannot use the Ray cluster {config.address}: {_first_line(error)}"
            return RayFailed(text, _ADDRESS_REMEDY)
        return RayFailed(f"cannot start Ray here: {_first_line(error)}", _LOCAL_REMEDY)
    return None


def _check_address(address: str) -> str:
    """Explain why there is no cluster at an address, "" if there may be. Ray tries for minutes."""
    host, _, port = address.rpartition(":")
    if not address or address == "auto":
        return ""
    if "://" in address or not port.isdecimal():
        return f"{address} is not an address of a Ray cluster"
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        return f"cannot reach the Ray cluster {address}: {error}"
    return ""


def _protect_token() -> None:
    """Make sure that only the user can read the token of clusters on this machine."""
    names = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    if os.environ[_AUTH_MODE] == _NO_AUTH or any(name in os.environ for name in names):
        return
    path = Path.home() / ".ray" / "auth_token"
    if not path.exists():
        _create_token(path)
    path.chmod(0o600)


def _create_token(path: Path) -> None:
    """Write a new token, unless another session has just written one."""
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent) as file:  # its mode is 0600
        file.write(secrets.token_hex(32).encode())
        file.flush()
        with suppress(FileExistsError):
            os.link(file.name, path)


def _first_line(error: Exception) -> str:
    return next((line for line in str(error).splitlines() if line), type(error).__name__)


class Cluster(RayControl, Protocol):
    """The Ray cluster. The methods may block, so threads call them."""

    def list_nodes(self) -> Sequence[Node]:
        """List the nodes that Ray knows and has not declared dead."""
        ...

    def create_actor(self, node: str) -> ActorHandle: ...


class ActorLinks:
    """A session's working actors, in the Ray process."""

    def __init__(
        self, cluster: Cluster, send: Callable[[ToTransport], None], lease_seconds: float
    ) -> None:
        self._cluster = cluster
        self._pass_on = send
        self._lease_seconds = lease_seconds
        self._links: dict[int, ActorLink] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._placement = Placement()

    def handle(self, message: ToRay) -> None:
        # Messages for an ended actor are dropped.
        if isinstance(message, OpenPart):
            self._open(message)
        elif link := self._links.get(message.number):
            if isinstance(message, PartBytes):
                link.add_data(message.data)
            elif isinstance(message, AskLease):
                link.send_lease()
            else:
                self._close(message, link)

    def _open(self, message: OpenPart) -> None:
        number = message.number
        create = partial(self._create, number, message.machine)
        note_silence = partial(self._placement.note_silence, number)
        link = ActorLink(
            number, create, self._send, self._cluster, self._lease_seconds, note_silence
        )
        self._links[number] = link
        self._tasks[number] = task = asyncio.create_task(link.run())
        task.add_done_callback(lambda _: self._forget(number))

    def _close(self, message: ClosePart, link: ActorLink) -> None:
        self._tasks[message.number].cancel()
        self._forget(message.number)
        link.kill()

    def _forget(self, number: int) -> None:
        self._links.pop(number, None)
        self._tasks.pop(number, None)
        self._placement.remove(number)

    def _send(self, message: ToTransport) -> None:
        if isinstance(message, ActorLost):
            self._placement.remove(message.number)
        self._pass_on(message)

    def _create(self, number: int, machine: str) -> ActorHandle:
        nodes = [each for each in self._cluster.list_nodes() if machine in ("", each.machine)]
        if not nodes:
            name = f" with the host name {machine}" if machine else ""
            raise LookupError(f"the cluster has no node{name}")
        node = self._placement.choose(number, nodes)
        if number not in self._links:  # ended while this thread asked for the nodes
            self._placement.remove(number)
            raise LookupError("the actor is not needed any more")
        return self._cluster.create_actor(node)


_AVOIDED_SECONDS = 60.0
"""Seconds during which other nodes are preferred to a silent one; Ray may need this long to notice
its loss."""


class Node(Struct, frozen=True):
    """A node of the cluster."""

    id: str
    machine: str  # host name
    processors: float


class Placement:
    """Chooses nodes for a session's actors. Threads may call the methods.

    Ray places actors that reserve no processors at random.
    """

    def __init__(self, read_clock: Callable[[], float] = read_clock) -> None:
        self._read_clock = read_clock
        self._nodes: dict[int, str] = {}
        self._avoided_until: dict[str, float] = {}
        self._lock = threading.Lock()

    def choose(self, number: int, nodes: Sequence[Node]) -> str:
        """Choose the node for an actor; return its id.

        Nodes with processors come first, then those that answer, then the one with the fewest
        actors per processor.
        """
        with self._lock:
            actors = Counter(self._nodes.values())
            now = self._read_clock()

            def rank(node: Node) -> tuple[bool, bool, float]:
                is_silent = self._avoided_until.get(node.id, now) > now
                load = (actors[node.id] + 1) / (node.processors or 1)
                return not node.processors, is_silent, load

            node = min(nodes, key=rank)
            self._nodes[number] = node.id
            return node.id

    def note_silence(self, number: int) -> None:
        # Place other actors on other nodes for a while.
        with self._lock:
            if node := self._nodes.get(number):
                self._avoided_until[node] = self._read_clock() + _AVOIDED_SECONDS

    def remove(self, number: int) -> None:
        with self._lock:
            self._nodes.pop(number, None)


if __name__ == "__main__":
    main()
