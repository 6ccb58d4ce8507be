"""Messages of a worker process that several sessions share: those of a session have its number."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct


class ShareProcess(Struct, frozen=True, tag=True):
    """First message. `program`: what the process executes for each session; see WorkerTransport."""

    program: str


class OpenSession(Struct, frozen=True, tag=True):
    """Begin to execute runs of a session. The process has not seen its number before."""

    number: int


class SessionOpened(Struct, frozen=True, tag=True):
    """Reply to OpenSession."""

    number: int


class SessionBytes(Struct, frozen=True, tag=True):
    """Bytes of a session, or for it."""

    number: int
    data: bytes


class CloseSession(Struct, frozen=True, tag=True):
    """Execute no more runs of a session; it has none."""

    number: int


class SessionClosed(Struct, frozen=True, tag=True):
    """The process executes no more runs of a session, and has closed its resources."""

    number: int


ToShared: TypeAlias = ShareProcess | OpenSession | SessionBytes | CloseSession
FromShared: TypeAlias = SessionOpened | SessionBytes | SessionClosed
