"""Messages of a worker process that several sessions share: those of a session have its number."""

from __future__ import annotations

from typing import TypeAlias

from msgspec import Struct


class ShareProcess(Struct, frozen=True, tag=True):
    """First message to a worker process that several sessions share, in place of a config."""


class OpenSession(Struct, frozen=True, tag=True):
    """Begin to execute runs of a session; its config is the first SessionMessage.

    Arguments:
        number: stands for the session in all messages. The process has not seen it before.
        nonces: texts of files that the process sees if it sees the folders of the session, by path.
        import_path: folders in which modules of the caller are found.
        tools: tools of the caller that the process must be able to import: "module:name".
    """

    number: int
    nonces: dict[str, str] = {}
    import_path: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()


class SessionOpened(Struct, frozen=True, tag=True):
    """Reply to OpenSession.

    Arguments:
        unseen: files of the request that are not there or have another text.
        unloaded: tools of the request that cannot be imported, each with the reason.
    """

    number: int
    unseen: tuple[str, ...] = ()
    unloaded: tuple[str, ...] = ()


class SessionMessage(Struct, frozen=True, tag=True):
    """A message of a session or for it. `data`: the encoded message."""

    number: int
    data: bytes


class CloseSession(Struct, frozen=True, tag=True):
    """Execute no more runs of a session; it has none."""

    number: int


class SessionClosed(Struct, frozen=True, tag=True):
    """The process executes no more runs of a session, and has closed what it opened for it."""

    number: int


ToShared: TypeAlias = ShareProcess | OpenSession | SessionMessage | CloseSession
FromShared: TypeAlias = SessionOpened | SessionMessage | SessionClosed
