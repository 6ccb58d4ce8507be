"""The bash tool: runs a command, with bounded output in memory and long output in a file."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Any, BinaryIO, cast

from msgspec import Struct
from msgspec.structs import replace

from ..._core.ports import CommandResult, ToolContext
from ..._core.schemas import decode_json
from ..._core.tools import Effect, Tool, ToolCategory, ToolResult
from ..._platform.patterns import compile_later
from ._schema import build_parser, build_schema, load_description, take_flag, take_integer
from ._terminal_text import TerminalText
from ._text_files import preview_result

MAX_CHARACTERS = 50_000  # for the model; it gets the first and last part of longer output
MAX_SPILL_BYTES = 256 << 20  # most output to keep in a file

_HALF = MAX_CHARACTERS // 2 - 250
_HALF_BYTES = 4 * _HALF  # most bytes half of the output can take in UTF-8
_DEFAULT_TIMEOUT = 120_000  # milliseconds, like the two below
_MIN_TIMEOUT = 1_000
_MAX_TIMEOUT = 600_000
_BACKGROUND_SECONDS = 86_400.0  # default limit of a background command; its run may end it
_SHOW_SECONDS = 0.25  # between updates of a command's last lines; a quick command shows none
_TAIL = 2_000  # characters of a background command's output for the model

_MAX_COMMAND_BYTES = 120_000
_CONTROLS = compile_later(r"[\x80-\x9f]")  # TerminalText removes the others


class Arguments(Struct, frozen=True):
    """`timeout` is in milliseconds; the user sees `description`; `background` returns at once."""

    command: str
    timeout: int | None = None
    description: str | None = None
    background: bool = False

    def __post_init__(self) -> None:
        if not self.command.strip():
            raise ValueError("command: is empty; give a bash command")
        if "\0" in self.command:
            raise ValueError("command: contains a NUL character; leave it out")
        if len(self.command.encode("utf-8", "replace")) > _MAX_COMMAND_BYTES:
            raise ValueError(
                f"command: is longer than {_MAX_COMMAND_BYTES:,} bytes; "
                "write it to a file and run that file"
            )


parse = build_parser(Arguments)


def adapt(called: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """Move other programs' arguments into the command, where rules judge them."""
    timeout = _read_timeout(called, arguments)
    command = arguments.get("command")
    if take_flag(arguments, "restart") and not command:
        raise ValueError("restart: each command starts a shell of its own; send a command")
    if isinstance(command, str) and command.lstrip().startswith("["):
        # Codex sends a list of words; some models send that list as JSON text.
        words = decode_json(command)
        if words and isinstance(words, list) and all(isinstance(word, str) for word in words):
            command = words
    if isinstance(command, list):
        command = _join_words(cast("list[Any]", command))
    if take_flag(arguments, "tty"):
        raise ValueError("tty: there is no terminal for commands; leave it out")
    shell, folder = (_take_text(arguments, name) for name in ("shell", "workdir"))
    if isinstance(command, str) and os.path.basename(shell or "bash") != "bash":
        command = _join_words([shell, "-c", command])
    if isinstance(command, str) and os.path.normpath(folder or ".") != ".":
        command = _run_in_folder(command, folder)
    if command is not None:
        arguments["command"] = command
    return arguments if timeout is None else {**arguments, "timeout": timeout}


def _read_timeout(called: str, arguments: dict[str, Any]) -> int | None:
    """Remove the time limit from the arguments and return it in milliseconds."""
    milliseconds = take_integer(arguments, "timeout_ms")
    seconds = take_integer(arguments, "timeout_secs")
    timeout = take_integer(arguments, "timeout")
    if [milliseconds, seconds, timeout].count(None) < 2:
        raise ValueError("timeout: is given twice; give it once, in milliseconds")
    # kimi-cli's tool Shell counts seconds. Codex's, which takes a list, does not.
    if called == "shell" and isinstance(arguments.get("command"), str) and seconds is None:
        seconds, timeout = timeout, None
    if seconds is not None:
        return seconds * 1000
    return milliseconds if timeout is None else timeout


