"""CallContext: the parts of a run that a tool may use during one call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict, replace

from .._core.agents import WorkspaceKind
from .._core.events import FileWriteIntended
from .._core.messages import ToolCallBlock
from .._core.ports import ApprovalDecision, ApprovalRequest, Workspace
from .._core.ports.approval import InputForm
from .._core.runs import join_run_id
from .._core.tool_names import normalize_tool_name
from .._core.tools import ToolResult, clean_result
from .._platform.private_files import make_spill_file
from .changes.watch import ChangeWindow, WriteWindow, explain_unwatched
from .evidence import CallWindow
from .file_writes import (
    FileWrite,
    RecordedWorkspace,
    find_mode,
    hash_entry,
    run_from_any_thread,
)
from .mcp_tools import ask_approver
from .run_context import RunContext

if TYPE_CHECKING:  # only landings load it
    from .changes.merged_files import MergedWrite, RecordWrites

_MAX_SHOWN = 2_000  # characters at the end of a call's output that screens get


class CallWrites:
    """The file writes of one call. Each is recorded before it happens.

    Holds no reference to the call context, so that no cycle keeps it in memory. `is_in_background`
    is set when the call continues after its result.
    """

    def __init__(self, run: RunContext, call_id: str) -> None:
        self.paths: list[str] = []
        self.is_in_background = False
        self._run = run
        self._call_id = call_id
        self._barrier = run.control.barrier
        self._before: dict[str, bytes | None] = {}

    def open_workspace(self) -> RecordedWorkspace:
        inner = self._run.environment.workspace
        return RecordedWorkspace(inner, self._before_write, self._after_write)

    @contextmanager
    def open_landing(self) -> Generator[RecordWrites]:
        """Let a merge write many files, recorded with a single append to the journal.

        Yields the function that records them, and keeps the run from ending meanwhile. Raises
        WorkspaceError if it has already ended.
        """
        loop = self._barrier.loop
        run_from_any_thread(loop, self._enter, lambda: self._barrier.enter(""))
        recorded: list[str] = []
        is_written = False
        try:
            yield lambda writes: self._record_all(writes, recorded)
            is_written = True
        finally:
            for path in recorded:
                self._end_write(path, is_written=is_written)
            run_from_any_thread(loop, self._leave_barrier, self._barrier.leave)

    def _record_all(self, writes: Sequence[MergedWrite], recorded: list[str]) -> None:
        recorder = self._run.recorder
        workspace = self._run.environment.workspace
        events: list[FileWriteIntended] = []
        for path, after, executable in writes:
            before = hash_entry(workspace, path)
            old_mode = find_mode(workspace, path, before)
            events.append(self._make_event(FileWrite(path, before, after, old_mode, executable)))
        run_from_any_thread(
            self._barrier.loop,
            lambda: recorder.record(*events),
            lambda: [recorder.record_later(event) for event in events],
        )
        for event in events:
            self._start_write(event.path, event.before)
            recorded.append(event.path)

    def _before_write(self, write: FileWrite) -> None:
        event = self._make_event(write)
        run_from_any_thread(
            self._barrier.loop,
            lambda: self._record(event),
            lambda: self._run.recorder.record_later(event),
        )
        self._start_write(write.path, write.before)

    def _make_event(self, write: FileWrite) -> FileWriteIntended:
        recorder = self._run.recorder
        return recorder.make_event(FileWriteIntended, call_id=self._call_id, **asdict(write))

    def _start_write(self, path: str, before: str) -> None:
        run = self._run
        workspace = run.environment.workspace
        is_shared = run.brief.workspace.kind is WorkspaceKind.SHARED
        if (versions := run.services.versions) and is_shared:
            versions.keep(workspace, path, before)
        overlaps = run.services.live_overlaps
        if overlaps is not None and is_shared:
            self._before[path] = overlaps.read_before(run.run_id, workspace, path, before)
        if watch := run.services.change_watch:
            watch.start_write(workspace.root, path)

    async def _record(self, event: FileWriteIntended) -> None:
        """Store, on the event loop, the intent of a write by another thread.

        Raises WorkspaceError if the run has ended.
        """
        await self._enter(event.path)
        try:
            await self._run.recorder.record(event)
        except BaseException:
            self._barrier.leave()
            raise

    async def _enter(self, path: str = "") -> None:
        if self.is_in_background:
            self._barrier = self._run.control.barrier  # an interrupt does not stop this work
        self._barrier.enter(path)

    def _after_write(self, path: str, is_written: bool) -> None:
        self._end_write(path, is_written=is_written)
        run_from_any_thread(self._barrier.loop, self._leave_barrier, lambda: None)

    def _end_write(self, path: str, *, is_written: bool) -> None:
        run = self._run
        workspace = run.environment.workspace
        if watch := run.services.change_watch:
            watch.end_write(workspace.root, path)
        if is_written:
            self.paths.append(path)
            overlaps = run.services.live_overlaps
            if path in self._before and overlaps is not None:
                overlaps.add_write(run.run_id, workspace, path, self._before.pop(path))

    async def _leave_barrier(self) -> None:
        self._barrier.leave()


class CallContext:
    """The port ToolContext for one call.

    `call` is None outside a call, for `Tool.make_reminder`. `position` is the number of the call in
    its answer, from 1, or the last part of the id of a run started by the engine.
    """

    def __init__(
        self,
        run: RunContext,
        call: ToolCallBlock | None = None,
        position: int | str = 0,
        turn: int | None = None,
    ) -> None:
        self.run = run
        self.call = call
        self.position = position
        self.run_id = run.brief.run_id
        self.turn = run.turn.number if turn is None else turn
        self.memo = run.memo
        self.sandbox = run.environment.sandbox
        self.redact = run.services.redact
        self.call_id = call.id if call else ""
        self._writes = CallWrites(run, self.call_id)
        self._workspace: Workspace | None = None

    @property
    def writes(self) -> list[str]:
        return self._writes.paths

    @property
    def place(self) -> str:
        """Run, turn and position of the call, which together identify the work it starts."""
        return join_run_id(self.run_id, self.turn, self.position)

    @property
    def run_name(self) -> str:
        return self.run.brief.name

    @property
    def agent_name(self) -> str:
        return self.run.brief.agent.name

    @property
    def call_key(self) -> str:
        return f"{self.run.services.session}#{self.run_id}#{self.turn}.{self.position}"

    @property
    def traceparent(self) -> str:
        """Header `traceparent` for requests of the call, "" without traces."""
        ids = self.run.services.trace_ids
        return ids.make_call_traceparent(self.run_id, self.call.id) if ids and self.call else ""

    @property
    def workspace(self) -> Workspace:
        """The files the tool may read; each write is recorded before it happens."""
        if self._workspace is None:
            workspace: Workspace = self._writes.open_workspace()
            if self.call is not None:
                policy = self.run.environment.policy
                tool = normalize_tool_name(self.call.name)
                workspace = policy.filter_workspace(workspace, tool, self.run.brief)
            self._workspace = workspace  # set last: another thread must not get it unfiltered
        return self._workspace

    def spill_path(self, name: str) -> str:
        """Create a file outside the workspace, readable by the `read` tool; return its path."""
        folder = self.run.services.spill_folder
        return make_spill_file(folder, f"{self.run_id}-{self.turn}.{self.position}-{name}")

    def show_progress(self, line: str) -> None:
        name = self.call.name if self.call else ""
        self.run.recorder.show_delta("progress", self.redact(f"{name}: {line}"))

    def show_output(self, text: str) -> None:
        """Show the last lines of the output so far, and keep it as the result of a cut-off call."""
        text = self.redact(text)
        if self.call:
            self.run.turn.outputs[self.call_id] = text
        self.run.recorder.show_delta("output", text[-_MAX_SHOWN:].rstrip(), self.call_id)

    async def ask_user(self, form: InputForm) -> ApprovalDecision:
        brief = self.run.brief
        request = ApprovalRequest(
            brief.run_id,
            brief.agent.name,
            self.call.name if self.call else "",
            self.call.arguments if self.call else {},
            form.message,
            self.call_id,
            name=brief.name,
            form=form,
        )
        with self.run.meter.pause():
            return await ask_approver(self.run.services, self.run.recorder, request, form)

    def run_in_background(self, title: str, work: Coroutine[Any, Any, ToolResult]) -> ToolResult:
        tool = self.run.tools.get(normalize_tool_name(self.call.name)) if self.call else None
        unwatched = explain_unwatched(tool, self.sandbox.tier) if tool else ""

        def start() -> None:
            self._writes.is_in_background = True
            observed = _observe(self.run, work, unwatched=unwatched)
            self.run.background.add_command(self.place, title, observed)

        async def start_on_loop() -> None:
            start()

        run_from_any_thread(self.run.control.barrier.loop, start_on_loop, start)
        return _make_start_result(self.place)

    async def run_detachable(
        self,
        title: str,
        work: Coroutine[Any, Any, ToolResult],
        on_detach: Callable[[], object],
    ) -> ToolResult:
        run = self.run
        task = asyncio.create_task(work)
        released: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        waited_for = run.background.waited_for
        waited_for[self.place] = lambda: released.done() or released.set_result(True)
        try:
            await asyncio.wait((task, released), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait((task,))
            if not task.cancelled():
                task.exception()  # read it, or asyncio logs it as never retrieved
            raise
        finally:
            del waited_for[self.place]
        if task.done():
            return task.result()
        self._writes.is_in_background = True
        on_detach()
        # The window of the call stays open until the end of the work.
        window = run.evidence.open_windows.get(self.call_id)
        run.evidence.open_windows[self.call_id] = WriteWindow(())
        run.background.add_command(self.place, title, _observe(run, _wait_for(task), window))
        return _make_start_result(self.place)


STARTED = (
    "Started {id} in the background. A task-notification comes when it ends; you know nothing of "
    "its result before."
)

_STOPPED = "It was stopped."


def _make_start_result(work_id: str) -> ToolResult:
    return ToolResult(STARTED.format(id=work_id), detail={"command": work_id, "background": True})


async def _wait_for(task: asyncio.Task[ToolResult]) -> ToolResult:
    return await task


async def _observe(
    run: RunContext,
    work: Coroutine[Any, Any, ToolResult],
    window: CallWindow | None = None,
    *,
    unwatched: str = "",
) -> ToolResult:
    """Wait for the work; return its result with the files that changed meanwhile.

    Returns a result even if the work is cancelled or fails. Opens a window of its own unless it
    gets the one of the call that started the work.
    """
    watch = run.services.change_watch
    try:
        if window is None and watch:
            window = new = ChangeWindow(watch, run.environment.workspace, (), run.run_id, unwatched)
            await new.start()
        result = await work
    except asyncio.CancelledError:
        result = ToolResult(_STOPPED, error=True)
    except Exception as error:  # noqa: BLE001  the notification states any failure
        result = ToolResult(f"It failed: {type(error).__name__}: {error}", error=True)
    finally:
        work.close()
    if window:
        result = await window.close(result)
    result = clean_result(replace(result, text=run.services.redact(result.text)))
    run.evidence.add_files(result)
    return result
