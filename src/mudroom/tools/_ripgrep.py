"""Search the contents of files in a process that can be ended: rg where there is one, else our own `_grep_fallback`."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import shutil
import sys
import threading
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, closing
from pathlib import Path

import msgspec
from msgspec import Struct

from .._core.ports import Workspace
from ..errors import WorkspaceError

_BATCH = 2_000  # files opened at once, where a process may have four times as many
_CHUNK = 1 << 16
_WIDTH = 2_000
_FD = b"/dev/fd/"
_SCAN = str(Path(__file__).with_name("_grep_fallback.py"))


class SearchQuery(Struct, frozen=True, kw_only=True):
    """What is looked for. `mode`: files_with_matches, content or count; `before`, `after`: lines of context."""

    pattern: str
    ignore_case: bool = False
    multiline: bool = False
    mode: str = "files_with_matches"
    before: int = 0
    after: int = 0


class InvalidPattern(ValueError):
    """The searching program does not understand the pattern."""


def find_ripgrep(root: str) -> str:
    """Path of rg, "" where there is none; never one that lies in the workspace."""
    found = shutil.which("rg")
    return found if found and not os.path.realpath(found).startswith(root + "/") else ""


async def search_files(
    query: SearchQuery, workspace: Workspace, files: Sequence[str], *, rg: str
) -> AsyncGenerator[bytes, None]:
    """What is found, a record at a time, in the order of the files: `path NUL rest`, or `--` between groups of lines.

    The program gets the files opened, beneath the workspace: whatever a path leads to meanwhile, nothing else is read.
    It is ended when the iteration is closed.

    Arguments:
        rg: the program's path; "" searches with Python.

    Raises BadPattern.
    """
    end = b"\0" if query.mode == "files_with_matches" else b"\n"
    most = max(64, min(_BATCH, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4))
    for at in range(0, len(files), most):
        with closing(_Opened(workspace)) as opened:
            await asyncio.to_thread(opened.take, files[at : at + most])
            if not opened.paths:
                continue  # without a file to search rg would take the folder
            async with aclosing(_searched(query, opened.paths, rg, workspace.root, end)) as records:
                async for record in records:
                    place, nul, rest = record.partition(b"\0")
                    path = (
                        opened.paths.get(int(place.rpartition(b"/")[2]))
                        if place.startswith(_FD)
                        else None
                    )
                    yield os.fsencode(path) + nul + rest if path is not None else record


class _Opened:
    """Files that are open for a search, until `close`, which may come while another thread still opens some."""

    def __init__(self, workspace: Workspace) -> None:
        self.paths: dict[int, str] = {}
        self._workspace, self._lock, self._closed = workspace, threading.Lock(), False

    def take(self, files: Sequence[str]) -> None:
        """Open those that can be read. Raises WorkspaceError when no more can be open at all."""
        for path in files:
            try:
                descriptor = self._workspace.open(path)
            except WorkspaceError as error:
                if isinstance(error.__cause__, OSError) and error.__cause__.errno in (
                    errno.EMFILE,
                    errno.ENFILE,
                ):
                    raise
                continue  # it has gone, or may not be read
            with self._lock:
                if self._closed:
                    os.close(descriptor)
                    return
                self.paths[descriptor] = path

    def close(self) -> None:
        """Close them all."""
        with self._lock:
            self._closed = True
            for descriptor in self.paths:
                os.close(descriptor)


async def _searched(
    query: SearchQuery, opened: Mapping[int, str], rg: str, root: str, end: bytes
) -> AsyncGenerator[bytes, None]:
    command, order = _command(query, opened, rg)
    async with _running(command, root, opened) as program:
        assert program.stdin and program.stdout and program.stderr
        program.stdin.write(order)
        program.stdin.close()
        left = b""
        while chunk := await program.stdout.read(_CHUNK):
            *whole, left = (left + chunk).split(end)
            for record in whole:
                yield record.removesuffix(b"\r")
        complaint = (await program.stderr.read()).decode("utf-8", "replace").strip()
        if await program.wait() == 2 and complaint:
            raise InvalidPattern(complaint)


@asynccontextmanager
async def _running(
    command: Sequence[str], root: str, opened: Iterable[int]
) -> AsyncGenerator[asyncio.subprocess.Process, None]:
    """A program that is not running any more when the block is left."""
    pipe = asyncio.subprocess.PIPE
    program = await asyncio.create_subprocess_exec(
        *command, cwd=root, stdin=pipe, stdout=pipe, stderr=pipe, pass_fds=tuple(opened)
    )
    try:
        yield program
    finally:
        if program.returncode is None:
            program.kill()
            for left in (program.stdout, program.stderr):
                while left and await left.read(
                    _CHUNK
                ):  # asyncio does not see the end of a process whose pipes are not empty
                    pass
            await program.wait()


def _command(query: SearchQuery, opened: Mapping[int, str], rg: str) -> tuple[Sequence[str], bytes]:
    """A command line, and what the program is to read."""
    places = [f"{_FD.decode()}{descriptor}" for descriptor in opened]
    if rg:
        return _rg_command(rg, query, places), b""
    return [sys.executable, "-I", "-S", _SCAN], msgspec.json.encode(
        {**msgspec.to_builtins(query), "files": places}
    )


def _rg_command(rg: str, query: SearchQuery, files: Sequence[str]) -> list[str]:
    command = [
        rg,
        "--no-config",
        "--no-messages",
        "--no-ignore",
        "--text",
        "--crlf",
        "--threads=1",
        "--color=never",
        "-0",
        "-H",
    ]
    if query.ignore_case:
        command.append("-i")
    if query.multiline:
        command += ["-U", "--multiline-dotall"]
    if query.mode == "files_with_matches":
        command.append("-l")
    elif query.mode == "count":
        command.append("-c")
    else:
        command += [
            "-n",
            "--no-heading",
            f"-B{query.before}",
            f"-A{query.after}",
            f"--max-columns={_WIDTH}",
            "--max-columns-preview",
        ]
    return [*command, "-e", query.pattern, "--", *files]
