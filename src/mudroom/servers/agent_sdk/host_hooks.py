"""Hooks that are functions of the host, called through the channel."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from ..._core.ports import HookCallback
from .channel import ControlChannel, HostError
from .json_fields import as_list, as_object, as_text

_EVENT = "PreToolUse"
"""Event whose failed hooks block, unless the host says that the action continues."""

ShowHook = Callable[..., None]
"""Function that takes the subtype of a line about a hook, and its fields."""


def make_host_hooks(
    hooks: Mapping[str, Any],
    channel: ControlChannel,
    show: ShowHook,
    notify: Callable[[str], object],
) -> dict[str, list[HookCallback]]:
    """Return the hooks of `initialize` by event.

    Arguments:
        show: takes the lines about hooks that start and end.
        notify: takes a line for stderr for each event that never fires here.
    """
    if not hooks:
        return {}
    from ...integrations.hook_programs.event_rules import RULES  # slow to import

    callbacks: dict[str, list[HookCallback]] = {}
    for event, matchers in hooks.items():
        if event not in RULES:
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
    """One function of the host that is a hook.

    Arguments:
        callback_id: by which the host finds its function.
    """

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
