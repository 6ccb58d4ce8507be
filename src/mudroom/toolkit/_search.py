"""Search the contents of files in a process that can be ended: rg where there is one, else our own `_scan`."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

_BATCH = 500_000  # bytes of paths on one command line; the system takes 2 MB, environment included
_CHUNK = 1 << 16
_WIDTH = 2_000
_SCAN = str(Path(__file__).with_name("_scan.py"))


class Query(Struct, frozen=True, kw_only=True):
    """What is looked for. `mode`: files_with_matches, content or count; `before`, `after`: lines of context."""

    pattern: str
    ignore_case: bool = False
    multiline: bool = False
    mode: str = "files_with_matches"
    before: int = 0
    after: int = 0


class BadPattern(ValueError):
    """The searching program does not understand the pattern."""


def ripgrep(root: str) -> str:
    """Path of rg, "" where there is none; never one that lies in the workspace."""
    found = shutil.which("rg")
    return found if found and not os.path.realpath(found).startswith(root + "/") else ""


async def search(query: Query, root: str, files: Sequence[str], *, rg: str) -> AsyncGenerator[bytes, None]:
    """What is found, a record at a time, in the order of the files: `path NUL rest`, or `--` between groups of lines.

    The process is ended when the iteration is closed.

    Arguments:
        root: folder the files are relative to. rg: the program's path; "" searches with Python.

    Raises BadPattern.
    """
    end = b"\0" if query.mode == "files_with_matches" else b"\n"
    for command, order in _commands(query, files, rg):
        async with _running(command, root) as program:
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
                raise BadPattern(complaint)


@asynccontextmanager
async def _running(command: Sequence[str], root: str) -> AsyncGenerator[asyncio.subprocess.Process, None]:
    """A program that is not running any more when the block is left."""
    pipe = asyncio.subprocess.PIPE
    program = await asyncio.create_subprocess_exec(*command, cwd=root, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        yield program
    finally:
        if program.returncode is None:
            program.kill()
            for left in (program.stdout, program.stderr):
                while left and await left.read(_CHUNK):  # asyncio does not see the end of a process whose pipes are not empty
                    pass
            await program.wait()


def _commands(query: Query, files: Sequence[str], rg: str) -> Iterator[tuple[Sequence[str], bytes]]:
    """Command lines, and what each program is to read."""
    if rg:
        yield from ((_rg_command(rg, query, batch), b"") for batch in _batches(files))
        return
    names = [os.fsencode(name).decode("utf-8", "replace") for name in files]
    yield [sys.executable, "-I", "-S", _SCAN], msgspec.json.encode({**msgspec.to_builtins(query), "files": names})


def _rg_command(rg: str, query: Query, files: Sequence[str]) -> list[str]:
    command = [rg, "--no-config", "--no-messages", "--no-ignore", "--text", "--crlf", "--threads=1", "--color=never", "-0", "-H"]
    if query.ignore_case:
        command.append("-i")
    if query.multiline:
        command += ["-U", "--multiline-dotall"]
    if query.mode == "files_with_matches":
        command.append("-l")
    elif query.mode == "count":
        command.append("-c")
    else:
        command += ["-n", "--no-heading", f"-B{query.before}", f"-A{query.after}", f"--max-columns={_WIDTH}", "--max-columns-preview"]
    return [*command, "-e", query.pattern, "--", *files]


def _batches(files: Sequence[str]) -> Iterator[Sequence[str]]:
    start = size = 0
    for n, name in enumerate(files):
        size += len(os.fsencode(name)) + 9
        if size > _BATCH:
            yield files[start:n]
            start, size = n, 0
    if start < len(files):
        yield files[start:]
