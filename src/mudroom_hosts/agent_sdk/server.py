"""AgentSdkServer: reads and serves the host's lines until the host closes the connection."""

from __future__ import annotations

import asyncio
import json
import select
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, cast

from mudroom.errors import MudroomError, UsageError

from ..json_values import as_object
from .channel import ControlChannel
from .host import Host
from .prompt_loop import UserLine, parse_user_line
from .setup import PrepareSession, SdkOptions, parse_setup

_CHECK_SECONDS = 0.5
"""Seconds between checks that the host is still reading, once it has stopped writing."""


class AgentSdkServer:
    """One host, the requests it sends, and the session it drives."""

    def __init__(
        self,
        prepare: PrepareSession,
        options: SdkOptions,
        write: Callable[[bytes], None],
        notify: Callable[[str], object],
    ) -> None:
        self._prepare = prepare
        self._options = options
        self._notify = notify
        self._channel = ControlChannel(write)
        self._host: Host | None = None
        self._opened: asyncio.Future[Host | None] = asyncio.get_running_loop().create_future()
        self._is_opening = False
        self._has_ended = False
        self._early_lines: list[UserLine] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def serve(self, lines: AsyncIterator[bytes], output: int | None = None) -> None:
        """Serve the host until its input ends and the prompts have run.

        Work stops once nobody reads `output`, the descriptor of the pipe to the host. Raises
        MudroomError if the session cannot be opened or recorded.
        """
        reading = asyncio.create_task(self._read(lines, output))
        try:
            host = await self._opened
            if host:
                await host.prompts.run()
        finally:
            self._channel.close()
            tasks = [reading, *self._tasks.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            if self._host:
                await self._host.hosted.close()

    def stop(self) -> bool:
        """Stop the work and the server. Return False if no prompt is running."""
        self._end_input()
        return self._host is not None and self._host.stop_all()

    def pause(self) -> bool:
        """Stop the work so that a later process can continue it. Return False if idle."""
        is_working = self._host is not None and self._host.hosted.driver.pause()
        self.stop()
        return is_working

    async def _read(self, lines: AsyncIterator[bytes], output: int | None) -> None:
        try:
            async for line in lines:
                self._dispatch(line)
        finally:
            self._end_input()
        if output is not None:
            await _wait_until_abandoned(output)
            self.stop()

    def _end_input(self) -> None:
        self._has_ended = True
        self._channel.close()
        if self._host:
            self._host.prompts.end()
        elif not self._is_opening and not self._opened.done():
            self._opened.set_result(None)

    def _dispatch(self, data: bytes) -> None:
        """Handle a line from the host. Skip an unreadable one with a notice."""
        if not data.strip():
            return
        try:
            line = json.loads(data)
            if not isinstance(line, dict):
                raise UsageError("it is no JSON object")
            self._handle(cast("dict[str, Any]", line))
        except (MudroomError, ValueError, RecursionError) as error:
            self._notify(f"a line on stdin is not used: {error}")

    def _handle(self, line: dict[str, Any]) -> None:
        match line.get("type"):
            case "user":
                self._add_prompt(parse_user_line(line))
            case "control_request":
                self._start_answer(line)
            case "control_response" if isinstance(line.get("response"), dict):
                self._channel.receive_response(line["response"])
            case "control_cancel_request":
                if task := self._tasks.get(str(line.get("request_id"))):
                    task.cancel()
            case "keep_alive":
                pass
            case kind:
                raise UsageError(f"mudroom knows no line of type {kind}")

    def _add_prompt(self, line: UserLine) -> None:
        if self._host:
            self._host.prompts.add(line)
            return
        self._early_lines.append(line)
        if not self._is_opening:
            self._is_opening = True
            self._start_task("open", self._open({}))

    def _start_answer(self, line: Mapping[str, Any]) -> None:
        request_id = str(line.get("request_id", ""))
        request = as_object(line.get("request"))
        if request.get("subtype") == "initialize" and not self._is_opening:
            self._is_opening = True
            self._start_task(request_id, self._initialize(request_id, request))
        else:
            self._start_task(request_id, self._answer(request_id, request))

    def _start_task(self, key: str, work: Any) -> None:  # noqa: ANN401
        task = asyncio.create_task(work)
        self._tasks[key] = task
        task.add_done_callback(lambda _: self._tasks.pop(key, None))

    async def _initialize(self, request_id: str, request: Mapping[str, Any]) -> None:
        try:
            host = await self._open(request)
        except MudroomError as error:
            self._channel.answer_error(request_id, str(error))
            return
        self._channel.answer(request_id, host.describe(), pending_permission_requests=[])

    async def _open(self, request: Mapping[str, Any]) -> Host:
        # An error also ends the server.
        setup = parse_setup(request, self._options.servers)
        for name in setup.unused:
            self._notify(f"not used by mudroom: {name} of the SDK's initialize")
        host = Host(self._channel, self._prepare, self._options, setup, self._notify)
        try:
            await host.hosted.open()
        except Exception as error:
            self._opened.set_exception(error)
            raise
        self._host = host
        for line in self._early_lines:
            host.prompts.add(line)
        self._early_lines.clear()
        if self._has_ended:
            host.prompts.end()
        if not self._opened.done():
            self._opened.set_result(host)
        return host

    async def _answer(self, request_id: str, request: Mapping[str, Any]) -> None:
        try:
            host = await asyncio.shield(self._opened)
            if host is None:
                raise UsageError("no session is open")
            if request.get("subtype") == "initialize":  # again: the first one counts
                answer = {**host.describe(), "hooks_applied": False}
            else:
                answer = await host.answer(request)
            self._channel.answer(request_id, answer)
        except MudroomError as error:
            self._channel.answer_error(request_id, str(error))
        except Exception as error:  # noqa: BLE001  (the host waits for an answer regardless)
            self._channel.answer_error(request_id, f"{type(error).__name__}: {error}")


async def _wait_until_abandoned(output: int) -> None:
    poll = select.poll()
    poll.register(output, 0)
    while not poll.poll(0):  # noqa: ASYNC110  (no event reports it)
        await asyncio.sleep(_CHECK_SECONDS)
