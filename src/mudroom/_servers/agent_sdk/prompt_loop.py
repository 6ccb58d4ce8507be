"""PromptLoop: runs the lines of the user one after the other, with a result line for each turn."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from ..._core.events import AnyEvent, RunStarted
from ..._core.messages import ImageBlock, TextBlock
from ..._core.run_ids import is_child_id
from ..._core.runs import Reason, Report
from ..._session.prompts import Prompt
from ...errors import JournalError, MudroomError, UsageError
from ..file_prompts import FilePrompt, fill_file_prompt, find_file_prompt
from .hosted_session import HostedSession
from .output import HostOutput
from .user_lines import UserLine


class PromptLoop:
    """The prompts of one host.

    A line that comes while a prompt runs becomes a message to its run. It waits for the next turn
    if it has an image, if it calls a prompt of a file, or if it says so.

    Arguments:
        keeps_background: whether an interrupt leaves background work alone.
        notify: takes a line for stderr.
    """

    def __init__(
        self,
        hosted: HostedSession,
        output: HostOutput,
        *,
        keeps_background: bool,
        notify: Callable[[str], object],
    ) -> None:
        self._hosted = hosted
        self._output = output
        self._keeps_background = keeps_background
        self._notify = notify
        self._lines: deque[UserLine] = deque()
        self._wake = asyncio.Event()
        self._has_ended = False
        self._run_id = ""
        self._uuids: list[str] = []
        self._context: list[TextBlock | ImageBlock] = []
        self.is_busy = False

    def add(self, line: UserLine) -> None:
        """Take a line of the user."""
        if not line.starts_turn:
            self._context.extend(line.blocks)
            return
        self._output.send_user(line.raw)
        if not self._send_to_run(line):
            self._lines.append(line)
            self._wake.set()

    def end(self) -> None:
        """End the loop after the lines that wait."""
        self._has_ended = True
        self._wake.set()

    def interrupt(self, *, cancels_waiting: bool = False) -> dict[str, list[str]]:
        """Stop the turn; return the ids of the lines that still wait, and of those that do not.

        Arguments:
            cancels_waiting: remove the lines that wait, too.
        """
        waiting = [line.uuid for line in self._lines if line.uuid]
        if self.is_busy:
            self._hosted.stop_turn(keeps_background=self._keeps_background)
        if not cancels_waiting:
            return {"still_queued": waiting}
        self._lines.clear()
        return {"still_queued": [], "cancelled": waiting}

    def cancel_line(self, uuid: str) -> bool:
        """Remove a line that waits. Return False if there is none with this id."""
        remaining = [line for line in self._lines if line.uuid != uuid]
        is_removed = len(remaining) < len(self._lines)
        self._lines = deque(remaining)
        return is_removed

    async def run(self) -> None:
        """Run the lines until `end`. Raises JournalError."""
        while True:
            while self._lines:
                await self._run_line(self._lines.popleft())
            self._output.set_state("idle")
            if self._has_ended:
                return
            self._wake.clear()
            await self._wake.wait()

    async def _run_line(self, line: UserLine) -> None:
        self.is_busy = True
        self._uuids = [line.uuid] if line.uuid else []
        failure: JournalError | None = None
        try:
            if line.error:
                raise UsageError(line.error)
            await self._hosted.apply_changes()
            report = await self._run_prompt(line)
        except JournalError as error:
            failure = error
            report = _describe_failure(error)
        except MudroomError as error:
            report = _describe_failure(error)
        finally:
            self.is_busy = False
            self._run_id = ""
        has_value = self._hosted.outputs is not None
        self._output.send_result(report, self._uuids, has_value=has_value)
        if failure:
            raise failure

    async def _run_prompt(self, line: UserLine) -> Report[Any]:
        session = self._hosted.session
        self._output.set_state("running")
        prompts = self._hosted.load_prompts()
        self._output.send_init(self._hosted.permissions.mode.value, prompts)
        line = _fill_line(line, prompts)
        stop_watching = session.watch(self._observe)
        prompt: Prompt = (*self._context, *line.blocks) if self._context else line.prompt
        self._context.clear()
        self._run_id = session.interrupted_run
        self._hosted.begin_prompt()
        try:
            return await session.run(prompt, outputs=self._hosted.outputs)
        finally:
            stop_watching()

    def _observe(self, event: AnyEvent) -> None:
        if isinstance(event, RunStarted) and not is_child_id(event.run):
            self._run_id = event.run

    def _send_to_run(self, line: UserLine) -> bool:
        """Send a line to the run that works. Return False if it must wait."""
        if not (self.is_busy and self._run_id and line.text) or line.waits or self._lines:
            return False
        if line.text.startswith("/") and find_file_prompt(line.text, self._hosted.load_prompts()):
            return False
        if not self._hosted.session.send(self._run_id, line.text):
            return False
        if line.uuid:
            self._uuids.append(line.uuid)
        return True


def _fill_line(line: UserLine, prompts: Mapping[str, FilePrompt]) -> UserLine:
    """Return a line with the text of the prompt that it calls. Raises UsageError."""
    if not (line.blocks and isinstance(first := line.blocks[0], TextBlock)):
        return line
    text = fill_file_prompt(first.text, prompts)
    return replace(line, blocks=(TextBlock(text), *line.blocks[1:]))


def _describe_failure(error: MudroomError) -> Report[Any]:
    return Report[Any](text="", reason=Reason.ERROR, run_id="", error=str(error))
