"""Methods of the extension for tasks: tasks/get, tasks/update, tasks/cancel, and notifications.

Import this module late: it imports the package `mcp`.
"""

from __future__ import annotations

from typing import Any

import mcp_types
import msgspec
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import Field

from .following import Context, get_owner
from .protocol_tasks import NoRightToAnswer, ProtocolTasks, Response, UnknownTask
from .task_notifications import METHOD, TaskNotifications
from .task_states import EXTENSION, describe_state, require_tasks

NO_RIGHT = "the token does not have the scope answer"
_NAME_HEADER = "mcp-name"


class TaskParams(mcp_types.RequestParams):
    """Parameters of all methods."""

    task_id: str = Field(alias="taskId")


class UpdateParams(TaskParams):
    """Parameters of tasks/update."""

    input_responses: dict[str, Any] = Field(alias="inputResponses")


class TaskMethods:
    """Handlers of the methods."""

    def __init__(self, tasks: ProtocolTasks) -> None:
        self._tasks = tasks

    def add_to(self, server: Server[Any]) -> None:
        """Declare the extension and serve its methods."""
        server.extensions[EXTENSION] = {}
        server.add_request_handler("tasks/get", TaskParams, self._get)
        server.add_request_handler("tasks/update", UpdateParams, self._update)
        server.add_request_handler("tasks/cancel", TaskParams, self._cancel)
        notifications = TaskNotifications(self._tasks)
        server.add_request_handler(
            METHOD, mcp_types.SubscriptionsListenRequestParams, notifications.listen
        )

    async def _get(self, context: Context, params: TaskParams) -> dict[str, Any]:
        check_request(context, params)
        try:
            state = describe_state(*await self._tasks.get(params.task_id, get_owner(context)))
        except UnknownTask:
            raise _make_unknown(params) from None
        return {"resultType": "complete", **state}

    async def _update(self, context: Context, params: UpdateParams) -> dict[str, Any]:
        check_request(context, params)
        try:
            responses = {
                key: _read_response(response) for key, response in params.input_responses.items()
            }
            await self._tasks.update(params.task_id, get_owner(context), responses)
        except UnknownTask:
            raise _make_unknown(params) from None
        except NoRightToAnswer:
            raise MCPError(mcp_types.INVALID_REQUEST, NO_RIGHT) from None
        return {"resultType": "complete"}

    async def _cancel(self, context: Context, params: TaskParams) -> dict[str, Any]:
        check_request(context, params)
        try:
            await self._tasks.cancel(params.task_id, get_owner(context))
        except UnknownTask:
            raise _make_unknown(params) from None
        return {"resultType": "complete"}


def check_request(context: Context, params: TaskParams) -> None:
    """Raise MCPError for a host without the extension, or with a header of another task."""
    if context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        raise MCPError(mcp_types.METHOD_NOT_FOUND, "Method not found", context.method)
    require_tasks(context)
    headers = getattr(context.request, "headers", None)
    if headers is not None and headers.get(_NAME_HEADER) != params.task_id:
        raise MCPError(mcp_types.HEADER_MISMATCH, "The header Mcp-Name is not the taskId")


def _read_response(response: object) -> Response:
    """Return an answer; one of a wrong shape counts as cancelled."""
    try:
        return msgspec.convert(response, Response)
    except msgspec.ValidationError:
        return Response()


def _make_unknown(params: TaskParams) -> MCPError:
    return MCPError(mcp_types.INVALID_PARAMS, f"Unknown task: {params.task_id}")
