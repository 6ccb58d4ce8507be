"""Worker processes on other machines, with scripted actors: leases, calls, nodes, placement."""

from __future__ import annotations

import asyncio
import platform
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from mudroom import Session, UsageError
from mudroom._adapters.workers.remote.messages import NodeFacts
from mudroom._adapters.workers.remote.node_check import check_node, list_unloaded
from mudroom._session.worker_setup.setup import may_be_secret
from mudroom.ports import RunLink
from mudroom.testing.clock import run_virtual
from mudroom_fleet.actor import (
    EXIT_CODE,
    MAX_DATA,
    ActorEnd,
    Lease,
    WorkerActor,
    compute_code_digest,
)
from mudroom_fleet.actor_link import ActorHandle, ActorLink, RayControl
from mudroom_fleet.messages import (
    ActorLost,
    ActorReady,
    ClosePart,
    Hello,
    LeaseState,
    OpenPart,
    PartBytes,
    PartClosed,
    ToTransport,
)
from mudroom_fleet.ray_process import ActorLinks, Node, Placement
from mudroom_fleet.ray_transport import check_versions

from ..waiting import wait_until

HELLO = Hello(pid=7, host="far", node="n1", python="3.11.7", code="1")
Exchange = Callable[[int, int, bytes], Awaitable[tuple[int, bytes]]]


class Method:
    """A method of the scripted actor."""

    def __init__(self, function: Callable[..., Awaitable[Any]]) -> None:
        self._function = function

    def remote(self, *arguments: object) -> Awaitable[Any]:
        return self._function(*arguments)


class ScriptedActor:
    """The handle of an actor whose calls a function answers."""

    def __init__(self, exchange: Exchange) -> None:
        self.hello = Method(self._greet)
        self.exchange = Method(exchange)
        self.stop = Method(self._stop)

    def _stop(self) -> Awaitable[None]:
        return asyncio.get_running_loop().create_future()

    async def _greet(self) -> bytes:
        return msgspec.msgpack.encode(HELLO)


class NoRay:
    """Ray that can do nothing and knows nothing."""

    def kill(self, handle: ActorHandle) -> None:
        pass

    def is_gone(self, error: Exception, node: str) -> bool:
        return False


def make_link(
    exchange: Exchange,
    sent: list[ToTransport],
    clock: Callable[[], float],
    ray: RayControl | None = None,
) -> ActorLink:
    return ActorLink(
        1,
        lambda: ScriptedActor(exchange),
        sent.append,
        ray or NoRay(),
        8.0,
        lambda: None,
        read_clock=clock,
    )


async def test_a_slow_start_of_one_actor_does_not_stop_the_others() -> None:
    may_start = threading.Event()
    sent: list[ToTransport] = []

    async def answer_nothing(*_: object) -> tuple[int, bytes]:
        return await asyncio.get_running_loop().create_future()

    def create() -> ActorHandle:
        assert may_start.wait(60), "the event loop waits for the actor"
        return ScriptedActor(answer_nothing)

    link = ActorLink(1, create, sent.append, NoRay(), 8.0, lambda: None)
    running = asyncio.create_task(link.run())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    may_start.set()  # the event loop comes here while the other thread waits
    await wait_until(lambda: ActorReady(1, HELLO) in sent)
    running.cancel()


def get_time() -> float:
    return asyncio.get_running_loop().time()


def test_a_lease_counts_from_the_reply_that_the_other_side_has() -> None:
    now = [100.0]
    lease = Lease(8.0, lambda: now[0])
    lease.add_reply(0)
    now[0] = 103.0
    lease.add_reply(1)
    now[0] = 107.0
    lease.renew(0)  # a call that was on its way for a long time
    now[0] = 108.0
    assert lease.has_ended
    lease.renew(1)
    assert not lease.has_ended
    now[0] = 111.0
    assert lease.has_ended


def test_a_lease_is_not_renewed_by_a_reply_that_was_never_sent() -> None:
    now = [100.0]
    lease = Lease(8.0, lambda: now[0])
    lease.add_reply(0)
    now[0] = 109.0
    lease.renew(5)
    assert lease.has_ended


def test_a_process_whose_lease_has_ended_stops_although_its_main_thread_is_busy() -> None:
    program = (
        "from mudroom_fleet.actor import Lease\nLease(0.2).watch()\nwhile True: sum(range(1000))\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], timeout=60, check=False)
    assert ended.returncode == EXIT_CODE


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({}, ""),
        ({"code": "0.0.1 (abc)"}, "the node far has mudroom 0.0.1"),
        ({"python": "3.14.0"}, "and Python 3.14.0"),
    ],
    ids=["equal", "other mudroom", "other Python"],
)
def test_a_node_that_differs_is_refused(change: dict[str, Any], text: str) -> None:
    hello = replace(HELLO, code=compute_code_digest(), python=platform.python_version())
    with pytest.raises(UsageError, match=text) if text else nullcontext():
        check_versions(replace(hello, **change), compute_code_digest())


