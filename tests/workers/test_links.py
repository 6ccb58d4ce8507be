"""Links between two processes: messages arrive whole and in order wherever bytes are cut."""

from __future__ import annotations

import asyncio
import socket

import pytest

from mudroom._adapters.workers.remote.messages import EndAdmission, Pause
from mudroom._peers import MessageStream, SocketLink, encode, make_frame

MESSAGES = [Pause("1", True), EndAdmission(7, "1.2"), Pause("x" * 300, False)]


def make_frames() -> bytes:
    return b"".join(make_frame([encode(message)]) for message in MESSAGES)


async def receive_all(*parts: bytes) -> list[Pause | EndAdmission]:
    """Send the parts one after the other, and return the messages that arrive."""
    far_end, own_end = socket.socketpair()
    with far_end:
        link = await SocketLink.open(own_end)
        stream = MessageStream[Pause | EndAdmission](link, Pause | EndAdmission)
        messages: list[Pause | EndAdmission] = []

        async def receive() -> None:
            while (message := await stream.receive()) is not None:
                messages.append(message)

        receiving = asyncio.create_task(receive())
        for part in parts:
            far_end.sendall(part)
            for _ in range(3):
                await asyncio.sleep(0)
        far_end.shutdown(socket.SHUT_WR)
        await receiving
        await link.close()
    return messages


@pytest.mark.parametrize("step", [1, 2, 3, 5, 1_000])
async def test_messages_arrive_wherever_their_bytes_are_cut(step: int) -> None:
    frames = make_frames()
    parts = [frames[start : start + step] for start in range(0, len(frames), step)]
    assert await receive_all(*parts) == MESSAGES


async def test_a_message_that_is_cut_off_is_dropped() -> None:
    assert await receive_all(make_frames()[:-1]) == MESSAGES[:-1]


async def test_an_end_whose_messages_are_not_read_is_closed() -> None:
    """A stopped process reads nothing; the session must close all the same."""
    far_end, own_end = socket.socketpair()
    with far_end:
        link = await SocketLink.open(own_end)
        link.send(b"x" * 5_000_000)
        await link.close(seconds=0.01)
        assert await link.receive() == b""
