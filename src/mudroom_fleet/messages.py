"""Messages between a session's process, the process with its workers, and the Ray process.

A link has many numbered parts: the sessions of a shared process, or the actors of a Ray process.
OpenPart, PartBytes, ClosePart and PartClosed serve both.
"""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct


class OpenPart(Struct, frozen=True, tag=True):
    """Opens a part with a new number: executes a session's runs, or creates an actor."""

    number: int
    machine: str = ""  # the only one where an actor may start; "" for any


class PartBytes(Struct, frozen=True, tag=True):
    number: int
    data: bytes


class ClosePart(Struct, frozen=True, tag=True):
    """Ends an actor, or stops serving a session, which has no runs left."""

    number: int


class PartClosed(Struct, frozen=True, tag=True):
    """Reports that a part has stopped: a session's resources are closed, or a lost actor ended."""

    number: int


# About shared processes.


class ShareProcess(Struct, frozen=True, tag=True):
    """First message. `program` is executed for each session; see WorkerTransport."""

    program: str


class SessionReady(Struct, frozen=True, tag=True):
    """Reply to OpenPart."""

    number: int


ToShared: TypeAlias = ShareProcess | OpenPart | PartBytes | ClosePart
FromShared: TypeAlias = SessionReady | PartBytes | PartClosed


# About the Ray process.


class Hello(Struct, frozen=True, kw_only=True):
    """A new actor's answer."""

    pid: int
    host: str  # name of the machine
    node: str  # id of the node in the cluster
    python: str  # version
    code: str  # see `compute_code_digest`


class RayConfig(Struct, frozen=True, kw_only=True, tag=True):
    """First message."""

    address: str  # of the cluster; "" starts one here, which ends with the Ray process
    folder: str  # for the files of such a cluster, deleted by the session's process
    program: str  # see `WorkerActor`
    lease_seconds: float  # see `Lease`


class AskLease(Struct, frozen=True, tag=True):
    """Asks for an actor's lease; the reply is a LeaseState."""

    number: int


class RayReady(Struct, frozen=True, tag=True):
    """Reports that the Ray process is connected to a cluster with this many processors."""

    processors: int


class RayFailed(Struct, frozen=True, tag=True):
    """Reports that the Ray process cannot use Ray or the cluster, and ends."""

    message: str
    remedy: str


class ActorReady(Struct, frozen=True, tag=True):
    number: int
    hello: Hello


class ActorLost(Struct, frozen=True, tag=True):
    """Reports that an actor has ended or does not answer; nothing more comes from it."""

    number: int
    reason: str


class LeaseState(Struct, frozen=True, tag=True):
    """An actor's lease. `seconds`: the longest it works without another call."""

    number: int
    seconds: float


ToRay: TypeAlias = OpenPart | PartBytes | ClosePart | AskLease
FromLink: TypeAlias = ActorReady | PartBytes | ActorLost | PartClosed | LeaseState
ToTransport: TypeAlias = RayReady | RayFailed | FromLink
