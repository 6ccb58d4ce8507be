"""Virtual time."""

from __future__ import annotations

import asyncio
import socket

from mudroom.testing.clock import LoopbackProbe, VirtualLoop


class LateDelivery(LoopbackProbe):
    """A kernel that delivers a packet only while the probe is on its way."""

    def __init__(self, sender: socket.socket) -> None:
        super().__init__()
        self._late: list[socket.socket] = [sender]

    def wait(self) -> None:
        super().wait()
        if self._late:
            self._late.pop().send(b"late")


def test_time_does_not_jump_before_sent_data_is_delivered() -> None:
    receiver, sender = socket.socketpair()
    receiver.setblocking(False)
    loop = VirtualLoop(LateDelivery(sender))

    async def receive() -> bytes:
        return await asyncio.wait_for(loop.sock_recv(receiver, 10), 60)

    with receiver, sender:
        try:
            assert loop.run_until_complete(receive()) == b"late"
            assert loop.time() == 0.0
        finally:
            loop.close()


def test_the_probe_arrives() -> None:
    probe = LoopbackProbe()
    try:
        for _ in range(3):
            probe.wait()
    finally:
        probe.close()
