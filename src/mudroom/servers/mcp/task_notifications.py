"""Notifications about tasks of the protocol: a host that listens need not ask for their states.

Import this module late: it imports the package `mcp`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal, cast

import mcp_types
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY

from .following import Context, get_owner
from .host_task import Owner
from .protocol_tasks import ENDED, ProtocolTasks, UnknownTask
from .task_states import describe_state, require_tasks

METHOD = "subscriptions/listen"
_MAX_STREAMS = 1_000
"""Requests to listen that are open at the same time."""
_MAX_TASKS = 1_000
"""Tasks of one such request."""
_PAUSE = 1.0
"""Seconds between two notifications about the progress of one task at least."""


class _TaskNotification(mcp_types.Notification[dict[str, Any], Literal["notifications/tasks"]]):
    """The state of a task."""

    method: Literal["notifications/tasks"] = "notifications/tasks"
    params: dict[str, Any]


class TaskNotifications:
    """Handler of subscriptions/listen.

    The list of tools never changes: a host that listens for that is told nothing.
    """

    def __init__(self, tasks: ProtocolTasks) -> None:
        self._tasks = tasks
        self._open_streams = 0

    async def listen(
        self, context: Context, params: mcp_types.SubscriptionsListenRequestParams
    ) -> mcp_types.SubscriptionsListenResult:
        """Send the states of tasks until they have ended, or until the host stops listening."""
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
        """Send each state of one task until it has ended; progress not too often."""
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
                        async with asyncio.timeout(rest):
                            await changed.wait()


def _is_progress(last: Mapping[str, Any], state: Mapping[str, Any]) -> bool:
    """Return whether a task only works on: no end, and no other questions than before."""
    if state["status"] in ENDED or state["status"] != last.get("status"):
        return False
    return state.get("inputRequests") == last.get("inputRequests")


async def _send(context: Context, state: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
    notification = _TaskNotification(params={**state, "_meta": dict(meta)})
    await context.session.send_notification(
        cast("mcp_types.ServerNotification", notification), related_request_id=context.request_id
    )


def _read_ids(extra: Mapping[str, Any]) -> list[str] | None:
    """Return the tasks that a host wants to hear of, the first ones; None if it names no list."""
    ids = extra.get("taskIds")
    if ids is None:
        return None
    if not isinstance(ids, list):
        raise MCPError(mcp_types.INVALID_PARAMS, "taskIds is no list")
    texts = [task for task in cast("list[object]", ids) if isinstance(task, str)]
    return list(dict.fromkeys(texts))[:_MAX_TASKS]
