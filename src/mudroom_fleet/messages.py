"""Messages between a session's process, the process that has its workers, and the Ray process.

One link has many numbered parts: the sessions of a shared process, or the actors of a Ray process.
OpenPart, PartBytes, ClosePart and PartClosed are the same for both.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct


class OpenPart(Struct, frozen=True, tag=True):
    """Begin to use a part: execute runs of a session, or create an actor. The number is new."""

    number: int
    machine: str = ""  # the only one on which an actor may start; "" for any


class PartBytes(Struct, frozen=True, tag=True):
    number: int
    data: bytes


class ClosePart(Struct, frozen=True, tag=True):
    """End an actor, or execute no more runs of a session, which has none."""

    number: int


class PartClosed(Struct, frozen=True, tag=True):
    """A part does nothing more: the session's resources are closed, or the lost actor has ended."""

    number: int


# Of a shared process.


class ShareProcess(Struct, frozen=True, tag=True):
    """First message. `program`: what the process executes for each session; see WorkerTransport."""

    program: str


class SessionReady(Struct, frozen=True, tag=True):
    """Reply to OpenPart."""

    number: int


ToShared: TypeAlias = ShareProcess | OpenPart | PartBytes | ClosePart
FromShared: TypeAlias = SessionReady | PartBytes | PartClosed


# Of the Ray process.


class Hello(Struct, frozen=True, kw_only=True):
    """Answer of a new actor."""

    pid: int
    host: str  # name of the machine
    node: str  # id of the node in the cluster
    python: str  # version
    code: str  # see `compute_code_digest`


class RayConfig(Struct, frozen=True, kw_only=True, tag=True):
    """First message."""

    address: str  # of the cluster; "" starts one here that ends with the Ray process
    folder: str  # for the files of such a cluster, deleted by the session's process
    program: str  # see `WorkerActor`
    lease_seconds: float  # see `Lease`


class AskLease(Struct, frozen=True, tag=True):
    """Ask for the lease of an actor; the reply is a LeaseState."""

    number: int


class RayReady(Struct, frozen=True, tag=True):
    """The Ray process is connected to the cluster, which has this number of processors."""

    processors: int


class RayFailed(Struct, frozen=True, tag=True):
    """The Ray process cannot use Ray or the cluster, and ends."""

    message: str
    remedy: str


class ActorReady(Struct, frozen=True, tag=True):
    number: int
    hello: Hello


class ActorLost(Struct, frozen=True, tag=True):
    """An actor has ended or does not answer; nothing more comes from it."""

    number: int
    reason: str


class LeaseState(Struct, frozen=True, tag=True):
    """Lease of an actor. `seconds`: at most this long it works without a further call."""

    number: int
    seconds: float


ToRay: TypeAlias = OpenPart | PartBytes | ClosePart | AskLease
FromLink: TypeAlias = ActorReady | PartBytes | ActorLost | PartClosed | LeaseState
ToTransport: TypeAlias = RayReady | RayFailed | FromLink
