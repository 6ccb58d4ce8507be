"""Control requests of the host: each gets its answer, or an error that says what is missing."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from ..._version import __version__
from ...errors import UsageError
from ...models.providers import list_usable_models
from .hosted_session import HostedSession
from .output import PROTOCOL_LEVEL, HostOutput
from .prompt_loop import PromptLoop
from .server_requests import ServerRequests

Answer = Mapping[str, Any]


class RequestTable:
    """The requests that mudroom answers once the session is open.

    Arguments:
        servers: those about MCP servers.
    """

    def __init__(
        self,
        hosted: HostedSession,
        prompts: PromptLoop,
        output: HostOutput,
        servers: ServerRequests,
    ) -> None:
        self._hosted = hosted
        self._servers = servers
        self._prompts = prompts
        self._output = output
        self._actions: dict[str, Callable[[Mapping[str, Any]], Awaitable[Answer]]] = {
            "interrupt": self._interrupt,
            "set_model": self._set_model,
            "set_permission_mode": self._set_mode,
            "stop_task": self._stop_task,
            "background_tasks": self._detach_tasks,
            "cancel_async_message": self._cancel_line,
            "get_context_usage": self._measure_context,
            "get_session_cost": self._compute_cost,
            "get_binary_version": self._get_version,
            "list_models": self._list_models,
            "set_has_subscribers": self._ignore,
            **servers.actions,
        }

    async def answer(self, request: Mapping[str, Any]) -> Answer:
        """Return the answer to a request. Raises MudroomError with the text for the host."""
        subtype = str(request.get("subtype", ""))
        action = self._actions.get(subtype)
        if action is None:
            raise UsageError(f"not supported by mudroom: {subtype}")
        return await action(request)

    async def _interrupt(self, request: Mapping[str, Any]) -> Answer:
        return self._prompts.interrupt(cancels_waiting=request.get("cancel_queued") is True)

    async def _set_model(self, request: Mapping[str, Any]) -> Answer:
        self._hosted.set_model(str(request.get("model") or ""))
        await self._servers.apply()
        return {}

    async def _set_mode(self, request: Mapping[str, Any]) -> Answer:
        mode = str(request.get("mode", ""))
        self._hosted.set_mode(mode)
        await self._servers.apply()
        return {"mode": mode}

    async def _stop_task(self, request: Mapping[str, Any]) -> Answer:
        task = str(request.get("task_id", ""))
        if not task or not self._hosted.session.cancel(task):
            raise UsageError(f"no task with the id {task!r} is running")
        return {}

    async def _detach_tasks(self, request: Mapping[str, Any]) -> Answer:
        call = request.get("tool_use_id")
        task = self._output.find_task(str(call)) if call else None
        return {"backgrounded": self._hosted.session.detach(task)}

    async def _cancel_line(self, request: Mapping[str, Any]) -> Answer:
        return {"cancelled": self._prompts.cancel_line(str(request.get("message_uuid", "")))}

    async def _measure_context(self, _: Mapping[str, Any]) -> Answer:
        session = self._hosted.session
        used = self._output.context_tokens
        window = session.find_context_window(session.model)
        free = max(window - used, 0)
        categories = [
            {"id": "messages", "name": "Messages", "tokens": used, "color": "", "kind": "used"},
            {"id": "free_space", "name": "Free space", "tokens": free, "color": "", "kind": "free"},
        ]
        return {
            "categories": categories,
            "totalTokens": used,
            "maxTokens": window,
            "rawMaxTokens": window,
            "percentage": round(100 * used / window, 1) if window else 0,
            "model": session.model,
            "isAutoCompactEnabled": True,
            "memoryFiles": [],
            "mcpTools": [],
            "agents": [],
            "gridRows": [],
        }

    async def _compute_cost(self, _: Mapping[str, Any]) -> Answer:
        usd = self._output.total_usd
        text = "The price of the model is not known." if usd is None else f"${usd:.4f}"
        return {"text": text, "total_cost_usd": usd}

    async def _get_version(self, _: Mapping[str, Any]) -> Answer:
        return {"version": PROTOCOL_LEVEL, "mudroom_version": __version__}

    async def _list_models(self, _: Mapping[str, Any]) -> Answer:
        return {"models": list_models()}

    async def _ignore(self, _: Mapping[str, Any]) -> Answer:
        return {}


def list_models() -> list[dict[str, Any]]:
    """Return the models that work here, as the SDKs list them."""
    names = ["default", *list_usable_models(os.environ)]
    return [{"value": name, "displayName": name, "description": ""} for name in names]
