"""Handlers of the package `mcp`, which speaks both revisions of the protocol.

Import this module late and in a thread: it imports the package, which takes about a second.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types
from mcp.server.caching import CacheHint
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from msgspec import Struct

from ..._version import __version__
from ...errors import MudroomError
from .following import Context, Following, answer_question, can_ask, get_owner, make_input_request
from .host_task import HostTask, Owner, Question
from .host_tasks import HEARTBEAT, HostTasks
from .protocol_tasks import ProtocolTasks
from .results import AnswerMaker, ToolAnswer
from .task_methods import NO_RIGHT, TaskMethods
from .task_request import (
    CancelArguments,
    LookArguments,
    ManyArguments,
    NoArguments,
    ResultArguments,
    TaskArguments,
    parse_arguments,
)
from .task_states import accepts_tasks
from .tool_definitions import INSTRUCTIONS, TOOLS, ToolDefinition

CallResult = mcp_types.CallToolResult | mcp_types.InputRequiredResult | dict[str, Any]
_LIST_TTL = 3_600_000
"""Milliseconds that hosts may keep the list of tools; it never changes."""
_MAX_STATES = 1_000
"""Calls that wait for their repetition with the answers of the user."""

logging.getLogger("mcp").addHandler(logging.NullHandler())  # else Python prints to the terminal


class _Repetition(Struct, frozen=True):
    """A call that its host repeats with answers.

    Arguments:
        describe: makes its result.
        cancels: the tasks end if the host cancels the call.
    """

    owner: str
    tasks: Sequence[HostTask]
    questions: Sequence[Question]
    describe: Callable[[], ToolAnswer]
    wait: float | None
    cancels: bool


class McpProtocol:
    """The requests of hosts, answered with the tasks of the server.

    Arguments:
        protocol_tasks: for hosts that declare tasks of the protocol.
        heartbeat: seconds between two messages about progress if nothing happens.
    """

    def __init__(
        self,
        host_tasks: HostTasks,
        answers: AnswerMaker,
        protocol_tasks: ProtocolTasks,
        *,
        heartbeat: float = HEARTBEAT,
    ) -> None:
        self._host_tasks = host_tasks
        self._protocol_tasks = protocol_tasks
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

    def make_server(self, owner: Owner | None) -> Server[Any]:
        """Return the server of the package, for any number of connections.

        Arguments:
            owner: of requests that did not come over HTTP; None refuses them.
        """

        @asynccontextmanager
        async def use_owner(_: Server[Any]) -> AsyncGenerator[Owner | None]:
            yield owner

        server: Server[Any] = Server(
            "mudroom",
            version=__version__,
            title="mudroom",
            instructions=INSTRUCTIONS,
            lifespan=use_owner,
            cache_hints={"tools/list": CacheHint(_LIST_TTL, "public")},
            on_list_tools=self._list_tools,
        )
        server.add_request_handler("tools/call", mcp_types.CallToolRequestParams, self._call_tool)
        TaskMethods(self._protocol_tasks).add_to(server)
        return server

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
        task = self._host_tasks.start(request, get_owner(context))
        return await self._follow(
            context, [task], lambda: self._answers.describe(task), request.wait
        )

    async def _run_many(self, context: Context, arguments: dict[str, Any]) -> CallResult:
        request = parse_arguments(ManyArguments, arguments, "task_many")
        tasks = self._host_tasks.start_many(request.tasks, request.limit, get_owner(context))
        return await self._follow(
            context, tasks, lambda: self._answers.describe_many(tasks), request.wait
        )

    async def _look(self, context: Context, arguments: dict[str, Any]) -> CallResult:
        request = parse_arguments(LookArguments, arguments, "look")
        task = self._host_tasks.start_look(request, get_owner(context))
        return await self._follow(
            context, [task], lambda: self._answers.describe(task), request.wait
        )

    async def _list_agents(self, context: Context, arguments: dict[str, Any]) -> CallResult:
        parse_arguments(NoArguments, arguments, "agents")
        lines = [
            f"{agent.name}: {(agent.description.splitlines() or [''])[0]}"
            for agent in self._host_tasks.list_agents(get_owner(context))
        ]
        return _convert_answer(ToolAnswer("\n".join(lines), {}))

    async def _get_result(self, context: Context, arguments: dict[str, Any]) -> CallResult:
        request = parse_arguments(ResultArguments, arguments, "task_result")
        if request.task is None:
            tasks = self._host_tasks.list_tasks(get_owner(context))
            return _convert_answer(self._answers.list_tasks(tasks))
        task = self._host_tasks.find(request.task, get_owner(context))
        return await self._follow(
            context,
            [task],
            lambda: self._answers.describe(task),
            request.wait,
            cancels=False,
        )

    async def _cancel(self, context: Context, arguments: dict[str, Any]) -> CallResult:
        request = parse_arguments(CancelArguments, arguments, "task_cancel")
        task = self._host_tasks.find(request.task, get_owner(context))
        await self._host_tasks.cancel([task])
        return _convert_answer(self._answers.describe(task))

    async def _repeat(
        self, context: Context, params: mcp_types.CallToolRequestParams
    ) -> CallResult:
        """Continue a call with the answers of the user."""
        state = str(params.request_state)
        owner = get_owner(context)
        repetition = self._repetitions.get(state)
        if repetition is None or repetition.owner != owner.name:
            raise MCPError(mcp_types.INVALID_PARAMS, "Unknown requestState")
        if not owner.can_answer:
            raise MCPError(mcp_types.INVALID_REQUEST, NO_RIGHT)
        del self._repetitions[state]
        responses = params.input_responses or {}
        for question in repetition.questions:
            answer_question(question, responses.get(question.id))
        return await self._follow(
            context,
            repetition.tasks,
            repetition.describe,
            repetition.wait,
            cancels=repetition.cancels,
        )

    async def _follow(
        self,
        context: Context,
        tasks: Sequence[HostTask],
        describe: Callable[[], ToolAnswer],
        wait: float | None,
        *,
        cancels: bool = True,
    ) -> CallResult:
        """Wait for tasks and return the result of the call.

        Arguments:
            cancels: the tasks end if the host cancels the call.
        """
        owner = get_owner(context)
        if cancels:
            for task in tasks:
                task.can_ask = owner.can_answer and can_ask(context.session.client_capabilities)
        if cancels and accepts_tasks(context):
            return await self._make_task(owner, tasks, describe)
        following = Following(
            context, tasks, wait, heartbeat=self._heartbeat, can_answer=owner.can_answer
        )
        try:
            questions = await following.run()
        except asyncio.CancelledError:
            if cancels:
                with anyio.CancelScope(shield=True):
                    await self._host_tasks.cancel(tasks)
            raise
        if not questions:
            return _convert_answer(describe())
        state = secrets.token_hex(16)
        self._repetitions[state] = _Repetition(
            owner.name, tasks, questions, describe, wait, cancels
        )
        for old in list(self._repetitions)[:-_MAX_STATES]:
            del self._repetitions[old]
        return mcp_types.InputRequiredResult(
            input_requests={question.id: make_input_request(question) for question in questions},
            request_state=state,
        )

    async def _make_task(
        self, owner: Owner, tasks: Sequence[HostTask], describe: Callable[[], ToolAnswer]
    ) -> CallResult:
        """Return the state of a task of the protocol, which goes on without the request."""
        try:
            state = await self._protocol_tasks.create(
                owner, tasks, lambda: _dump_answer(describe())
            )
        except BaseException:  # the host gets no id, so it could neither read nor cancel it
            with anyio.CancelScope(shield=True):
                await self._host_tasks.cancel(tasks)
            raise
        return {"resultType": "task", **state}


def _dump_answer(answer: ToolAnswer) -> dict[str, Any]:
    result = _convert_answer(answer)
    return result.model_dump(by_alias=True, mode="json", exclude_none=True)


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