@pytest.mark.parametrize(
    ("facts", "can_send_files", "text"),
    [
        (NodeFacts(), False, ""),
        (NodeFacts(("/home/me/project/.mudroom-check-1",)), True, ""),
        (NodeFacts(("/me/.mudroom-check-1",)), False, "the node far does not see /me of"),
        (NodeFacts((), ("a.b:c (ImportError: x)",)), True, r"cannot import tools: a.b:c \(Import"),
    ],
    ids=["all", "sent files", "other files", "no tool"],
)
def test_a_node_that_lacks_files_or_tools_is_refused(
    facts: NodeFacts, can_send_files: bool, text: str
) -> None:
    with pytest.raises(UsageError, match=text) if text else nullcontext():
        check_node("far", facts, can_send_files=can_send_files)


def test_a_node_says_which_tools_it_cannot_import(tmp_path: Path) -> None:
    (tmp_path / "module_of_the_caller.py").write_text(
        "from mudroom import tool\n\ndef f(): 'Do nothing.'\n\nknown = tool(f)\nnumber = 7\n"
    )
    names = ["known", "unknown", "number"]
    tools = [*(f"module_of_the_caller:{name}" for name in names), "no_module_of_the_caller:x"]
    unloaded = list_unloaded([str(tmp_path)], tools)
    sys.path.remove(str(tmp_path))
    assert [text.partition(" ")[0] for text in unloaded] == tools[1:]
    assert unloaded[1] == "module_of_the_caller:number (no tool, but int)"
    assert "ModuleNotFoundError" in unloaded[2]


@pytest.mark.parametrize("name", ["ANTHROPIC_API_KEY", "ANTHROPIC_CUSTOM_HEADERS", "AWS_PROFILE"])
def test_a_variable_that_may_be_secret_is_not_sent(name: str) -> None:
    assert may_be_secret(name)


@pytest.mark.skipif(bool(find_spec("ray")), reason="Ray is installed")
async def test_without_ray_a_session_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r'Install "mudroom\[ray\]"'):
        async with Session(model="offline", cwd=str(tmp_path), home=str(tmp_path), worker="ray:1"):
            pass


async def test_what_a_program_sends_before_it_ends_arrives_before_the_loss() -> None:
    async def refuse(link: RunLink) -> None:
        link.send(b"the reason")

    actor = WorkerActor("", 8.0)
    actor._lease = lease = Lease(8.0)
    actor._link = link = ActorEnd(lease)
    actor._serving = asyncio.create_task(actor._serve(refuse(link)))
    await actor._serving
    assert await actor.exchange(1, 0, b"") == (1, b"the reason")
    with pytest.raises(RuntimeError, match="the program has ended"):
        await actor.exchange(2, 1, b"")


def test_bytes_arrive_in_order_whichever_reply_comes_first() -> None:
    sent: list[ToTransport] = []

    async def exchange(number: int, received: int, data: bytes) -> tuple[int, bytes]:
        if number == 1:
            await asyncio.sleep(0.5)  # the second reply comes first
        elif number > 2:
            await asyncio.sleep(3600)
        return number, b"%d:%s " % (number, data)

    async def run() -> None:
        link = make_link(exchange, sent, get_time)
        running = asyncio.create_task(link.run())
        await asyncio.sleep(0.1)
        link.add_data(b"x")
        await asyncio.sleep(1.0)
        running.cancel()

    run_virtual(run())
    assert sent == [ActorReady(1, HELLO), PartBytes(1, b"1: 2:x ")]


def test_large_data_travels_in_several_calls_and_only_two_wait() -> None:
    sent: list[ToTransport] = []
    arrived: dict[int, bytes] = {}
    waiting = [0, 0]

    async def exchange(number: int, received: int, data: bytes) -> tuple[int, bytes]:
        arrived[number] = data
        waiting[0] += 1
        waiting[1] = max(waiting)
        await asyncio.sleep(0.1)
        waiting[0] -= 1
        return number, b""

    async def run() -> None:
        link = make_link(exchange, sent, get_time)
        running = asyncio.create_task(link.run())
        await asyncio.sleep(0.05)
        link.add_data(b"y" * (3 * MAX_DATA + 5))
        await asyncio.sleep(2.0)
        running.cancel()

    run_virtual(run())
    sizes = [len(arrived[number]) for number in sorted(arrived) if arrived[number]]
    assert sizes == [MAX_DATA, MAX_DATA, MAX_DATA, 5]
    assert waiting[1] == 2


