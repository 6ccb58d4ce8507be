"""Handlers of the package `mcp`, which speaks both revisions of the protocol.

Import this module late and in a thread: it imports the package, which takes about a second.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Literal, cast

import anyio
import mcp_types
import msgspec
from mcp.server.caching import CacheHint
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from msgspec import Struct
from pydantic import Field

from mudroom import __version__
from mudroom.driving import Question
from mudroom.errors import MudroomError
from mudroom.ports import time_limit

from .following import Context, Following, answer_question, can_ask, get_owner, make_input_request
from .host_tasks import (
    HEARTBEAT,
    CancelArguments,
    HostTask,
    HostTasks,
    LookArguments,
    ManyArguments,
    NoArguments,
    Owner,
    ResultArguments,
    TaskArguments,
    parse_arguments,
)
from .protocol_tasks import ENDED, NoRightToAnswer, ProtocolTasks, Response, UnknownTask
from .results import AnswerMaker, ToolAnswer
from .tool_definitions import INSTRUCTIONS, TOOLS, ToolDefinition

CallResult = mcp_types.CallToolResult | mcp_types.InputRequiredResult | dict[str, Any]
_LIST_TTL = 3_600_000  # milliseconds that hosts may cache the tool list; it never changes
EXTENSION = "io.modelcontextprotocol/tasks"
_MAX_STATES = 1_000  # calls waiting to be repeated with the user's answers

logging.getLogger("mcp").addHandler(logging.NullHandler())  # else Python prints to the terminal


class _Repetition(Struct, frozen=True):
    """A call that the host repeats with answers."""

    owner: str
    tasks: Sequence[HostTask]
    questions: Sequence[Question]
    describe: Callable[[], ToolAnswer]
    wait: float | None
    cancels: bool  # the tasks end if the host cancels the call


class McpProtocol:
    """Answers hosts' requests with the server's tasks."""

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
        """Make the package's server, for any number of connections.

        `owner` owns requests that did not come over HTTP; None refuses them.
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
        server.extensions[EXTENSION] = {}
        notifications = TaskNotifications(self._protocol_tasks)
        server.add_request_handler("tools/call", mcp_types.CallToolRequestParams, self._call_tool)
        server.add_request_handler("tasks/get", TaskParams, self._get_task)
        server.add_request_handler("tasks/update", UpdateParams, self._update_task)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel_task)
        server.add_request_handler(
            METHOD, mcp_types.SubscriptionsListenRequestParams, notifications.listen
        )
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
        return await self._follow_task(context, task, request.wait)

    async def _run_many(self, context: Context, arguments: dict[str, Any]) -> CallResult:
        request = parse_arguments(ManyArguments, arguments, "task_many")
        tasks = self._host_tasks.start_many(request.tasks, request.limit, get_owner(context))
        return await self._follow(
            context, tasks, lambda: self._answers.describe_many(tasks), request.wait
        )

    async def _look(self, context: Context, arguments: dict[str, Any]) -> CallResult:
        request = parse_arguments(LookArguments, arguments, "look")
        task = self._host_tasks.start_look(request, get_owner(context))
        return await self._follow_task(context, task, request.wait)

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
        return await self._follow_task(context, task, request.wait, cancels=False)

    async def _cancel(self, context: Context, arguments: dict[str, Any]) -> CallResult:
        request = parse_arguments(CancelArguments, arguments, "task_cancel")
        task = self._host_tasks.find(request.task, get_owner(context))
        await self._host_tasks.cancel([task])
        return _convert_answer(self._answers.describe(task))

    async def _repeat(
        self, context: Context, params: mcp_types.CallToolRequestParams
    ) -> CallResult:
        """Continue a call with the user's answers."""
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

    async def _follow_task(
        self, context: Context, task: HostTask, wait: float | None, *, cancels: bool = True
    ) -> CallResult:
        def describe() -> ToolAnswer:
            return self._answers.describe(task)

        return await self._follow(context, [task], describe, wait, cancels=cancels)

    async def _follow(
        self,
        context: Context,
        tasks: Sequence[HostTask],
        describe: Callable[[], ToolAnswer],
        wait: float | None,
        *,
        cancels: bool = True,
    ) -> CallResult:
        """Wait for tasks and return the call's result; a cancelled call ends its tasks."""
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
        """Make a protocol task, which outlives the request; return its state."""
        try:
            state = await self._protocol_tasks.create(
                owner, tasks, lambda: _dump_answer(describe())
            )
        except BaseException:  # without an id, the host could neither read nor cancel it
            with anyio.CancelScope(shield=True):
                await self._host_tasks.cancel(tasks)
            raise
        return {"resultType": "task", **state}

    async def _get_task(self, context: Context, params: TaskParams) -> dict[str, Any]:
        with handle_request(context, params):
            task = await self._protocol_tasks.get(params.task_id, get_owner(context))
        return {"resultType": "complete", **describe_state(*task)}

    async def _update_task(self, context: Context, params: UpdateParams) -> dict[str, Any]:
        responses = {
            key: _read_response(response) for key, response in params.input_responses.items()
        }
        with handle_request(context, params):
            await self._protocol_tasks.update(params.task_id, get_owner(context), responses)
        return {"resultType": "complete"}

    async def _cancel_task(self, context: Context, params: TaskParams) -> dict[str, Any]:
        with handle_request(context, params):
            await self._protocol_tasks.cancel(params.task_id, get_owner(context))
        return {"resultType": "complete"}


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


