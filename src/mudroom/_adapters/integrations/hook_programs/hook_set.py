"""The hooks of a session: selects those for an event, runs them together, merges outcomes."""

from __future__ import annotations

import asyncio
import logging
import os
import selectors
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from typing import IO, Any, cast

import msgspec
from msgspec import Struct

from ...._core.ports import HookCallback
from ...._platform.time_limits import time_limit
from .events import RULES, explain_never_fires, parse_matcher
from .outcome import HookOutcome, merge_outcomes, read_ending, read_output
from .remote_hooks import CallServerTool, call_hook_tool, post_input
from .run_log import HookRun, RunLog
from .spec import HookSpec

log = logging.getLogger("mudroom")

MAX_PROCESSES = 32  # hook programs running at once in a session

MatchesCondition = Callable[[str], bool]  # returns whether a tool call matches a permission rule


class HookSet:
    """The hooks of a session: those from settings files, and the caller's functions by event.

    `folder` and `environ` are for programs; `call_tool` is None if no session is open.
    """

    def __init__(
        self,
        specs: Sequence[HookSpec],
        callbacks: Mapping[str, Sequence[HookCallback]],
        *,
        session: str,
        folder: str,
        environ: Mapping[str, str],
        run_log: RunLog,
        call_tool: CallServerTool | None = None,
    ) -> None:
        self._specs = [spec for spec in specs if not find_problem(spec)]
        self._callbacks = callbacks
        self._session = session
        self._folder = folder
        self._environ = _make_environ(environ, folder)
        self._log = run_log
        self._call_tool = call_tool
        self._threads = ThreadPoolExecutor(MAX_PROCESSES, "hook")
        self._background: set[asyncio.Task[HookOutcome]] = set()
        self._finished_once: set[int] = set()
        self._acted_for: set[str] = set()

    def has(self, event: str) -> bool:
        return event in self._callbacks or any(spec.event == event for spec in self._specs)

    async def fire(
        self,
        event: str,
        fields: dict[str, Any],
        *,
        matches_condition: MatchesCondition | None = None,
        seconds: float | None = None,
    ) -> HookOutcome:
        """Run the hooks of an event and return their merged outcome.

        Without `matches_condition`, as for an event without a tool, hooks with a condition never
        run. `seconds` is a time limit shorter than the event's.
        """
        subject = str(fields.get(RULES[event].subject, ""))
        specs = self._select(event, subject, matches_condition)
        callbacks = [
            callback
            for callback in self._callbacks.get(event, ())
            if parse_matcher(callback.matcher).matches(subject)
        ]
        if not specs and not callbacks:
            return HookOutcome()
        self._acted_for.add(str(fields.get("agent_id", "")))
        runs = [self._run_spec(spec, fields, seconds) for spec in specs]
        runs += [self._run_callback(event, each, fields, seconds) for each in callbacks]
        outcomes = await _gather(runs)
        for outcome in outcomes:
            if outcome.message:
                log.warning("%s (%s hook, %s)", outcome.message, event, outcome.origin)
        return merge_outcomes(outcomes)

    def take_acted(self, run_id: str) -> bool:
        """Return whether hooks have run for a child, or the root run (""), since the last call."""
        has_acted = run_id in self._acted_for
        self._acted_for.discard(run_id)
        return has_acted

    def _select(
        self, event: str, subject: str, matches_condition: MatchesCondition | None
    ) -> list[HookSpec]:
        selected: dict[object, HookSpec] = {}
        for spec in self._specs:
            if spec.event != event or not is_selected(spec, subject):
                continue
            if spec.condition and not (matches_condition and matches_condition(spec.condition)):
                continue
            if spec.once:
                if id(spec) in self._finished_once:
                    continue
                self._finished_once.add(id(spec))
            selected.setdefault(_make_key(spec), spec)
        return list(selected.values())

    async def _run_spec(
        self, spec: HookSpec, fields: Mapping[str, Any], seconds: float | None
    ) -> HookOutcome:
        """Run a hook; one that starts in or moves to the background has no outcome."""
        if spec.in_background:
            self._keep(asyncio.create_task(self._run_to_end(spec, fields, None)))
            return HookOutcome()
        if spec.kind != "command":
            return await self._run_to_end(spec, fields, seconds)
        released: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def release(*_: object) -> None:
            if not released.done():
                released.set_result(None)

        task = asyncio.create_task(self._run_to_end(spec, fields, seconds, release))
        task.add_done_callback(release)
        try:
            await released
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        if task.done():
            return task.result()
        self._keep(task)
        return HookOutcome()

    def _keep(self, task: asyncio.Task[HookOutcome]) -> None:
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _run_to_end(
        self,
        spec: HookSpec,
        fields: Mapping[str, Any],
        seconds: float | None,
        release: Callable[[], object] = lambda: None,
    ) -> HookOutcome:
        is_gemini = spec.dialect == "gemini"
        data = msgspec.json.encode(to_gemini_input(spec, fields) if is_gemini else fields)
        limit = spec.timeout or RULES[spec.event].seconds
        limit = limit if seconds is None else min(limit, seconds)
        started_at, began = time.time(), time.monotonic()
        if spec.kind == "http":
            environ = {**self._environ, **spec.env}
            outcome, ending = await post_input(spec, data, limit, environ)
        elif spec.kind == "mcp_tool":
            outcome, ending = await call_hook_tool(spec, fields, limit, self._call_tool)
        else:
            outcome, ending = await self._run_program(spec, fields, data, limit, release)
        self._log.append(
            HookRun(
                at=started_at,
                session=self._session,
                event=spec.event,
                origin=spec.origin,
                hook=spec.shown,
                agent=str(fields.get("agent_id", "")),
                seconds=round(time.monotonic() - began, 3),
                ending=ending,
            )
        )
        return self._add_origin(outcome, spec)

    def _add_origin(self, outcome: HookOutcome, spec: HookSpec) -> HookOutcome:
        if outcome.failure:
            text = f"A hook failed: {spec.shown}: {outcome.failure}"
            log.warning("%s (%s, %s)", text, spec.event, spec.origin)
            if spec.blocks_on_failure and RULES[spec.event].blocks:
                reason = f"a hook that must succeed failed: {outcome.failure}"
                outcome = HookOutcome(decision="deny", reason=reason)
        return msgspec.structs.replace(outcome, origin=f"hook:{spec.event} {spec.origin}".strip())

    async def _run_program(
        self,
        spec: HookSpec,
        fields: Mapping[str, Any],
        data: bytes,
        seconds: float,
        release: Callable[[], object],
    ) -> tuple[HookOutcome, str]:
        command = spec.command if spec.args is None else (spec.command, *spec.args)
        loop = asyncio.get_running_loop()
        program = HookProgram(
            command,
            self._folder,
            {**self._environ, **spec.env},
            on_async=lambda: loop.call_soon_threadsafe(release),
        )
        running = loop.run_in_executor(self._threads, program.run, data, seconds)
        try:
            ending = await asyncio.shield(running)
        except asyncio.CancelledError:
            program.stop()
            await asyncio.wait({running})
            raise
        if ending.code is None:
            return HookOutcome(failure=ending.failure), ending.failure
        stdout = ending.stdout.decode("utf-8", "replace")
        stderr = ending.stderr.decode("utf-8", "replace")
        convert = partial(from_gemini_output, spec, fields) if spec.dialect == "gemini" else dict
        outcome = read_ending(spec.event, ending.code, stdout, stderr, convert)
        return outcome, f"exit code {ending.code}"

    async def _run_callback(
        self, event: str, callback: HookCallback, fields: dict[str, Any], seconds: float | None
    ) -> HookOutcome:
        limit = callback.timeout or RULES[event].seconds
        limit = limit if seconds is None else min(limit, seconds)
        try:
            async with time_limit(limit):
                output = await callback.function(dict(fields))
            outcome = HookOutcome() if output is None else read_output(event, output)
        except TimeoutError:
            outcome = HookOutcome(failure=f"it did not end within {limit:g} s")
        except Exception as error:  # noqa: BLE001  the caller's function may raise anything
            outcome = HookOutcome(failure=f"{type(error).__name__}: {error}")
        name = getattr(callback.function, "__name__", "function")
        spec = HookSpec(
            event=event,
            kind="command",
            origin="function",
            scope="user",
            shown=name,
            blocks_on_failure=callback.blocks_on_failure,
        )
        return self._add_origin(outcome, spec)

    async def close(self) -> None:
        for task in self._background:
            task.cancel()
        if self._background:
            await asyncio.wait(self._background)
        self._threads.shutdown(wait=False)


