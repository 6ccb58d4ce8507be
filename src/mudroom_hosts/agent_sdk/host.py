"""Host: joins the parts that serve one program using an agent SDK."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any

from mudroom import __version__
from mudroom.errors import MudroomError, UnknownName, UsageError
from mudroom.permissions import Rule
from mudroom.ports import HookCallback

from ..json_values import as_list, as_object, as_text
from .approver import HostApprover
from .channel import ControlChannel, HostError
from .host_tools import HostToolSource
from .hosted_session import HostedSession
from .output import PROTOCOL_LEVEL, HostOutput
from .prompt_loop import PromptLoop
from .setup import HostSetup, PrepareSession, SdkOptions, SdkSessionPlan

Answer = Mapping[str, Any]


class Host:
    """A host's session, its prompts, and the answers to its requests.

    If a prompt is running, changed MCP servers apply from the next one on.
    """

    def __init__(
        self,
        channel: ControlChannel,
        prepare: PrepareSession,
        options: SdkOptions,
        setup: HostSetup,
        notify: Callable[[str], object],
    ) -> None:
        self._channel = channel
        self._setup = setup
        self._options = options
        self._notify = notify
        self._output = output = HostOutput(
            channel.send, options, shows_child_text=setup.shows_child_text
        )
        approver = HostApprover(
            channel,
            change_mode=self._change_mode,
            add_rules=self._add_rules,
            interrupt=lambda: self.prompts.interrupt(),
            show_waiting=lambda count: output.set_state("requires_action" if count else "running"),
            notify=notify,
        )
        sources = tuple(
            HostToolSource(channel, name, setup.manifests.get(name)) for name in setup.servers
        )
        hooks = make_host_hooks(setup.hooks, options.hook_events, channel, output.send_hook, notify)
        plan = SdkSessionPlan(setup=setup, sources=sources)
        self.hosted = HostedSession(prepare, options, approver, hooks, output, plan, notify)
        self.prompts = PromptLoop(self.hosted, output, keeps_background=setup.keeps_background)
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
            "mcp_status": self._list_servers,
            "mcp_toggle": self._toggle_server,
            "mcp_reconnect": self._reconnect_server,
            "mcp_set_servers": self._set_servers,
            "mcp_message": self._receive_message,
        }

    def _change_mode(self, mode: str) -> None:
        # Ignore a wrong mode in a decision.
        try:
            self.hosted.set_mode(mode)
        except UsageError as error:
            self._notify(str(error))

    def _add_rules(self, rules: tuple[Rule, ...]) -> None:
        self.hosted.add_rules(rules)

    def stop_all(self) -> bool:
        """Stop the prompt and all background work. Return False if nothing is running."""
        return self.hosted.driver.cancel()

    def describe(self) -> dict[str, Any]:
        """Make the answer to `initialize`."""
        session = self.hosted.driver.session
        agents = [
            {"name": agent.name, "description": agent.description, "model": agent.model}
            for agent in session.agents
        ]
        commands = [
            {"name": each.name, "description": each.description, "argumentHint": each.hint}
            for each in self.hosted.load_prompts().values()
        ]
        parked = {
            "sdk_mcp_manifests_parked": {
                source.name: "parked" if source.has_manifest else "malformed"
                for source in self.hosted.sources
                if source.name in self._setup.manifests
            }
        }
        return {
            "commands": commands,
            "agents": agents,
            "output_style": session.output_style,
            "available_output_styles": ["default", *self.hosted.list_styles()],
            "models": describe_models(self._options.list_models()),
            "account": {"apiKeySource": "none"},
            "hook_on_failure_supported": True,
            **({"hooks_applied": True} if self._setup.hooks else {}),
            **({"mcp_servers_applied": True} if self._setup.process_servers else {}),
            **(parked if self._setup.manifests else {}),
            "claude_code_version": PROTOCOL_LEVEL,
            "session_id": session.id,
        }

    async def answer(self, request: Mapping[str, Any]) -> Answer:
        """Answer a request. Raises MudroomError with the text for the host."""
        subtype = str(request.get("subtype", ""))
        action = self._actions.get(subtype)
        if action is None:
            raise UsageError(f"not supported by mudroom: {subtype}")
        return await action(request)

    async def _interrupt(self, request: Mapping[str, Any]) -> Answer:
        return self.prompts.interrupt(cancels_waiting=request.get("cancel_queued") is True)

    async def _set_model(self, request: Mapping[str, Any]) -> Answer:
        self.hosted.set_model(str(request.get("model") or ""))
        await self.hosted.apply()
        return {}

    async def _set_mode(self, request: Mapping[str, Any]) -> Answer:
        mode = str(request.get("mode", ""))
        self.hosted.set_mode(mode)
        await self.hosted.apply()
        return {"mode": mode}

    async def _stop_task(self, request: Mapping[str, Any]) -> Answer:
        task = str(request.get("task_id", ""))
        if not task or not self.hosted.driver.session.runs.cancel(task):
            raise UsageError(f"no task with the id {task!r} is running")
        return {}

    async def _detach_tasks(self, request: Mapping[str, Any]) -> Answer:
        call = request.get("tool_use_id")
        task = self._output.find_task(str(call)) if call else None
        return {"backgrounded": self.hosted.driver.session.runs.detach(task)}

    async def _cancel_line(self, request: Mapping[str, Any]) -> Answer:
        return {"cancelled": self.prompts.cancel_line(str(request.get("message_uuid", "")))}

    async def _measure_context(self, _: Mapping[str, Any]) -> Answer:
        session = self.hosted.driver.session
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
        return {"models": describe_models(self._options.list_models())}

    async def _ignore(self, _: Mapping[str, Any]) -> Answer:
        return {}

    async def _list_servers(self, _: Mapping[str, Any]) -> Answer:
        return {"mcpServers": await self.hosted.describe_servers()}

    async def _toggle_server(self, request: Mapping[str, Any]) -> Answer:
        name = _read_name(request)
        is_enabled = request.get("enabled") is not False
        source = self.hosted.find_source(name)
        if source:
            source.is_enabled = is_enabled
            source.mark_changed()
            return {}
        self.hosted.enable_server(name, is_enabled=is_enabled)
        await self.hosted.apply()
        return {}

    async def _reconnect_server(self, request: Mapping[str, Any]) -> Answer:
        # Restart servers other than the host's own.
        name = _read_name(request)
        source = self.hosted.find_source(name)
        if source is None:
            await self.hosted.restart_server(name)
            return {}
        await source.connect()
        self.hosted.driver.open_later()
        await self.hosted.apply()
        return {}

    async def _set_servers(self, request: Mapping[str, Any]) -> Answer:
        """Replace the servers from earlier requests, and all of the host's in-process servers."""
        entries = as_object(request.get("servers"))
        hosted = self.hosted
        in_host = {source.name: None for source in hosted.next_sources}
        before = {**in_host, **hosted.driver.plan.servers}
        own = [name for name, entry in entries.items() if as_object(entry).get("type") == "sdk"]
        after = {**entries, **dict.fromkeys(own)}
        added = [name for name, entry in after.items() if before.get(name, ...) != entry]
        sources = [hosted.find_source(name) or HostToolSource(self._channel, name) for name in own]
        others = {name: entries[name] for name in entries if name not in own}
        errors = hosted.set_servers(sources, others)
        await self.hosted.apply()
        if self.hosted.driver.current is None:
            errors |= await self._start([name for name in added if name not in errors])
        removed = [name for name in before if name not in after]
        return {"added": added, "removed": removed, "errors": errors}

    async def _start(self, names: list[str]) -> dict[str, str]:
        """Start servers; return why some do not work, by name."""
        states = await asyncio.gather(*map(self._start_server, names))
        return {name: state for name, state in zip(names, states, strict=True) if state}

    async def _start_server(self, name: str) -> str:
        source = self.hosted.find_source(name)
        if source:
            return source.fault
        try:
            await self.hosted.restart_server(name)
        except MudroomError as error:
            return str(error)
        return ""

    async def _receive_message(self, request: Mapping[str, Any]) -> Answer:
        """Take an in-process server's notification; its tools may have changed."""
        if as_object(request.get("message")).get("method") == "notifications/tools/list_changed":
            name = _read_name(request)
            source = self.hosted.find_source(name)
            if source is None:
                known = [source.name for source in self.hosted.next_sources]
                raise UnknownName("MCP server of the host", name, known)
            source.mark_changed()
        return {}


