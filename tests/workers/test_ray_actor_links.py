"""The actors that the Ray process of a session knows, with a scripted cluster."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from mudroom_fleet.actor_link import ActorHandle
from mudroom_fleet.messages import (
    ActorReady,
    ClosePart,
    OpenPart,
    PartClosed,
    ToTransport,
)
from mudroom_fleet.ray_process import ActorLinks, Node

from ..waiting import wait_until
from .test_ray_link import Exchange, ScriptedActor

NODES = [Node("a", "first", 1.0), Node("b", "second", 1.0)]


async def answer_nothing(*_: object) -> tuple[int, bytes]:
    return await asyncio.get_running_loop().create_future()


async def die(*_: object) -> tuple[int, bytes]:
    raise ConnectionError("the actor died")


class ScriptedCluster:
    """A cluster of two nodes.

    Attributes:
        may_answer: list_nodes waits for it. is_asked: it waits.
        created: node of each actor.
    """

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self.may_answer = threading.Event()
        self.is_asked = threading.Event()
        self.created: list[str] = []

    def list_nodes(self) -> Sequence[Node]:
        self.is_asked.set()
        assert self.may_answer.wait(60)
        return NODES

    def create_actor(self, node: str) -> ActorHandle:
        self.created.append(node)
        return ScriptedActor(self._exchange)

    def kill(self, handle: ActorHandle) -> None:
        pass

    def is_gone(self, error: Exception, node: str) -> bool:
        return True


async def test_an_actor_that_is_closed_while_it_is_created_takes_no_place() -> None:
    # One thread: the next actor is created when the thread of the first one has ended.
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    cluster, sent = ScriptedCluster(answer_nothing), list[ToTransport]()
    actors = ActorLinks(cluster, sent.append, lease_seconds=8.0)
    actors.handle(OpenPart(1))
    await wait_until(cluster.is_asked.is_set)
    actors.handle(ClosePart(1))
    cluster.may_answer.set()
    for number in (2, 3):
        actors.handle(OpenPart(number))
    await wait_until(lambda: sum(isinstance(each, ActorReady) for each in sent) == 2)
    assert cluster.created == ["a", "b"]
    for number in (2, 3):
        actors.handle(ClosePart(number))


async def test_an_actor_that_has_ended_is_forgotten() -> None:
    cluster, sent = ScriptedCluster(die), list[ToTransport]()
    cluster.may_answer.set()
    actors = ActorLinks(cluster, sent.append, lease_seconds=8.0)
    for number in (1, 2):
        actors.handle(OpenPart(number))
    await wait_until(lambda: sum(isinstance(each, PartClosed) for each in sent) == 2)
    await asyncio.sleep(0)
    assert (actors._links, actors._tasks, actors._placement._nodes) == ({}, {}, {})
