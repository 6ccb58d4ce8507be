"""Content search with ripgrep: a process that reads open files and can be timed out."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
import shutil
import sysconfig
import threading
from codecs import BOM_UTF8
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager, closing
from weakref import WeakKeyDictionary

from msgspec import Struct, field

from ..._core.ports import LocalFiles
from ..._platform.child_programs import end_program, start_program
from ..._platform.patterns import compile_later
from ...errors import WorkspaceError

MAX_CHARACTERS = 500  # also the search program's limit
_BEFORE = 150  # characters before a match
_MATCH = compile_later(rb"(\d+):(\d+):(\d+):")
_CONTEXT = compile_later(rb"(\d+)-(\d+)-")
_CUT = compile_later(rb" \[\.\.\. (?:(\d+) more match(?:es)?|omitted end of long line)\]\Z")


def show_line(descriptor: int, record: bytes, *, is_start: bool = False) -> bytes:
    """Format a line printed by the search program as `number mark text`.

    The program prints `number:column:offset:text` for a match and `number-offset-text` for context.
    Of a long line, it prints only the start and the number of matches after it. The window is read
    from the open file, so long lines cost no memory. `is_start` shows the start even if there is a
    match after it.
    """
    if match := _MATCH.match(record):
        number, column, offset = map(int, match.groups())
        mark = b":"
    elif match := _CONTEXT.match(record):
        number, offset = map(int, match.groups())
        column, mark = 1, b"-"
    else:
        return record
    if is_start:
        column = 1
    text = record[match.end() :]
    cut = _CUT.search(text)
    if len(text) > MAX_CHARACTERS and cut:
        start = text[: cut.start()]
        if os.pread(descriptor, len(BOM_UTF8), 0) == BOM_UTF8:
            offset += len(BOM_UTF8)  # not counted by the program
        if os.pread(descriptor, 1, offset + len(start)) in (b"", b"\n", b"\r"):
            text = start  # few characters but many bytes: it is complete
        else:
            more = int(cut[1] or 0)
            text = _show_window(descriptor, start, offset, column, more).encode()
    return b"%d" % number + mark + text


def read_column(record: bytes) -> tuple[int, int] | None:
    """Read the line number and column of a match; None for a line of context."""
    match = _MATCH.match(record)
    return (int(match[1]), int(match[2])) if match else None


def _show_window(descriptor: int, start: bytes, offset: int, column: int, more: int) -> str:
    """Format the window with a note.

    Arguments:
        start, offset: of the line. column: of the match, from 1, in bytes.
        more: matches after the start.
    """
    place = column - 1
    if place <= len(start) - (len(start) // 3):
        return start.decode("utf-8", "replace") + _describe(more)
    if place >= len(start):
        more -= 1  # the one shown
    # A character has at most four bytes.
    before = os.pread(descriptor, min(place, 4 * _BEFORE), offset + place - min(place, 4 * _BEFORE))
    after = os.pread(descriptor, 4 * MAX_CHARACTERS, offset + place).partition(b"\n")[0]
    window = (
        before.decode("utf-8", "ignore")[-_BEFORE:]
        + after.decode("utf-8", "ignore").rstrip("\r")[: MAX_CHARACTERS - _BEFORE]
    )
    return f"… {window}{_describe(max(more, 0), f' around byte {column:,}')}"


def _describe(more: int, where: str = "") -> str:
    matches = f"; {more:,} more match{'' if more == 1 else 'es'} in it" if more else ""
    return f" [line cut{where}{matches}]"


_BATCH = 2_000  # files a search has open at once, if the process may open that many
_SEARCHES = min(4, os.cpu_count() or 1)  # at once in an event loop; the others wait
_DESCRIPTOR_SHARE = 4  # all searches together open 1/n of the files the process may open
_MAX_COPIED_BYTES = 64 << 20  # in UTF-8 copies of files in other encodings, per batch
_CHUNK = 1 << 16
_FD_FOLDER = b"/dev/fd/"


class SearchQuery(Struct, frozen=True, kw_only=True):
    pattern: str
    ignore_case: bool = False
    multiline: bool = False
    mode: str = "files_with_matches"
    before: int = 0
    after: int = 0


class SearchProgress(Struct):
    """The progress of a search.

    Arguments:
        searched: files looked at. opened: those whose text was searched.
        unreadable, binary, too_large: files not searched, by reason.
        unknown: files searched as Latin-1, because their encoding is unclear.
        failure: message of a search program that did not finish, "" if it did.
    """

    searched: int = 0
    opened: int = 0
    unreadable: list[str] = field(default_factory=list[str])
    binary: list[str] = field(default_factory=list[str])
    too_large: list[str] = field(default_factory=list[str])
    unknown: list[str] = field(default_factory=list[str])
    failure: str = ""


class InvalidPattern(ValueError):
    """The search program rejects the pattern."""


def find_ripgrep(root: str) -> str:
    """Find rg; "" if there is none.

    The wheel `ripgrep` installs it beside mudroom; otherwise it is taken from PATH. An rg elsewhere
    in the workspace is never used: an agent may have written it.
    """
    own = shutil.which("rg", path=sysconfig.get_path("scripts")) or ""
    for path in (own, shutil.which("rg") or ""):
        if path and not os.path.realpath(path).startswith(root + "/"):
            return path
    return own


_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


def get_search_slot() -> asyncio.Semaphore:
    """Return a semaphore, so that searches do not open more files than the process may."""
    loop = asyncio.get_running_loop()
    return _slots.setdefault(loop, asyncio.Semaphore(_SEARCHES))


async def search_files(
    query: SearchQuery,
    workspace: LocalFiles,
    files: Sequence[str],
    progress: SearchProgress,
    *,
    root: str,
    rg: str,
) -> AsyncGenerator[bytes, None]:
    """Yield the matches in file order, as `path NUL rest`, or `--` between groups.

    The program gets files already opened beneath the workspace, and reads nothing else, even if a
    path changes meanwhile. It ends when the iterator is closed. Raises InvalidPattern.
    """
    separator = b"\0" if query.mode == "files_with_matches" else b"\n"
    descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    batch = max(64, min(_BATCH, descriptors // (_DESCRIPTOR_SHARE * _SEARCHES)))
    start = 0
    while start < len(files):
        with closing(_OpenFiles(workspace, progress)) as opened:
            progress.searched = start
            start += await asyncio.to_thread(opened.open_all, files[start : start + batch])
            progress.opened += len(opened.paths)
            if not opened.paths:
                continue  # without files, rg searches the current folder
            records = _run_program(query, opened.paths, progress, rg, root, separator)
            last: tuple[int, int] | None = None
            async with aclosing(records):
                async for record in records:
                    descriptor, rest = _read_record(record)
                    if descriptor is None:
                        yield record
                        continue
                    path = opened.paths[descriptor]
                    progress.searched = files.index(path, progress.searched)
                    if query.mode == "content":
                        place = read_column(rest[1:]) if query.multiline else None
                        # All lines of a match have the column of the first.
                        is_start = last is not None and place == (last[0] + 1, last[1])
                        last = place
                        rest = b"\0" + show_line(descriptor, rest[1:], is_start=is_start)
                    yield os.fsencode(path) + rest


def _read_record(record: bytes) -> tuple[int | None, bytes]:
    """Split a record into its file's descriptor, None for a separator, and the rest."""
    name, nul, rest = record.partition(b"\0")
    if not name.startswith(_FD_FOLDER):
        return None, record
    return int(name.removeprefix(_FD_FOLDER)), nul + rest