def _make_key(spec: HookSpec) -> object:
    """Make a key that identical hooks share, so that they run only once."""
    called = msgspec.json.encode([spec.options.get(name) for name in ("server", "tool", "input")])
    return (spec.kind, spec.command, spec.args, spec.url, called, *spec.env.items())


def is_selected(spec: HookSpec, subject: str) -> bool:
    """Return whether a hook's matcher selects a subject, by our name or its program's."""
    matcher = parse_matcher(spec.matcher)
    if matcher.matches(subject):
        return True
    return spec.dialect == "gemini" and matcher.matches(_TOOLS.get(subject, subject))


async def _gather(runs: Sequence[Any]) -> list[HookOutcome]:
    """Await all runs; cancelling this cancels them."""
    if len(runs) == 1:
        return [await runs[0]]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(run) for run in runs]
    return [task.result() for task in tasks]


def find_problem(spec: HookSpec) -> str:
    return explain_never_fires(spec.event, spec.kind) or parse_matcher(spec.matcher).problem


def _make_environ(environ: Mapping[str, str], folder: str) -> dict[str, str]:
    known = {**os.environ, **environ}
    # These configure this process's exporter, not another program's.
    own = {name: value for name, value in known.items() if not name.startswith("OTEL_")}
    return {**own, "CLAUDE_PROJECT_DIR": folder, "PWD": folder}


