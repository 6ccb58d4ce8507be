"""One connection to another program: requests both ways, what arrives, and what is sent."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import suppress
from typing import Literal

import msgspec
import pytest

from mudroom._peers import (
    Arrivals,
    FrameDecoder,
    MessageStream,
    Peer,
    PeerGone,
    encode,
    make_frame,
)

State = Literal["waiting", "answered", "failed", "ended"]


class Note(msgspec.Struct, frozen=True, tag=True):
    """A message of these tests."""

    text: str


class Other(msgspec.Struct, frozen=True, tag=True):
    """Another message of these tests."""

    text: str


def open_peer() -> tuple[Peer[str, str], list[str]]:
    sent: list[str] = []
    return Peer[str, str](sent.append), sent


def ask(number: int) -> str:
    return f"ask {number}"


def withdraw(number: int) -> str:
    return f"withdraw {number}"


async def take_steps(number: int = 3) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


@pytest.mark.parametrize("order", list(itertools.permutations((1, 2, 3))))
async def test_each_caller_gets_its_own_answer_in_whatever_order_they_come(
    order: tuple[int, ...],
) -> None:
    peer, sent = open_peer()
    asking = [asyncio.create_task(peer.request(ask)) for _ in range(3)]
    await take_steps()
    for number in order:
        peer.settle(number, f"answer {number}")
        peer.settle(number, "a second answer")
        peer.fail(number, ValueError("an error after the answer"))
    peer.settle(99, "to a request that was never made")
    assert sent == ["ask 1", "ask 2", "ask 3"]
    assert await asyncio.gather(*asking) == ["answer 1", "answer 2", "answer 3"]
    peer.settle(1, "too late")


async def test_an_error_reaches_the_caller() -> None:
    peer, _ = open_peer()
    asking = asyncio.create_task(peer.request(ask))
    await take_steps()
    peer.fail(1, ValueError("not today"))
    with pytest.raises(ValueError, match="not today"):
        await asking


@pytest.mark.parametrize("state", ["waiting", "answered", "failed", "ended"])
async def test_a_cancelled_request_is_withdrawn_once_unless_the_other_program_has_gone(
    state: State,
) -> None:
    """An answer on its way may have granted something, so an answered request is withdrawn, too."""
    peer, sent = open_peer()
    asking = asyncio.create_task(peer.request(ask, withdraw))
    await take_steps()
    if state == "answered":
        peer.settle(1, "yes")
    elif state == "failed":
        peer.fail(1, ValueError("no"))
    elif state == "ended":
        peer.end()
    asking.cancel()
    with suppress(asyncio.CancelledError):
        await asking
    assert sent == (["ask 1"] if state == "ended" else ["ask 1", "withdraw 1"])
    assert not peer._asked


async def test_a_request_that_cannot_be_sent_leaves_nothing_behind() -> None:
    peer, _ = open_peer()

    def fail(_: int) -> str:
        raise OverflowError("too long")

    with pytest.raises(OverflowError):
        await peer.request(fail)
    assert not peer._asked


async def test_the_end_of_the_other_program_fails_open_and_later_requests() -> None:
    peer, sent = open_peer()
    asking = [asyncio.create_task(peer.request(ask)) for _ in range(3)]
    await take_steps()
    peer.settle(2, "in time")
    peer.end()
    peer.end()
    results = await asyncio.gather(*asking, return_exceptions=True)
    assert [isinstance(result, PeerGone) for result in results] == [True, False, True]
    with pytest.raises(PeerGone):
        await peer.request(ask)
    assert sent == ["ask 1", "ask 2", "ask 3"]


async def test_requests_of_the_other_program_are_served_side_by_side_and_cancelled_by_id() -> None:
    peer, _ = open_peer()
    ended: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append(name)
            raise

    failed: list[str] = []
    for key in ("a", 1, "b"):
        peer.serve(key, work(str(key)), lambda error: failed.append(type(error).__name__))
    await take_steps()
    assert peer.cancel(1) and not peer.cancel("never begun")
    await take_steps()
    assert ended == ["1"] and not peer.is_serving(1) and peer.is_serving("a")
    peer.serve("late", work("late"), lambda error: failed.append(type(error).__name__))
    await peer.stop()
    assert ended == ["1", "a", "b"]
    assert sorted(failed) == ["CancelledError"] * 4


async def test_a_failing_request_of_the_other_program_does_not_stop_the_wait_for_the_others() -> (
    None
):
    peer, _ = open_peer()
    done: list[str] = []
    errors: list[BaseException] = []

    async def fail() -> None:
        raise ValueError("a bug")

    async def work() -> None:
        await take_steps(5)
        done.append("work")
        peer.serve("late", add_late(), errors.append)

    async def add_late() -> None:
        done.append("late")

    peer.serve(1, fail(), errors.append)
    peer.serve(2, work(), errors.append)
    await peer.finish()
    assert done == ["work", "late"]
    assert [str(error) for error in errors] == ["a bug"]


class KeptLink(Arrivals):
    """A link that keeps the frames that are sent."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[bytes] = []

    def send(self, data: bytes) -> None:
        self.frames.append(data)


def open_stream() -> tuple[MessageStream[Note | Other], KeptLink]:
    link = KeptLink()
    return MessageStream[Note | Other](link, Note | Other), link


async def test_what_arrived_before_the_end_is_read() -> None:
    stream, link = open_stream()
    link.add(make_frame([encode(Note("a")), encode(Other("b"))]))
    link.add(make_frame([encode(Note("c"))]))
    link.end()
    assert await stream.receive() == Note("a")
    assert await stream.receive_all() == [Other("b"), Note("c")]
    assert await stream.receive() is None
    assert await stream.receive_all() == []


@pytest.mark.parametrize("has_good", [False, True])
async def test_the_reader_gets_the_error_of_what_is_no_message(has_good: bool) -> None:
    stream, link = open_stream()
    reading = asyncio.create_task(stream.receive_all())
    await take_steps()
    if has_good:
        link.add(make_frame([encode(Note("a"))]))
    link.add(b"\x00\x00\x00\x01\xc1")
    with pytest.raises(msgspec.DecodeError):
        await reading


async def test_messages_of_one_turn_are_one_frame_and_keep_their_order() -> None:
    stream, link = open_stream()
    stream.send(Note("a"))
    stream.send(Note("a lone surrogate \udc80"))
    await take_steps(1)
    stream.send(Note("b"))
    stream.flush()
    await take_steps()
    decode = FrameDecoder[Note | Other](Note | Other).decode
    assert [decode(frame) for frame in link.frames] == [
        [Note("a"), Note("a lone surrogate �")],
        [Note("b")],
    ]