def _take_text(arguments: dict[str, Any], name: str) -> str:
    """Remove an argument and return it; "" if it is missing."""
    text = arguments.pop(name, None)
    if text is not None and not isinstance(text, str):
        raise ValueError(f"{name}: is not a text")
    return text or ""


def _join_words(words: list[Any]) -> str:
    """Join a list of words, as Codex sends it, into a command."""
    if not all(isinstance(word, str) for word in words):
        raise ValueError("command: is a list with something other than texts; send one text")
    if len(words) == 3 and words[1] in ("-c", "-lc") and os.path.basename(words[0]) == "bash":
        return words[2]
    import shlex  # after the first request

    return shlex.join(words)


def _run_in_folder(command: str, folder: str) -> str:
    import shlex

    name = f"./{folder}" if folder.startswith("-") else folder  # not an option, nor the last folder
    enter = f"cd {shlex.quote(name)} &&"
    is_simple = not any(character in command for character in ";&|\n")
    # In a group, nothing runs if the folder does not exist, and a final comment hides nothing.
    return f"{enter} {command}" if is_simple else f"{enter} {{\n{command}\n}}"


async def run(ctx: ToolContext, arguments: Arguments) -> ToolResult:
    output = CommandOutput(ctx)
    if arguments.background:
        output.keep_in_file()
        timeout = max(arguments.timeout or 0, _MIN_TIMEOUT) / 1000
        if arguments.timeout is None:
            timeout = _BACKGROUND_SECONDS
        work = _run_command(ctx, arguments.command, timeout, output)
        result = ctx.run_in_background(arguments.command, work)
    else:
        milliseconds = arguments.timeout or _DEFAULT_TIMEOUT
        timeout = min(max(milliseconds, _MIN_TIMEOUT), _MAX_TIMEOUT) / 1000
        work = _run_command(ctx, arguments.command, timeout, output)
        result = await ctx.run_detachable(arguments.command, work, output.keep_in_file)
        if not output.is_in_background:
            return result
    text = f"{result.text} Its whole output is in {output.spill} when it ends."
    if timeout < _BACKGROUND_SECONDS:
        text += f" Its time limit is {timeout:g} s."
    return replace(result, text=text, spill=output.spill)


async def _run_command(
    ctx: ToolContext, command: str, timeout: float, output: CommandOutput
) -> ToolResult:
    """Run the command to its end. In the background, a cancel also gives a result."""
    started_at = time.monotonic()
    finished: CommandResult | None = None
    try:
        if ctx.traceparent:
            # Not in the sandbox's environment, which all commands share; and in the same line, so
            # that the command's lines keep their numbers.
            command = f"export TRACEPARENT={ctx.traceparent}; {command}"
        finished = await ctx.sandbox.run(command, timeout=timeout, sink=output.feed)
    except asyncio.CancelledError:
        if not output.is_in_background:
            output.keep_partial()
            raise
    finally:
        output.close()
    if output.is_in_background:
        return _report_end(finished, timeout, time.monotonic() - started_at, output)
    assert finished is not None
    lines = [
        output.finish().rstrip("\n"),
        _describe_ending(finished, timeout),
        _describe_left(finished),
    ]
    return ToolResult(
        "\n".join(filter(None, lines)) or "(no output)",
        error=finished.timed_out or finished.code != 0,
        detail={
            "exit_code": _get_exit_code(finished),
            "timed_out": finished.timed_out,
            "bytes": output.size,
        },
        spill=output.spill,
    )


