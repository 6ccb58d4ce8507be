"""Worker for tests that serialises all values crossing the port."""

from __future__ import annotations

from typing import Any, NoReturn, TypeVar

import msgspec

from .._core.budgets import Grant
from .._core.ports import RunHandle, Worker
from .._core.runs import Brief, InboxMessage, Reason, Report

T = TypeVar("T")


class SerializingWorker:
    """Worker that encodes and decodes all values, then passes them to another worker.

    Proves that a worker in another process is possible. `attach` sets the other worker, which
    should start its children through this one.
    """

    def __init__(self) -> None:
        self._inner: Worker | None = None

    def attach(self, inner: Worker) -> None:
        """Set the worker that executes the runs."""
        self._inner = inner

    def start(self, brief: Brief, grant: Grant) -> RunHandle:
        """Start a run from copies of its brief and its grant."""
        inner = self._inner or _fail_unattached()
        return _SerializingHandle(inner.start(_copy(brief, Brief), _copy(grant, Grant)))

    def find(self, run_id: str) -> RunHandle | None:
        """Return the handle of a running run."""
        inner = self._inner or _fail_unattached()
        handle = inner.find(run_id)
        return _SerializingHandle(handle) if handle else None


class _SerializingHandle:
    def __init__(self, inner: RunHandle) -> None:
        self.run_id = inner.run_id
        self._inner = inner

    @property
    def is_interrupted(self) -> bool:
        return self._inner.is_interrupted

    def send(self, message: InboxMessage) -> bool:
        return self._inner.send(_copy(message, InboxMessage))

    async def wait_until_stored(self, message_id: str) -> bool:
        return await self._inner.wait_until_stored(message_id)

    def wrap_up(self, reason: Reason = Reason.CANCELLED) -> bool:
        return self._inner.wrap_up(reason)

    def interrupt(self) -> bool:
        return self._inner.interrupt()

    def cancel(self, reason: Reason = Reason.CANCELLED) -> bool:
        return self._inner.cancel(_copy(reason, Reason))

    def detach(self, work_id: str = "") -> bool:
        return self._inner.detach(work_id)

    def find_current_call(self) -> tuple[str, float] | None:
        return self._inner.find_current_call()

    def stop_command(self, work_id: str) -> bool:
        return self._inner.stop_command(work_id)

    async def wait(self) -> bool:
        return await self._inner.wait()

    def release(self) -> None:
        self._inner.release()

    async def report(self) -> Report[Any]:
        return _copy(await self._inner.report(), Report[Any])


def _copy(value: T, kind: type[T]) -> T:
    """Return the value after a round trip through JSON; it must be equal."""
    copied = msgspec.json.decode(msgspec.json.encode(value), type=kind)
    assert copied == value, f"{type(value).__name__} changes when it is serialised"
    return copied


def _fail_unattached() -> NoReturn:
    raise AssertionError("attach a worker first")