# Claude Code's tools -> the Gemini CLI's.
_TOOLS = {
    "Bash": "run_shell_command",
    "Read": "read_file",
    "Write": "write_file",
    "Edit": "replace",
    "Glob": "glob",
    "Grep": "search_file_content",
    "WebFetch": "web_fetch",
    "WebSearch": "google_web_search",
    "TodoWrite": "write_todos",
}


def to_gemini_input(spec: HookSpec, fields: Mapping[str, Any]) -> dict[str, Any]:
    named = {**fields, "hook_event_name": spec.file_event or spec.event}
    if "tool_name" in fields:
        named["tool_name"] = _TOOLS.get(fields["tool_name"], fields["tool_name"])
    return named


def from_gemini_output(
    spec: HookSpec, fields: Mapping[str, Any], output: Mapping[str, Any]
) -> dict[str, Any]:
    # The Gemini CLI's `tool_input` contains only the arguments that change.
    own = output.get("hookSpecificOutput")
    if not isinstance(own, dict):
        return dict(output)
    specific = cast("dict[str, Any]", own)
    if specific.get("hookEventName") == spec.file_event:
        specific = {**specific, "hookEventName": spec.event}
    changed = specific.get("tool_input")
    if spec.event == "PreToolUse" and isinstance(changed, dict):
        whole = {**fields.get("tool_input", {}), **cast("dict[str, Any]", changed)}
        specific = {**specific, "updatedInput": whole}
    return {**output, "hookSpecificOutput": specific}


MAX_OUTPUT = 8 << 20  # bytes to keep of an output; the program may write more
_CHUNK = 1 << 16
# Bytes within which a program's announcement that it moves to the background must end.
_MAX_ANNOUNCEMENT = 4096
# Between checks of whether the program has ended or must be ended.
_CHECK_SECONDS = 0.05
# For other processes' output after the program itself has ended.
_REST_SECONDS = 0.2
# Within which a killed process must end.
_KILL_SECONDS = 1.0


class ProgramEnding(Struct, frozen=True):
    code: int | None = None  # negative for a signal; None if it did not end by itself
    stdout: bytes = b""
    stderr: bytes = b""
    failure: str = ""  # why there is no exit code


class Announcement:
    """The first line of a program that moves to the background: `{"async": true}`."""

    def __init__(self) -> None:
        self.is_read = False  # it is known whether the line is an announcement
        self.size = 0  # bytes of the line
        self.seconds = 0.0  # time limit the program asks for from then on; 0 keeps its present one

    def read(self, output: bytearray) -> bool:
        """Look for it in the output so far. Return whether it is there."""
        end = output.find(b"\n", 0, _MAX_ANNOUNCEMENT)
        self.is_read = end >= 0 or len(output) >= _MAX_ANNOUNCEMENT
        line = output[: end if end >= 0 else _MAX_ANNOUNCEMENT]
        if not line.lstrip().startswith(b"{"):
            return False
        try:
            value = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeError):
            return False  # an object on several lines, or not completely written
        if value.get("async") is not True:
            return False
        self.is_read = True
        self.size = len(line)
        wanted = value.get("asyncTimeout")
        if isinstance(wanted, int | float) and wanted > 0:
            self.seconds = wanted / 1000
        return True