def _report_end(
    finished: CommandResult | None, timeout: float, seconds: float, output: CommandOutput
) -> ToolResult:
    """Make a background command's result. `finished`: None if it was stopped."""
    ending = "stopped; all its processes were ended"
    if finished is not None:
        ending = _describe_ending(finished, timeout).strip("[]") or "exit code 0"
    whole = f"the whole output, {output.shown_size:,} bytes, is in {output.spill}"
    detail = {"bytes": output.size}
    if finished is not None:
        detail["exit_code"] = _get_exit_code(finished)
    return ToolResult(
        f"[{ending}; {seconds:.1f} s; {whole}]\n{output.read_tail(_TAIL)}".rstrip(),
        error=finished is None or finished.timed_out or finished.code != 0,
        detail=detail,
        spill=output.spill,
    )


def _get_exit_code(finished: CommandResult) -> int:
    return finished.code if finished.code >= 0 else 128 - finished.code


def _describe_ending(finished: CommandResult, timeout: float) -> str:
    if finished.timed_out:
        return f"[timed out after {timeout:g} s; all its processes were ended]"
    return f"[exit code {_get_exit_code(finished)}]" if finished.code else ""


def _describe_left(finished: CommandResult) -> str:
    """Report processes that ended with the command, or a model looks for a dead server."""
    if not finished.left:
        return ""
    processes = "process" if finished.left == 1 else "processes"
    return (
        f"[ended {finished.left} {processes} left in the background; "
        "use background=true to keep it running]"
    )


class CommandOutput:
    """A command's output: head and tail in memory; long output also goes to a file.

    Both hold the text a terminal would show, so that the file has the lines the model has seen, and
    a download does not fill it with states of its progress bar.

    Attributes:
        is_in_background: true if the command continues after its call; the file has all output.
        size: bytes the command has written.
        shown_size: bytes of the text a terminal shows for them.
    """

    def __init__(self, ctx: ToolContext) -> None:
        self.is_in_background = False
        self.size = 0
        self.spill = ""
        self._write_error = ""
        self._ctx = ctx
        self._terminal = TerminalText()
        self.shown_size = 0
        self._head = bytearray()
        self._tail = bytearray()
        self._file: BinaryIO | None = None
        self._redacting = RedactingStream(ctx.redact)
        self._file_room = MAX_SPILL_BYTES
        self._showing: asyncio.TimerHandle | None = None

    def keep_in_file(self) -> None:
        """Write all output to a file, because the command moves to the background."""
        self.is_in_background = True
        if self.size and not self.spill:
            self._open_spill()
        self.spill = self.spill or self._ctx.spill_path("bash")

    def feed(self, chunk: bytes) -> None:
        self.size += len(chunk)
        self._keep(self._terminal.feed(chunk))
        if self._showing is None and not self.is_in_background:
            self._showing = asyncio.get_running_loop().call_later(_SHOW_SECONDS, self._show)

    def _show(self) -> None:
        self._showing = None
        if not self.is_in_background:
            done = _clean((self._head + self._tail)[-4 * _TAIL :])
            self._ctx.show_output((done + self._terminal.read_rows())[-_TAIL:])

    def keep_partial(self) -> None:
        """Keep all output so far for the model, because the call is cut off without a result."""
        self.close()
        if self.size:
            self._ctx.show_output(self.finish().rstrip("\n"))

    def _keep(self, text: bytes) -> None:
        if not text:
            return
        is_long = self.shown_size + len(text) > 2 * _HALF_BYTES
        if not self._file and (is_long or self.is_in_background):
            self._open_spill()
        self.shown_size += len(text)
        self._spill(text)
        room = max(0, _HALF_BYTES - len(self._head))
        self._head += text[:room]
        self._tail += text[room:]
        if len(self._tail) > 2 * _HALF_BYTES:
            del self._tail[:-_HALF_BYTES]

    def read_tail(self, length: int) -> str:
        return self._ctx.redact(_clean(self._head + self._tail))[-length:].strip("\n")

    def finish(self) -> str:
        """Return the text for the model: all of it, or head, tail and the path of the file.

        If the text became too long only now, it is first written to the file.
        """
        if self.spill:
            head = self._ctx.redact(_clean(self._head))
            tail = self._ctx.redact(_clean(self._tail[-_HALF_BYTES:]))
        else:
            complete = self._ctx.redact(_clean(self._head + self._tail))
            if len(complete) <= MAX_CHARACTERS - 100:
                return complete
            self._open_spill()
            self.close()
            head = complete
            tail = complete
        omission = (
            f"[… the middle of {self.shown_size:,} bytes is left out; "
            f"read {self.spill}{self._write_error} with offset and limit …]"
        )
        return f"{head[:_HALF]}\n\n{omission}\n\n{tail[-_HALF:]}"

    def close(self) -> None:
        """Take the final text, and close the file."""
        if self._showing:
            self._showing.cancel()
            self._showing = None
        self._keep(self._terminal.flush())
        if self._file:
            self._write(self._redacting.flush())
            self._file.close()
            self._file = None

    def _open_spill(self) -> None:
        """Open the file and write all output so far, while memory still has it all."""
        self.spill = self.spill or self._ctx.spill_path("bash")
        self._file = open(self.spill, "wb", buffering=0)  # noqa: SIM115  open until `close`
        self._spill(bytes(self._head + self._tail))

    def _spill(self, chunk: bytes) -> None:
        if self._file and self._file_room > 0:
            self._write(self._redacting.feed(chunk))

    def _write(self, chunk: bytes) -> None:
        if not self._file or self._file_room <= 0 or not chunk:
            return
        try:
            self._file.write(chunk[: self._file_room])
            self._file_room -= len(chunk)
            if self._file_room <= 0:
                limit = MAX_SPILL_BYTES >> 20
                notice = f"\n[cut: this file holds the first {limit} MiB of the output]\n"
                self._file.write(notice.encode())
        except OSError as error:
            self._file_room = 0
            self._write_error = f" (it ends early: {error.strerror})"


