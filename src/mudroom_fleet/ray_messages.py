"""Messages between the session's process, the Ray process and the actors."""

from __future__ import annotations

from msgspec import Struct


class Hello(Struct, frozen=True, kw_only=True):
    """Answer of a new actor.

    Arguments:
        node: id of its node in the cluster. host: name of that machine.
        python: version of Python. code: see `compute_code_digest`.
    """

    pid: int
    host: str
    node: str
    python: str
    code: str


# From the session's process to the Ray process.


class RayConfig(Struct, frozen=True, kw_only=True, tag=True):
    """First message.

    Arguments:
        address: address of the cluster; "" starts one here that ends with the Ray process.
        folder: for the files of such a cluster, deleted by the session's process.
        program: see `WorkerActor`.
        lease_seconds: see `Lease`.
    """

    address: str
    folder: str
    program: str
    lease_seconds: float


class OpenActor(Struct, frozen=True, tag=True):
    """Create an actor. `machine`: the only one on which it may start; "" for any."""

    number: int
    machine: str = ""


class ToActor(Struct, frozen=True, tag=True):
    """Bytes for an actor."""

    number: int
    data: bytes


class CloseActor(Struct, frozen=True, tag=True):
    """End an actor."""

    number: int


class AskLease(Struct, frozen=True, tag=True):
    """Ask for the lease of an actor; the reply is a LeaseState."""

    number: int


ToRay = OpenActor | ToActor | CloseActor | AskLease


# From the Ray process to the session's process.


class RayReady(Struct, frozen=True, tag=True):
    """The Ray process is connected to the cluster, which has this number of processors."""

    processors: int


class RayFailed(Struct, frozen=True, tag=True):
    """The Ray process cannot use Ray or the cluster, and ends."""

    message: str
    remedy: str


class ActorReady(Struct, frozen=True, tag=True):
    """An actor has answered."""

    number: int
    hello: Hello


class FromActor(Struct, frozen=True, tag=True):
    """Bytes of an actor."""

    number: int
    data: bytes


class ActorLost(Struct, frozen=True, tag=True):
    """An actor has ended or does not answer; nothing more comes from it."""

    number: int
    reason: str


class ActorStopped(Struct, frozen=True, tag=True):
    """An actor that was lost does nothing more."""

    number: int


class LeaseState(Struct, frozen=True, tag=True):
    """Lease of an actor. `seconds`: at most this long it works without a further call."""

    number: int
    seconds: float


FromLink = ActorReady | FromActor | ActorLost | ActorStopped | LeaseState
ToTransport = RayReady | RayFailed | FromLink