class HookProgram:
    """Runs a program in a thread, and tells if it moves to the background; others may stop it."""

    def __init__(
        self,
        command: str | Sequence[str],
        folder: str,
        environ: Mapping[str, str],
        on_async: Callable[[], object] = lambda: None,
    ) -> None:
        is_line = isinstance(command, str)
        self._command = [_find_shell(), "-c", command] if is_line else list(command)
        self._folder = folder
        self._environ = environ
        self._on_async = on_async
        self._stopped = threading.Event()

    def stop(self) -> None:
        self._stopped.set()

    def run(self, data: bytes, seconds: float) -> ProgramEnding:
        if self._stopped.is_set():
            return ProgramEnding(failure="it was stopped")
        try:
            process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=self._folder,
                env=dict(self._environ),
                start_new_session=True,
                bufsize=0,
            )
        except (OSError, ValueError) as error:
            return ProgramEnding(failure=f"it cannot be started: {error}")
        pipes = _Pipes(process, data)
        try:
            announcement = Announcement()
            failure = self._wait(process, pipes, announcement, seconds)
            if failure:
                _kill_group(process)
            return ProgramEnding(
                None if failure else process.returncode,
                bytes(pipes.outputs[process.stdout])[announcement.size :],
                bytes(pipes.outputs[process.stderr]),
                failure,
            )
        finally:
            pipes.close()

    def _wait(
        self,
        process: subprocess.Popen[bytes],
        pipes: _Pipes,
        announcement: Announcement,
        seconds: float,
    ) -> str:
        """Wait for the program to end; return "", or why it must be killed."""
        deadline = time.monotonic() + seconds
        output = pipes.outputs[process.stdout]
        while True:
            pipes.transfer(_CHECK_SECONDS)
            if not announcement.is_read and announcement.read(output):
                seconds = announcement.seconds or seconds
                deadline = time.monotonic() + seconds
                self._on_async()
            if process.poll() is not None:
                rest = time.monotonic() + _REST_SECONDS
                while pipes.is_open and time.monotonic() < rest:
                    pipes.transfer(_CHECK_SECONDS)
                return ""
            if self._stopped.is_set():
                return "it was stopped"
            if time.monotonic() >= deadline:
                return f"it did not end within {seconds:g} s"


@cache
def _find_shell() -> str:
    """Find the shell for a command line; those in settings files are written for bash."""
    return shutil.which("bash") or "/bin/sh"


class _Pipes:
    """A program's pipes; it may close any of them without error."""

    def __init__(self, process: subprocess.Popen[bytes], data: bytes) -> None:
        self._process = process
        self._data = memoryview(data)
        self._selector = selectors.DefaultSelector()
        self.outputs: dict[IO[bytes] | None, bytearray] = {
            process.stdout: bytearray(),
            process.stderr: bytearray(),
        }
        for stream in (process.stdin, process.stdout, process.stderr):
            assert stream is not None
            os.set_blocking(stream.fileno(), False)
            kind = selectors.EVENT_WRITE if stream is process.stdin else selectors.EVENT_READ
            self._selector.register(stream, kind)

    @property
    def is_open(self) -> bool:
        return any(stream and not stream.closed for stream in self.outputs)

    def transfer(self, seconds: float) -> None:
        if not self._selector.get_map():
            # The program is probably about to end: `wait` checks after half a millisecond.
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(seconds)
            return
        for key, _ in self._selector.select(seconds):
            stream = key.fileobj
            if stream is self._process.stdin:
                self._write()
            else:
                self._read(cast("IO[bytes]", stream))

    def _write(self) -> None:
        stream = self._process.stdin
        assert stream is not None
        try:
            self._data = self._data[os.write(stream.fileno(), self._data[:_CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:
            self._data = self._data[:0]
        if not self._data:
            self._end(stream)

    def _read(self, stream: IO[bytes]) -> None:
        try:
            chunk = os.read(stream.fileno(), _CHUNK)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self._end(stream)
            return
        output = self.outputs[stream]
        output += chunk[: MAX_OUTPUT - len(output)]

    def _end(self, stream: IO[bytes]) -> None:
        self._selector.unregister(stream)
        with suppress(OSError):
            stream.close()

    def close(self) -> None:
        for stream in (self._process.stdin, *self.outputs):
            if stream is not None and not stream.closed:
                self._end(stream)
        self._selector.close()


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):
        process.wait(_KILL_SECONDS)
