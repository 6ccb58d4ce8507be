"""ActorLinks: the actors of a session, their nodes, and the messages to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from .actor_link import ActorHandle, ActorLink
from .driver_messages import (
    ActorLost,
    AskLease,
    CloseActor,
    OpenActor,
    ToActor,
    ToDriver,
    ToTransport,
)
from .placement import Node, Placement


class Cluster(Protocol):
    """The Ray cluster. Threads call the methods: they may block."""

    def list_nodes(self) -> Sequence[Node]:
        """Return the nodes that Ray knows and has not declared dead."""
        ...

    def create_actor(self, node: str) -> ActorHandle:
        """Ask for a new actor on the node with this id."""
        ...

    def kill(self, handle: ActorHandle) -> None:
        """End the process of an actor."""
        ...

    def is_gone(self, error: Exception, node: str) -> bool:
        """Return whether an error of a call proves that the process of an actor has ended.

        Arguments:
            node: id of its node.
        """
        ...


class ActorLinks:
    """The actors of a session that work, in the driver process.

    Arguments:
        send: sends a message to the session's process.
        lease_seconds: see `Lease`.
    """

    def __init__(
        self, cluster: Cluster, send: Callable[[ToTransport], None], lease_seconds: float
    ) -> None:
        self._cluster = cluster
        self._pass_on = send
        self._lease_seconds = lease_seconds
        self._links: dict[int, ActorLink] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._placement = Placement()

    def handle(self, message: ToDriver) -> None:
        """Handle a message of the session's process. One for an actor that has ended is dropped."""
        if isinstance(message, OpenActor):
            self._open(message)
        elif link := self._links.get(message.number):
            if isinstance(message, ToActor):
                link.add_data(message.data)
            elif isinstance(message, AskLease):
                link.send_lease()
            else:
                self._close(message, link)

    def _open(self, message: OpenActor) -> None:
        number = message.number
        create = partial(self._create, number, message.machine)
        link = ActorLink(number, create, self._send, self, self._lease_seconds)
        self._links[number] = link
        self._tasks[number] = task = asyncio.create_task(link.run(message.hello))
        task.add_done_callback(lambda _: self._forget(number))

    def _close(self, message: CloseActor, link: ActorLink) -> None:
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

    def kill(self, handle: ActorHandle) -> None:
        """End the process of an actor."""
        self._cluster.kill(handle)

    def note_silence(self, number: int) -> None:
        """Note that an actor does not answer; its node may be lost."""
        self._placement.note_silence(number)

    def is_gone(self, error: Exception, node: str) -> bool:
        """Return whether an error proves that the process of an actor has ended; see `Cluster`."""
        return self._cluster.is_gone(error, node)
