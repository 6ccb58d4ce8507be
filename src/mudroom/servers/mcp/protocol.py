"""Handlers of the package `mcp`, which speaks both revisions of the protocol.

Import this module late and in a thread: it imports the package, which takes about a second.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import mcp_types
from mcp.server.caching import CacheHint
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from msgspec import Struct

from ..._version import __version__
from ...errors import MudroomError
from .following import Context, Following, answer_question, make_input_request
from .host_task import HostTask, Question
from .host_tasks import HEARTBEAT, HostTasks
from .results import AnswerMaker, ToolAnswer
from .task_request import (
    CancelArguments,
    LookArguments,
    ManyArguments,
    NoArguments,
    ResultArguments,
    TaskArguments,
    parse_arguments,
)
from .tool_definitions import INSTRUCTIONS, TOOLS, ToolDefinition

CallResult = mcp_types.CallToolResult | mcp_types.InputRequiredResult
_LIST_TTL = 3_600_000
"""Milliseconds that hosts may keep the list of tools; it never changes."""
_MAX_STATES = 1_000
"""Calls that wait for their repetition with the answers of the user."""

logging.getLogger("mcp").addHandler(logging.NullHandler())  # else Python prints to the terminal


class _Repetition(Struct, frozen=True):
    """A call that its host repeats with answers. `describe`: makes its result."""

    calls: Sequence[HostTask]
    questions: Sequence[Question]
    describe: Callable[[], ToolAnswer]
    wait: float | None


class McpProtocol:
    """The requests of hosts, answered with the tasks of the server.

    Arguments:
        heartbeat: seconds between two messages about progress if nothing happens.
    """

    def __init__(
        self, calls: HostTasks, answers: AnswerMaker, *, heartbeat: float = HEARTBEAT
    ) -> None:
        self._calls = calls
        self._answers = answers
        self._heartbeat = heartbeat
        self._repetitions: dict[str, _Repetition] = {}
        self._tools: dict[str, Callable[[Context, dict[str, Any]], Awaitable[CallResult]]] = {
            "task": self._run_task,
            "task_many": self._run_many,
            "look": self._look,
            "agents": self._list_agents,
            "task_result": self._get_result,
            "task_cancel": self._cancel,
        }

    def make_server(self) -> Server[Any]:
        """Return the server of the package, for any number of connections."""
        return Server(
            "mudroom",
            version=__version__,
            title="mudroom",
            instructions=INSTRUCTIONS,
            cache_hints={"tools/list": CacheHint(_LIST_TTL, "public")},
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
        )

    async def _list_tools(
        self, _: Context, __: mcp_types.PaginatedRequestParams | None
    ) -> mcp_types.ListToolsResult:
        return mcp_types.ListToolsResult(tools=[_convert_tool(tool) for tool in TOOLS])

    async def _call_tool(
        self, context: Context, params: mcp_types.CallToolRequestParams
    ) -> CallResult:
        try:
            if params.request_state is not None:
                return await self._repeat(context, params)
            if params.name not in self._tools:
                raise MCPError(mcp_types.INVALID_PARAMS, f"Unknown tool: {params.name}")
            return await self._tools[params.name](context, params.arguments or {})
        except MudroomError as error:
            return _convert_answer(ToolAnswer(str(error), {}, True))

    async def _run_task(self, context: Context, arguments: dict[str, Any]) -> CallResult:
        request = parse_arguments(TaskArguments, arguments, "task")
        call = self._calls.start(request)
        return await self._follow(
            context, [call], lambda: self._answers.describe(call), request.wait
        )

    async def _run_many(self, context: Context, arguments: dict[str, Any]) -> CallResult:
        request = parse_arguments(ManyArguments, arguments, "task_many")
        calls = self._calls.start_many(request.tasks, request.limit)
        return await self._follow(
            context, calls, lambda: self._answers.describe_many(calls), request.wait
        )

    async def _look(self, context: Context, arguments: dict[str, Any]) -> CallResult:
        request = parse_arguments(LookArguments, arguments, "look")
        call = self._calls.start_look(request)
        return await self._follow(
            context, [call], lambda: self._answers.describe(call), request.wait
        )

    async def _list_agents(self, _: Context, arguments: dict[str, Any]) -> CallResult:
        parse_arguments(NoArguments, arguments, "agents")
        lines = [
            f"{agent.name}: {(agent.description.splitlines() or [''])[0]}"
            for agent in self._calls.session.agents
        ]
        return _convert_answer(ToolAnswer("\n".join(lines), {}))

    async def _get_result(self, context: Context, arguments: dict[str, Any]) -> CallResult:
        request = parse_arguments(ResultArguments, arguments, "task_result")
        if request.task is None:
            return _convert_answer(self._answers.list_calls(self._calls.list_calls()))
        call = self._calls.find(request.task)
        return await self._follow(
            context,
            [call],
            lambda: self._answers.describe(call),
            request.wait,
            cancels=False,
        )

    async def _cancel(self, _: Context, arguments: dict[str, Any]) -> CallResult:
        request = parse_arguments(CancelArguments, arguments, "task_cancel")
        call = self._calls.find(request.task)
        await self._calls.cancel([call])
        return _convert_answer(self._answers.describe(call))

    async def _repeat(
        self, context: Context, params: mcp_types.CallToolRequestParams
    ) -> CallResult:
        """Continue a call with the answers of the user."""
        repetition = self._repetitions.pop(str(params.request_state), None)
        if repetition is None:
            raise MCPError(mcp_types.INVALID_PARAMS, "Unknown requestState")
        responses = params.input_responses or {}
        for question in repetition.questions:
            answer_question(question, responses.get(question.id))
        return await self._follow(context, repetition.calls, repetition.describe, repetition.wait)

    async def _follow(
        self,
        context: Context,
        calls: Sequence[HostTask],
        describe: Callable[[], ToolAnswer],
        wait: float | None,
        *,
        cancels: bool = True,
    ) -> CallResult:
        """Wait for tasks and return the result of the call.

        Arguments:
            cancels: the tasks end if the host cancels the call.
        """
        following = Following(context, calls, wait, heartbeat=self._heartbeat)
        try:
            questions = await following.run()
        except asyncio.CancelledError:
            if cancels:
                with anyio.CancelScope(shield=True):
                    await self._calls.cancel(calls)
            raise
        if not questions:
            return _convert_answer(describe())
        state = secrets.token_hex(16)
        self._repetitions[state] = _Repetition(calls, questions, describe, wait)
        for old in list(self._repetitions)[:-_MAX_STATES]:
            del self._repetitions[old]
        return mcp_types.InputRequiredResult(
            input_requests={question.id: make_input_request(question) for question in questions},
            request_state=state,
        )


def _convert_tool(tool: ToolDefinition) -> mcp_types.Tool:
    return mcp_types.Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.inputs,
        output_schema=tool.outputs,
        annotations=mcp_types.ToolAnnotations(read_only_hint=True) if tool.reads_only else None,
    )


def _convert_answer(answer: ToolAnswer) -> mcp_types.CallToolResult:
    return mcp_types.CallToolResult(
        content=[mcp_types.TextContent(text=answer.text)],
        structured_content=answer.values or None,
        is_error=answer.is_error,
    )
