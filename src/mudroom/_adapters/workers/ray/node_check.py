"""Check of a node: its versions, the files that it sees, and the tools that it can import.

The node lists what it lacks, the session's process decides.
"""

from __future__ import annotations

import asyncio
import os
import platform
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from msgspec import Struct

from ...._core.tools import Tool
from ...._platform.imports import extend_import_path, import_object
from ...._platform.private_files import make_private_folder, write_private_file
from ....errors import UsageError
from .driver_messages import Hello


class NodeRequirements(Struct, frozen=True):
    """What each node must have.

    Arguments:
        folders: that the node must see; a file in each of them proves it.
        import_path: folders in which modules of the caller are found.
        tools: tools of the caller that the node must be able to import: "module:name".
        files_travel: false if the node must see the folders, because files cannot be sent to it.
    """

    folders: Sequence[str] = ()
    import_path: Sequence[str] = ()
    tools: Sequence[str] = ()
    files_travel: bool = False


def check_node(hello: Hello, code: str, *, files_travel: bool = False) -> None:
    """Raise UsageError if a node has other versions, or does not see the files.

    Arguments:
        files_travel: see NodeRequirements.
    """
    python = platform.python_version()
    if hello.code != code or _get_minor(hello.python) != _get_minor(python):
        raise UsageError(
            f"the node {hello.host} has mudroom {hello.code} and Python {hello.python}; here are "
            f"{code} and Python {python}",
            where="worker",
            remedy="Install the same version of mudroom and Python on all nodes.",
        )
    check_files(hello.host, hello.unseen, hello.unloaded, files_travel=files_travel)


def check_files(
    host: str, unseen: Sequence[str], unloaded: Sequence[str], *, files_travel: bool
) -> None:
    """Raise UsageError if a node does not see files of a session, or cannot import its tools.

    Arguments:
        unseen, unloaded: see Hello.
        files_travel: see NodeRequirements.
    """
    if unseen and not files_travel:
        folders = ", ".join(os.path.dirname(path) for path in unseen)
        raise UsageError(
            f"the node {host} does not see {folders} of this machine",
            where="worker",
            remedy="Mount it at the same path on all nodes, install git here, or use "
            'worker="process".',
        )
    if unloaded:
        raise UsageError(
            f"the node {host} cannot import tools: {'; '.join(unloaded)}",
            where="tools",
            remedy="Install the module on all nodes, or give the tool as an object.",
        )


def _get_minor(version: str) -> str:
    """Return the version without its last number."""
    return version.rpartition(".")[0]


@asynccontextmanager
async def show_folders(folders: Sequence[str]) -> AsyncGenerator[dict[str, str]]:
    """Have a file with a random text in each folder meanwhile; yield the texts by path.

    Raises UsageError.
    """
    if not folders:
        yield {}
        return
    writing = asyncio.create_task(asyncio.to_thread(write_nonces, folders))
    try:
        yield await asyncio.shield(writing)
    finally:
        await asyncio.shield(asyncio.create_task(_remove_written(writing)))


async def _remove_written(writing: asyncio.Task[dict[str, str]]) -> None:
    with suppress(UsageError):
        await asyncio.to_thread(remove_files, await writing)


def write_nonces(folders: Sequence[str]) -> dict[str, str]:
    """Write a file into each folder and return their texts by path. Raises UsageError."""
    nonces: dict[str, str] = {}
    try:
        for folder in folders:
            make_private_folder(Path(folder))
            nonce = secrets.token_hex(16)
            path = Path(folder, f".mudroom-check-{nonce[:8]}")
            write_private_file(path, nonce.encode())
            nonces[str(path)] = nonce
    except OSError as error:
        remove_files(nonces)
        raise UsageError(
            f"cannot write the file that shows whether the nodes see a folder: {error}",
            where="worker",
            remedy='Make the folder writable, or use worker="process".',
        ) from error
    return nonces


def remove_files(paths: Mapping[str, str]) -> None:
    """Remove files that may be there."""
    for path in paths:
        with suppress(OSError):
            os.remove(path)


def list_unseen(nonces: Mapping[str, str]) -> tuple[str, ...]:
    """Return the files that are not here or have another text; `nonces`: texts by path."""
    return tuple(path for path, nonce in nonces.items() if not _has(path, nonce))


def list_unloaded(import_path: Sequence[str], tools: Sequence[str]) -> tuple[str, ...]:
    """Return the tools that cannot be imported here, each with the reason.

    Arguments:
        import_path, tools: see NodeRequirements.
    """
    extend_import_path(import_path)
    unloaded: list[str] = []
    for reference in tools:
        try:
            value = import_object(reference)
        except Exception as error:  # noqa: BLE001  a module may raise anything
            unloaded.append(f"{reference} ({type(error).__name__}: {error})")
        else:
            if not isinstance(value, Tool):
                unloaded.append(f"{reference} (no tool, but {type(value).__name__})")
    return tuple(unloaded)


def _has(path: str, nonce: str) -> bool:
    """Return whether a file has a text."""
    try:
        return Path(path).read_text() == nonce
    except OSError:
        return False