def _clean(raw: bytes | bytearray) -> str:
    return _CONTROLS.sub("", raw.decode("utf-8", "replace"))


# No argument can extend what the sandbox and the rules allow.
_IGNORED = frozenset(
    (
        "dangerouslyDisableSandbox",
        "sandbox_permissions",
        "with_escalated_permissions",
        "additional_permissions",
        "justification",
        "prefix_rule",
        "login",
        "yield_time_ms",
        "max_output_tokens",
    )
)

BASH = Tool(
    name="bash",
    description=load_description(__file__),
    parameters=build_schema(Arguments, hidden=("description",)),
    parse=parse,
    run=run,
    view="command",
    effect=Effect.EFFECTFUL,
    category=ToolCategory.RUN,
    rule_argument="command",
    preview=preview_result,
    preview_lines=8,
    argument_aliases={
        "cmd": "command",
        "script": "command",
        "run_in_background": "background",
        "is_background": "background",
        "directory": "workdir",
        "dir_path": "workdir",
        "cwd": "workdir",
    },
    ignored_arguments=_IGNORED,
    adapt=adapt,
)


LONGEST_SECRET = 24_000  # characters that can be recognised; the stream holds back this many


class RedactingStream:
    """Redacts byte chunks. Bytes that are not UTF-8 pass unchanged."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._pending = bytearray()

    def feed(self, chunk: bytes) -> bytes:
        """Add a chunk; return the redacted bytes that no later chunk can change."""
        self._pending += chunk
        if len(self._pending) < 4 * LONGEST_SECRET:
            return b""
        redacted = self._redact_pending()
        complete = max(0, len(redacted) - LONGEST_SECRET)
        line_end = redacted.rfind(b"\n", 0, complete) + 1
        cut = line_end or complete
        self._pending = bytearray(redacted[cut:])
        return redacted[:cut]

    def flush(self) -> bytes:
        rest = self._redact_pending()
        self._pending = bytearray()
        return rest

    def _redact_pending(self) -> bytes:
        text = self._pending.decode("utf-8", "surrogateescape")
        return self._redact(text).encode("utf-8", "surrogateescape")