def test_an_actor_that_does_not_answer_is_lost_when_its_lease_has_ended() -> None:
    sent: list[ToTransport] = []
    times: list[float] = []

    async def exchange(number: int, received: int, data: bytes) -> tuple[int, bytes]:
        if number == 1:
            return 1, b""
        times.append(get_time())
        await asyncio.sleep(3600)
        raise AssertionError

    async def run() -> None:
        await make_link(exchange, sent, get_time).run()
        times.append(get_time())

    run_virtual(run())
    assert sent[-2:] == [ActorLost(1, "no reply has come for 8.5 s"), PartClosed(1)]
    assert 8.4 <= times[-1] - times[0] <= 8.6


def test_the_lease_counts_down_from_the_last_reply() -> None:
    sent: list[ToTransport] = []

    async def exchange(number: int, received: int, data: bytes) -> tuple[int, bytes]:
        return await asyncio.get_running_loop().create_future()

    async def run() -> None:
        link = make_link(exchange, sent, get_time)
        running = asyncio.create_task(link.run())
        await asyncio.sleep(3.0)
        link.send_lease()
        running.cancel()

    run_virtual(run())
    assert sent[-1] == LeaseState(1, 5.0)


def test_an_actor_that_may_go_on_counts_as_stopped_after_its_lease() -> None:
    sent: list[ToTransport] = []
    stopped: list[float] = []

    async def exchange(number: int, received: int, data: bytes) -> tuple[int, bytes]:
        if number == 3:
            raise ConnectionError("the node is out of reach")
        await asyncio.sleep(1.0)
        return number, b""

    async def run() -> None:
        await make_link(exchange, sent, get_time).run()
        stopped.append(get_time())

    run_virtual(run())
    assert sent[-2:] == [ActorLost(1, "the node is out of reach"), PartClosed(1)]
    assert stopped[0] >= 2.0 + 8.5


class BrokenRay(NoRay):
    def kill(self, handle: ActorHandle) -> None:
        raise ConnectionError("the cluster is out of reach")


def test_an_actor_that_ray_cannot_end_counts_as_stopped_after_its_lease() -> None:
    sent: list[ToTransport] = []

    async def exchange(number: int, received: int, data: bytes) -> tuple[int, bytes]:
        raise ConnectionError("the node is out of reach")

    run_virtual(make_link(exchange, sent, get_time, BrokenRay()).run())
    assert sent[-2:] == [ActorLost(1, "the node is out of reach"), PartClosed(1)]


def test_many_bytes_do_not_wait_for_calls_that_return_late() -> None:
    async def transfer() -> float:
        brought: list[int] = []
        is_next = asyncio.Event()
        is_complete = asyncio.Event()

        async def exchange(number: int, received: int, data: bytes) -> tuple[int, bytes]:
            nonlocal is_next
            brought.append(len(data))
            is_next.set()
            is_next = own = asyncio.Event()
            if sum(brought) == 10 * MAX_DATA:
                is_complete.set()
            await asyncio.wait([asyncio.ensure_future(own.wait())], timeout=1.0)
            return number, b""

        link = make_link(exchange, [], get_time)
        link.add_data(bytes(10 * MAX_DATA))
        running = asyncio.create_task(link.run())
        await is_complete.wait()
        seconds = get_time()
        running.cancel()
        return seconds

    assert run_virtual(transfer()) < 1.0


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


HEAD = Node("head", "first", 0.0)
SMALL = Node("small", "second", 2.0)
LARGE = Node("large", "third", 4.0)


def test_each_node_gets_actors_in_proportion_to_its_processors() -> None:
    placement = Placement()
    chosen = [placement.choose(number, [HEAD, SMALL, LARGE]) for number in range(6)]
    assert sorted(chosen) == ["large"] * 4 + ["small"] * 2


def test_a_node_without_processors_is_used_if_there_is_no_other_one() -> None:
    assert Placement().choose(1, [HEAD]) == "head"


def test_the_place_of_an_ended_actor_is_free() -> None:
    placement = Placement()
    nodes = [SMALL, Node("other", "fourth", 2.0)]
    assert [placement.choose(number, nodes) for number in (1, 2)] == ["small", "other"]
    placement.remove(2)
    assert placement.choose(3, nodes) == "other"


def test_a_silent_node_is_avoided_for_a_minute() -> None:
    now = [100.0]
    placement = Placement(lambda: now[0])
    assert placement.choose(1, [SMALL, LARGE]) == "large"
    placement.note_silence(1)
    placement.remove(1)
    assert placement.choose(2, [SMALL, LARGE]) == "small"
    assert placement.choose(3, [LARGE]) == "large"
    placement.remove(3)
    now[0] += 61
    assert placement.choose(4, [SMALL, LARGE]) == "large"
