"""bash: run a command; its output with bounded memory, the whole of it in a file where it is long."""

from __future__ import annotations

import re
from typing import BinaryIO

from msgspec import Struct

from .._core.ports import CommandResult, ToolContext
from .._core.tools import Effect, Tool, ToolResult
from ._redacting_stream import RedactingStream
from ._schema import build_parser, build_schema, load_description

MAX_CHARACTERS = 50_000
"""Characters of output the model gets; half from the start, half from the end where there is more, and a word about it."""
MAX_SPILL_BYTES = 256 << 20
"""Bytes of output kept in a file."""

_HALF = MAX_CHARACTERS // 2 - 250
_KEPT = 4 * _HALF  # the longest that half the cap can be in UTF-8
_DEFAULT, _LEAST, _MOST = 120_000, 1_000, 600_000
_LONGEST = 120_000
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]{0,4096}(?:\x07|\x1b\\)|[ -/]*[0-~])?"
)
_BYTE_ESCAPES = re.compile(_ESCAPES.pattern.encode())
_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_BYTE_CONTROLS = bytes(n for n in range(32) if n not in b"\t\n\r\x1b")


class Arguments(Struct, frozen=True):
    """What the model sends. `timeout` in milliseconds; `description` is for people who watch."""

    command: str
    timeout: int | None = None
    description: str | None = None


_parse = build_parser(Arguments)


def parse(given: dict[str, object]) -> Arguments:
    """Check that the command is one the system can take."""
    arguments = _parse(given)
    if not arguments.command.strip():
        raise ValueError("command: is empty; give a bash command")
    if "\0" in arguments.command:
        raise ValueError("command: holds a NUL character; leave it out")
    if len(arguments.command.encode("utf-8", "replace")) > _LONGEST:
        raise ValueError(
            f"command: is longer than {_LONGEST:,} bytes; write it to a file and run that"
        )
    return arguments


async def run(ctx: ToolContext, arguments: Arguments) -> ToolResult:
    """Run the command to its end or its time limit."""
    timeout = min(max(arguments.timeout or _DEFAULT, _LEAST), _MOST) / 1000
    output = CommandOutput(ctx)
    try:
        finished = await ctx.sandbox.run(arguments.command, timeout=timeout, sink=output.feed)
    finally:
        output.close()
    text, ending = output.text(), _ending(finished, timeout)
    text = "\n".join(part for part in (text.rstrip("\n"), ending) if part) or "(no output)"
    return ToolResult(
        text,
        error=finished.timed_out or finished.code != 0,
        detail={
            "exit_code": _code(finished),
            "timed_out": finished.timed_out,
            "bytes": output.size,
        },
        spill=output.spill,
    )


def _code(finished: CommandResult) -> int:
    return finished.code if finished.code >= 0 else 128 - finished.code


def _ending(finished: CommandResult, timeout: float) -> str:
    if finished.timed_out:
        return f"[timed out after {timeout:g} s; all its processes were ended]"
    return f"[exit code {_code(finished)}]" if finished.code else ""


class CommandOutput:
    """A command's output: head and tail in memory, the whole in a file as soon as memory would have to drop some of it."""

    def __init__(self, ctx: ToolContext) -> None:
        self.size, self.spill, self.trouble = 0, "", ""
        self._ctx = ctx
        self._head, self._tail = bytearray(), bytearray()
        self._file: BinaryIO | None = None
        self._redacted = RedactingStream(ctx.redact)
        self._room = MAX_SPILL_BYTES

    def feed(self, chunk: bytes) -> None:
        """Add what has come."""
        if not self.spill and self.size + len(chunk) > 2 * _KEPT:
            self._begin()
        self.size += len(chunk)
        self._keep(chunk)
        room = max(0, _KEPT - len(self._head))
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 2 * _KEPT:
            del self._tail[:-_KEPT]

    def text(self) -> str:
        """What the model reads: everything, or head and tail and where the whole is. Call it last."""
        if self.spill:
            head, tail = (
                self._ctx.redact(_clean(part)) for part in (self._head, self._tail[-_KEPT:])
            )
        else:
            whole = self._ctx.redact(_clean(self._head + self._tail))
            if len(whole) <= MAX_CHARACTERS - 100:
                return whole
            self._begin()
            self.close()
            head, tail = whole, whole
        left_out = f"[… the middle of {self.size:,} bytes is left out; read {self.spill}{self.trouble} with offset and limit …]"
        return f"{head[:_HALF]}\n\n{left_out}\n\n{tail[-_HALF:]}"

    def close(self) -> None:
        """Let go of the file."""
        if self._file:
            self._put(self._redacted.flush())
            self._file.close()
            self._file = None

    def _begin(self) -> None:
        """Open the file and put in what is in memory: nothing has been dropped from there yet."""
        self.spill = self._ctx.spill_path("bash")
        self._file = open(self.spill, "wb", buffering=0)  # noqa: SIM115  it stays open from chunk to chunk
        self._keep(bytes(self._head + self._tail))

    def _keep(self, chunk: bytes) -> None:
        if not self._file or self._room <= 0:
            return
        chunk = _BYTE_ESCAPES.sub(b"", chunk) if b"\x1b" in chunk else chunk
        self._put(self._redacted.feed(chunk.translate(None, _BYTE_CONTROLS)))

    def _put(self, chunk: bytes) -> None:
        if not self._file or self._room <= 0 or not chunk:
            return
        try:
            self._write(self._file, chunk)
        except OSError as error:
            self._room, self.trouble = 0, f" (it ends early: {error.strerror})"

    def _write(self, file: BinaryIO, chunk: bytes) -> None:
        file.write(chunk[: self._room])
        self._room -= len(chunk)
        if self._room <= 0:
            file.write(
                f"\n[cut: this file holds the first {MAX_SPILL_BYTES >> 20} MiB of the output]\n".encode()
            )


def _clean(raw: bytes | bytearray) -> str:
    """Text without what only a terminal understands; a carriage return alone begins a new line."""
    text = (
        _ESCAPES.sub("", raw.decode("utf-8", "replace")).replace("\r\n", "\n").replace("\r", "\n")
    )
    return _CONTROLS.sub("", text)


BASH = Tool(
    name="bash",
    description=load_description(__file__),
    parameters=build_schema(Arguments, hidden=("description",)),
    parse=parse,
    run=run,
    effect=Effect.EFFECTFUL,
    argument_aliases={"cmd": "command", "script": "command", "timeout_ms": "timeout"},
)