NO_RIGHT = "the token does not have the scope answer"
_NAME_HEADER = "mcp-name"


class TaskParams(mcp_types.RequestParams):
    task_id: str = Field(alias="taskId")


class UpdateParams(TaskParams):
    input_responses: dict[str, Any] = Field(alias="inputResponses")


@contextmanager
def handle_request(context: Context, params: TaskParams) -> Generator[None]:
    """Turn the block's errors into MCPErrors. First refuse old versions of the protocol, hosts
    without tasks, and a header that names another task."""
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        raise MCPError(mcp_types.METHOD_NOT_FOUND, "Method not found", context.method)
    require_tasks(context)
    headers = getattr(context.request, "headers", None)
    if headers is not None and headers.get(_NAME_HEADER) != params.task_id:
        raise MCPError(mcp_types.HEADER_MISMATCH, "The header Mcp-Name is not the taskId")
    try:
        yield
    except UnknownTask:
        raise MCPError(mcp_types.INVALID_PARAMS, f"Unknown task: {params.task_id}") from None
    except NoRightToAnswer:
        raise MCPError(mcp_types.INVALID_REQUEST, NO_RIGHT) from None


def _read_response(response: object) -> Response:
    # An answer of the wrong shape counts as cancelled.
    try:
        return msgspec.convert(response, Response)
    except msgspec.ValidationError:
        return Response()


METHOD = "subscriptions/listen"
_MAX_STREAMS = 1_000  # concurrent requests to listen
_MAX_TASKS = 1_000  # tasks per such request
_PAUSE = 1.0  # minimum seconds between progress notifications for a task


class _TaskNotification(mcp_types.Notification[dict[str, Any], Literal["notifications/tasks"]]):
    method: Literal["notifications/tasks"] = "notifications/tasks"
    params: dict[str, Any]


