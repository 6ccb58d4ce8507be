"""CallContext: the parts of a run that a tool may use during one call."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from .._core.agents import WorkspaceKind
from .._core.events import FileWriteIntended
from .._core.messages import ToolCallBlock
from .._core.ports import Workspace
from .._core.run_ids import join_run_id
from .._core.tool_names import normalize_tool_name
from .._core.tools import ToolResult
from .._platform.private_files import write_private_file
from .background_commands import run_detachable, start_command
from .file_writes import RecordedWorkspace, run_from_any_thread
from .run_context import RunContext


class CallContext:
    """The port ToolContext for one call.

    Arguments:
        call: None outside of a call, for `Tool.make_reminder`.
        position: number of the call in its answer, from 1; or the last part of the id of a run that
            the engine begins.
        turn: turn of the call; None for the current one.

    Attributes:
        writes: files that the call wrote.
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
        self.writes: list[str] = []
        self.run_id = run.brief.run_id
        self.turn = run.turn if turn is None else turn
        self.memo = run.memo
        self.sandbox = run.environment.sandbox
        self.redact = run.services.redact
        self._barrier = run.control.barrier
        self._is_in_background = False
        self._workspace: Workspace | None = None
        self._before: dict[str, bytes | None] = {}

    @property
    def place(self) -> str:
        """Run, turn and position of the call: the id of the work that it starts."""
        return join_run_id(self.run_id, self.turn, self.position)

    @property
    def run_name(self) -> str:
        """Name of the run if it is a named child, else ""."""
        return self.run.brief.name

    @property
    def agent_name(self) -> str:
        """Name of the agent of the run."""
        return self.run.brief.agent.name

    @property
    def call_key(self) -> str:
        """Session, run, turn and position of the call."""
        return f"{self.run.services.session}#{self.run_id}#{self.turn}.{self.position}"

    @property
    def workspace(self) -> Workspace:
        """The files that the tool may read; each write is recorded before it happens."""
        if self._workspace is None:
            self._workspace = self._make_workspace()
        return self._workspace

    def _make_workspace(self) -> Workspace:
        environment = self.run.environment
        recorded = RecordedWorkspace(environment.workspace, self._before_write, self._after_write)
        if self.call is None:
            return recorded
        tool = normalize_tool_name(self.call.name)
        return environment.policy.filter_workspace(recorded, tool, self.run.brief)

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return self._barrier.loop

    @property
    def _is_in_shared_folder(self) -> bool:
        return self.run.brief.workspace.kind is WorkspaceKind.SHARED

    def spill_path(self, name: str) -> str:
        """Create a file outside the workspace that the `read` tool can read; return its path."""
        folder = self.run.services.spill_folder
        os.makedirs(folder, mode=0o700, exist_ok=True)
        path = os.path.join(folder, f"{self.run_id}-{self.turn}.{self.position}-{name}.txt")
        write_private_file(Path(path), b"")
        return path

    def run_in_background(self, title: str, work: Coroutine[Any, Any, ToolResult]) -> ToolResult:
        """Run work after the call has returned; return the result of the call; see the port."""
        results: list[ToolResult] = []

        def start() -> None:
            self._is_in_background = True
            results.append(start_command(self.run, self.place, title, work))

        async def start_on_loop() -> None:
            start()

        run_from_any_thread(self._loop, start_on_loop, start)
        return results[0]

    async def run_detachable(
        self,
        title: str,
        work: Coroutine[Any, Any, ToolResult],
        on_detach: Callable[[], object],
    ) -> ToolResult:
        """Run work that may go on in the background; see the port."""
        call_id = self.call.id if self.call else ""

        def detach() -> None:
            self._is_in_background = True
            on_detach()

        return await run_detachable(self.run, self.place, call_id, title, work, detach)

    def _before_write(self, path: str, before: str, after: str) -> None:
        recorder = self.run.recorder
        event = recorder.make_event(
            FileWriteIntended,
            call_id=self.call.id if self.call else "",
            path=path,
            before=before,
            after=after,
        )
        run_from_any_thread(
            self._loop, lambda: self._record_write(event), lambda: recorder.record_later(event)
        )
        workspace = self.run.environment.workspace
        if (versions := self.run.services.versions) and self._is_in_shared_folder:
            versions.keep(workspace, path, before)
        overlaps = self.run.services.live_overlaps
        if overlaps is not None and self._is_in_shared_folder:
            self._before[path] = overlaps.read_before(self.run_id, workspace, path, before)
        if watch := self.run.services.change_watch:
            watch.start_write(self.run.environment.workspace.root, path)

    async def _record_write(self, event: FileWriteIntended) -> None:
        """Store the intent of a write in another thread.

        Raises WorkspaceError if the run has ended.
        """
        if self._is_in_background:
            self._barrier = self.run.control.barrier  # an interrupt does not stop this work
        self._barrier.enter(event.path)
        try:
            await self.run.recorder.record(event)
        except BaseException:
            self._barrier.leave()
            raise

    def _after_write(self, path: str, is_written: bool) -> None:
        if watch := self.run.services.change_watch:
            watch.end_write(self.run.environment.workspace.root, path)
        if is_written:
            self.writes.append(path)
            overlaps = self.run.services.live_overlaps
            if path in self._before and overlaps is not None:
                workspace = self.run.environment.workspace
                overlaps.add_write(self.run_id, workspace, path, self._before.pop(path))
        run_from_any_thread(self._loop, self._leave_barrier, lambda: None)

    async def _leave_barrier(self) -> None:
        self._barrier.leave()