_EVENT = "PreToolUse"
"""Event whose failed hooks block, unless the host says that the action continues."""

ShowHook = Callable[..., None]  # takes the subtype and fields of a line about a hook


def make_host_hooks(
    hooks: Mapping[str, Any],
    events: Collection[str],
    channel: ControlChannel,
    show: ShowHook,
    notify: Callable[[str], object],
) -> dict[str, list[HookCallback]]:
    """Make the hooks from `initialize`, by event; `events` are those mudroom supports."""
    callbacks: dict[str, list[HookCallback]] = {}
    for event, matchers in hooks.items():
        if event not in events:
            notify(f"hooks of the event {event} never run: mudroom does not have it")
            continue
        for matcher in map(as_object, as_list(matchers)):
            callbacks.setdefault(event, []).extend(_make_callbacks(event, matcher, channel, show))
    return callbacks


def _make_callbacks(
    event: str, matcher: Mapping[str, Any], channel: ControlChannel, show: ShowHook
) -> list[HookCallback]:
    timeout = matcher.get("timeout")
    failure = matcher.get("onFailure") or ("block" if event == _EVENT else "continue")
    return [
        HookCallback(
            HostHook(event, str(callback_id), channel, show),
            matcher=as_text(matcher.get("matcher")),
            timeout=float(timeout) if isinstance(timeout, int | float) else None,
            blocks_on_failure=failure != "continue",
        )
        for callback_id in as_list(matcher.get("hookCallbackIds"))
    ]


class HostHook:
    def __init__(
        self, event: str, callback_id: str, channel: ControlChannel, show: ShowHook
    ) -> None:
        self.__name__ = "a function of the host"
        self._event = event
        self._callback_id = callback_id
        self._channel = channel
        self._show = show

    async def __call__(self, hook_input: dict[str, Any]) -> dict[str, Any] | None:
        """Call the function. Raises HostError if it fails; a host that is gone decides nothing."""
        if self._channel.is_closed:
            return None
        fields = {
            "hook_id": str(uuid.uuid4()),
            "hook_name": self._callback_id,
            "hook_event": self._event,
        }
        self._show("hook_started", **fields)
        outcome = "cancelled"
        output: dict[str, Any] = {}
        try:
            output = await self._channel.request(
                "hook_callback",
                callback_id=self._callback_id,
                input=hook_input,
                tool_use_id=hook_input.get("tool_use_id"),
            )
            outcome = "success"
        except HostError:
            outcome = "error"
            raise
        finally:
            text = json.dumps(output)
            self._show(
                "hook_response", **fields, output=text, stdout=text, stderr="", outcome=outcome
            )
        return output


def describe_models(names: Sequence[str]) -> list[dict[str, Any]]:
    known = ["default", *names]
    return [{"value": name, "displayName": name, "description": ""} for name in known]


def _read_name(request: Mapping[str, Any]) -> str:
    return str(request.get("serverName") or request.get("server_name") or "")