class TaskNotifications:
    """Handler of subscriptions/listen.

    The tool list never changes: a host listening for that hears nothing.
    """

    def __init__(self, tasks: ProtocolTasks) -> None:
        self._tasks = tasks
        self._open_streams = 0

    async def listen(
        self, context: Context, params: mcp_types.SubscriptionsListenRequestParams
    ) -> mcp_types.SubscriptionsListenResult:
        wanted = params.notifications
        ids = _read_ids(wanted.model_extra or {})
        if ids is not None:
            require_tasks(context)
        if self._open_streams >= _MAX_STREAMS:
            raise MCPError(mcp_types.INTERNAL_ERROR, f"{_MAX_STREAMS} streams are open already")
        owner = get_owner(context)
        meta: dict[str, Any] = {SUBSCRIPTION_ID_META_KEY: context.request_id}
        self._open_streams += 1
        try:
            known = [task for task in ids or () if await self._is_known(task, owner)]
            honored: dict[str, Any] = {} if ids is None else {"taskIds": known}
            if wanted.tools_list_changed:
                honored["toolsListChanged"] = True
            await context.session.send_notification(
                mcp_types.SubscriptionsAcknowledgedNotification(
                    params=mcp_types.SubscriptionsAcknowledgedNotificationParams(
                        notifications=mcp_types.SubscriptionFilter.model_validate(honored),
                        _meta=meta,
                    )
                ),
                related_request_id=context.request_id,
            )
            async with asyncio.TaskGroup() as group:
                for task in known:
                    group.create_task(self._follow(context, task, owner, meta))
                if wanted.tools_list_changed:
                    await asyncio.Event().wait()
        finally:
            self._open_streams -= 1
        return mcp_types.SubscriptionsListenResult(_meta=meta)

    async def _is_known(self, id: str, owner: Owner) -> bool:
        try:
            await self._tasks.get(id, owner)
        except UnknownTask:
            return False
        return True

    async def _follow(
        self, context: Context, task: str, owner: Owner, meta: Mapping[str, Any]
    ) -> None:
        """Send each state of a task until it ends, limiting progress messages."""
        loop = asyncio.get_running_loop()
        last: dict[str, Any] = {}
        sent = float("-inf")
        with self._tasks.watch(task) as changed:
            while last.get("status") not in ENDED:
                changed.clear()
                state = describe_state(*await self._tasks.get(task, owner))
                rest = sent + _PAUSE - loop.time() if _is_progress(last, state) else 0
                if state != last and rest <= 0:
                    await _send(context, state, meta)
                    last = state
                    sent = loop.time()
                elif state == last:
                    await changed.wait()
                else:
                    with suppress(TimeoutError):
                        async with time_limit(rest):
                            await changed.wait()


def _is_progress(last: Mapping[str, Any], state: Mapping[str, Any]) -> bool:
    """Return whether a task has merely progressed: not ended, with the same questions."""
    if state["status"] in ENDED or state["status"] != last.get("status"):
        return False
    return state.get("inputRequests") == last.get("inputRequests")


async def _send(context: Context, state: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
    notification = _TaskNotification(params={**state, "_meta": dict(meta)})
    await context.session.send_notification(
        cast("mcp_types.ServerNotification", notification), related_request_id=context.request_id
    )


def _read_ids(extra: Mapping[str, Any]) -> list[str] | None:
    """Read the first tasks that a host wants to hear about; None without a list."""
    ids = extra.get("taskIds")
    if ids is None:
        return None
    if not isinstance(ids, list):
        raise MCPError(mcp_types.INVALID_PARAMS, "taskIds is no list")
    texts = [task for task in cast("list[object]", ids) if isinstance(task, str)]
    return list(dict.fromkeys(texts))[:_MAX_TASKS]


def accepts_tasks(context: Context) -> bool:
    capabilities = context.session.client_capabilities
    extensions = capabilities.extensions if capabilities else None
    is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
    return is_modern and EXTENSION in (extensions or {})


def require_tasks(context: Context) -> None:
    """Raise MCPError for a host that does not declare the extension."""
    if not accepts_tasks(context):
        raise MCPError(
            mcp_types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            f"The client did not declare {EXTENSION}",
            {"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
        )


def describe_state(state: Mapping[str, Any], questions: Sequence[Question]) -> dict[str, Any]:
    if not questions:
        return dict(state)
    requests = {question.id: _dump_question(question) for question in questions}
    return {**state, "status": "input_required", "inputRequests": requests}


def _dump_question(question: Question) -> dict[str, Any]:
    request = make_input_request(question)
    return request.model_dump(by_alias=True, mode="json", exclude_none=True)
