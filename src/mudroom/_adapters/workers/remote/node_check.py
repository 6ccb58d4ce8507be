"""Checks which files and tools a worker process has that may be on another machine.

The process lists those it lacks; the session's process decides.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from ...._core.tools import Tool
from ...._platform.imports import extend_import_path, import_object
from ...._platform.private_files import make_private_folder, write_private_file
from ....errors import UsageError
from .messages import AskNode, NodeFacts


def check_node(host: str, facts: NodeFacts, *, can_send_files: bool) -> None:
    """Raise UsageError if a process lacks tools of a session, or files that cannot be sent."""
    if facts.unseen and not can_send_files:
        folders = ", ".join(os.path.dirname(path) for path in facts.unseen)
        raise UsageError(
            f"the node {host} does not see {folders} of this machine",
            where="worker",
            remedy="Mount it at the same path on all nodes, install git here, or use "
            'worker="process".',
        )
    if facts.unloaded:
        raise UsageError(
            f"the node {host} cannot import tools: {'; '.join(facts.unloaded)}",
            where="tools",
            remedy="Install the module on all nodes, or give the tool as an object.",
        )


async def describe_node(question: AskNode) -> NodeFacts:
    unseen = list_unseen(question.nonces)
    # In a thread: a slow import must not look like a hung process.
    unloaded = await asyncio.to_thread(list_unloaded, question.import_path, question.tools)
    return NodeFacts(unseen, unloaded)


@asynccontextmanager
async def show_folders(folders: Sequence[str]) -> AsyncGenerator[dict[str, str]]:
    """Keep a file with random text in each folder for the block; yield the texts by path.

    Raises UsageError.
    """
    writing = asyncio.create_task(asyncio.to_thread(write_nonces, folders))
    try:
        yield await asyncio.shield(writing)
    finally:
        await asyncio.shield(asyncio.create_task(_remove_written(writing)))


async def _remove_written(writing: asyncio.Task[dict[str, str]]) -> None:
    with suppress(UsageError):
        await asyncio.to_thread(remove_files, await writing)


def write_nonces(folders: Sequence[str]) -> dict[str, str]:
    """Write a file into each folder; return the texts by path. Raises UsageError."""
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
    for path in paths:
        with suppress(OSError):
            os.remove(path)


def list_unseen(nonces: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(path for path, nonce in nonces.items() if not _has(path, nonce))


def list_unloaded(import_path: Sequence[str], tools: Sequence[str]) -> tuple[str, ...]:
    """List the tools that cannot be imported here, with reasons; see AskNode."""
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
    try:
        return Path(path).read_text() == nonce
    except OSError:
        return False
