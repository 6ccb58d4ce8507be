"""Following: a host's call that waits for tasks, reports progress and asks the user.

Import this module late: it imports the package `mcp`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import anyio
import mcp_types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

from mudroom import ApprovalDecision
from mudroom.driving import Question

from .approver import CANNOT_ASK, describe_question, get_form, read_answer
from .host_tasks import OWNER_KEY, HostTask, Owner

DEFAULT_WAIT = 45.0
"""Seconds that a call waits if its host receives no progress: hosts give up after 60."""
_SHORTEST_PAUSE = 0.25  # minimum seconds between progress messages

Context = ServerRequestContext[Any, Any]


class Following:
    """A host's call that waits for tasks.

    If no wait is given, waits without limit if the host receives progress, else for DEFAULT_WAIT.
    """

    def __init__(
        self,
        context: Context,
        tasks: Sequence[HostTask],
        wait: float | None,
        *,
        heartbeat: float,
        can_answer: bool = True,
    ) -> None:
        self._context = context
        self._can_answer = can_answer
        self._tasks = tasks
        self._heartbeat = heartbeat
        self._has_token = bool(context.meta) and "progress_token" in (context.meta or {})
        if wait is None and not self._has_token:
            wait = DEFAULT_WAIT
        now = asyncio.get_running_loop().time()
        self._deadline = float("inf") if wait is None else now + wait
        self._changed = asyncio.Event()
        self._progress = 0
        self._last_sent = float("-inf")
        self._asking: set[asyncio.Task[None]] = set()

    async def run(self) -> list[Question]:
        """Wait for the tasks. Return the questions to answer before the host repeats the call."""
        for task in self._tasks:
            task.watchers.add(self._changed)
        try:
            loop = asyncio.get_running_loop()
            while self._has_open_tasks and loop.time() < self._deadline:
                self._changed.clear()
                if questions := await self._ask():
                    return questions
                await self._report_progress()
                await self._wait_for_change()
            return []
        finally:
            for task in self._tasks:
                task.watchers.discard(self._changed)
            for asking in self._asking:
                asking.cancel()

    @property
    def _has_open_tasks(self) -> bool:
        return not all(task.has_ended for task in self._tasks)

    async def _wait_for_change(self) -> None:
        loop = asyncio.get_running_loop()
        seconds = max(0.0, min(self._heartbeat, self._deadline - loop.time()))
        with anyio.move_on_after(seconds):
            await self._changed.wait()
            pause = self._last_sent + _SHORTEST_PAUSE - loop.time()
            if self._has_token and pause > 0 and self._has_open_tasks:
                await asyncio.sleep(pause)

    async def _report_progress(self) -> None:
        if not self._has_token:
            return
        self._last_sent = asyncio.get_running_loop().time()
        self._progress += 1
        await self._context.session.report_progress(self._progress, None, self._describe())

    def _describe(self) -> str:
        if len(self._tasks) == 1:
            return self._tasks[0].describe_progress()
        ended = sum(task.has_ended for task in self._tasks)
        turns = sum(task.turns for task in self._tasks)
        return f"{ended} of {len(self._tasks)} tasks have ended, {turns:,} requests"

    async def _ask(self) -> list[Question]:
        """Bring open questions to the user; return those to send with the result."""
        session = self._context.session
        can_bring = self._can_answer and can_ask(session.client_capabilities)
        questions: list[Question] = []
        for task in self._tasks:
            for question in task.questions.values():
                if question.is_sent or not question.is_open:
                    continue
                if can_bring:
                    question.is_sent = True
                    questions.append(question)
                elif not task.can_ask:  # otherwise another of its host's connections may ask
                    question.answer(CANNOT_ASK)
        if not session.can_send_request:
            return questions
        for question in questions:
            asking = asyncio.create_task(self._elicit(question))
            self._asking.add(asking)
            asking.add_done_callback(self._asking.discard)
        return []

    async def _elicit(self, question: Question) -> None:
        """Send a question to a host using the older revision, and take its answer."""
        try:
            result = await self._context.session.elicit_form(
                describe_question(question), get_form(question), self._context.request_id
            )
            answer_question(question, result)
        except asyncio.CancelledError:
            question.is_sent = False  # a later call asks again
            raise
        except Exception as error:  # noqa: BLE001  (hosts may answer anything)
            question.answer(ApprovalDecision(False, f"the MCP host could not ask: {error}"))


def get_owner(context: Context) -> Owner:
    """Find who sent a request: the owner of its token, or of the server."""
    request = context.request
    owner = context.lifespan_context if request is None else request.scope.get(OWNER_KEY)
    if not isinstance(owner, Owner):
        raise MCPError(mcp_types.INVALID_REQUEST, "the request has no owner")
    return owner


def can_ask(capabilities: mcp_types.ClientCapabilities | None) -> bool:
    """Return whether a host can show its user a form."""
    elicitation = capabilities.elicitation if capabilities else None
    if elicitation is None:
        return False
    return elicitation.form is not None or elicitation.url is None


def make_input_request(question: Question) -> mcp_types.ElicitRequest:
    """Make a question as hosts using the newer revision receive it, with a call's result."""
    params = mcp_types.ElicitRequestFormParams(
        message=describe_question(question), requested_schema=get_form(question)
    )
    return mcp_types.ElicitRequest(params=params)


def answer_question(question: Question, response: object) -> None:
    if isinstance(response, mcp_types.ElicitResult):
        question.answer(read_answer(question, response.action, response.content))
    else:
        question.answer(ApprovalDecision(False, "the MCP host gave no answer"))