class _OpenFiles:
    """Files opened for a search. `close` may be called while another thread opens more."""

    def __init__(self, workspace: LocalFiles, progress: SearchProgress) -> None:
        self.paths: dict[int, str] = {}
        self._progress = progress
        self._workspace = workspace
        self._lock = threading.Lock()
        self._is_closed = False

    def open_all(self, files: Sequence[str]) -> int:
        """Open the readable files, in UTF-8; return how many were looked at.

        Stops early if copies of files in other encodings take too much memory. Raises
        WorkspaceError if the process may open no more files.
        """
        copied = 0
        for count, path in enumerate(files):
            if copied > _MAX_COPIED_BYTES:
                return count
            try:
                opened = self._workspace.open(path)
            except WorkspaceError as error:
                if _is_out_of_descriptors(error):
                    raise
                if not isinstance(error.__cause__, FileNotFoundError):
                    self._progress.unreadable.append(path)
                continue
            descriptor, size = self._read_as_utf8(opened, path)
            copied += size
            if descriptor is None:
                continue
            with self._lock:
                if self._is_closed:
                    os.close(descriptor)
                    break
                self.paths[descriptor] = path
        return len(files)

    def _read_as_utf8(self, descriptor: int, path: str) -> tuple[int | None, int]:
        """Return a descriptor with the file's text in UTF-8, and the size of a copy in bytes.

        Closes the original descriptor if the file is copied, or not searched (None).
        """
        from .text.file_text import copy_as_utf8  # after the first request

        progress = self._progress
        try:
            copy = copy_as_utf8(descriptor)
        except OSError:
            progress.unreadable.append(path)
            os.close(descriptor)
            return None, 0
        if copy is None:
            return descriptor, 0
        os.close(descriptor)
        if isinstance(copy, str):
            (progress.binary if copy == "binary" else progress.too_large).append(path)
            return None, 0
        if not copy.is_exact:
            progress.unknown.append(path)
        return copy.descriptor, copy.size

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            for descriptor in self.paths:
                os.close(descriptor)


def _is_out_of_descriptors(error: WorkspaceError) -> bool:
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENFILE)


async def _run_program(
    query: SearchQuery,
    opened: Mapping[int, str],
    progress: SearchProgress,
    rg: str,
    root: str,
    separator: bytes,
) -> AsyncGenerator[bytes, None]:
    command = _build_command(rg, query, [f"{_FD_FOLDER.decode()}{fd}" for fd in opened])
    async with _start_program(command, root, opened) as program:
        assert program.stdout and program.stderr
        rest = b""
        has_matches = False
        while chunk := await program.stdout.read(_CHUNK):
            *complete, rest = (rest + chunk).split(separator)
            for record in complete:
                has_matches = True
                yield record.removesuffix(b"\r")
        message = (await program.stderr.read()).decode("utf-8", "replace").strip()
        code = await program.wait()
        if code == 2 and message and not has_matches and not progress.searched:
            raise InvalidPattern(message)
        if code not in (0, 1):
            progress.failure = message[:500] or f"exit code {code}"


@asynccontextmanager
async def _start_program(
    command: Sequence[str], root: str, opened: Iterable[int]
) -> AsyncGenerator[asyncio.subprocess.Process, None]:
    pipe = asyncio.subprocess.PIPE
    program = await start_program(
        *command,
        cwd=root,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        pass_fds=tuple(opened),
    )
    try:
        yield program
    finally:
        await end_program(program)


def _build_command(rg: str, query: SearchQuery, files: Sequence[str]) -> list[str]:
    command = [rg, "--no-config", "--no-messages", "--no-ignore", "--text", "--crlf"]
    command += ["--threads=1", "--color=never", "-0", "-H"]
    if query.ignore_case:
        command.append("-i")
    if query.multiline:
        command += ["-U", "--multiline-dotall"]
    if query.mode == "files_with_matches":
        command.append("-l")
    elif query.mode == "count":
        command.append("-c")
    else:
        command += ["-n", "--no-heading", f"-B{query.before}", f"-A{query.after}"]
        command += ["--column", "--byte-offset"]
        command += [f"--max-columns={MAX_CHARACTERS}", "--max-columns-preview"]
    return [*command, "-e", query.pattern, "--", *files]
