"""The port Approver: the host decides on tool calls, by the request `can_use_tool`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from ..._adapters.tools import make_builtin_tools
from ..._core.agents import Mode
from ..._core.ports import ApprovalDecision, ApprovalRequest
from ..._core.ports.input_forms import InputForm
from ..._core.run_ids import is_child_id
from ..._core.tools import ToolCategory
from ..._projections.claude.tool_terms import get_claude_name
from ...errors import UsageError
from ...permissions.approved_rules import ApprovedRules, keep_approved
from ...permissions.rules import RULE_VERDICTS, Permissions, Rule, Verdict, parse_rule
from .channel import ControlChannel, HostError
from .host_names import to_host_arguments
from .json_fields import as_list, as_object

_ORIGIN = "the program that started mudroom"
_KEPT = ("localSettings", "projectSettings", "userSettings")
"""Destinations of rules that stay after the session."""


class HostApprover:
    """Questions to the host, and the rules that it approves with its answers.

    Arguments:
        change_mode: takes a permission mode of the host.
        add_rules: takes deny and ask rules, which hold from the next prompt on.
        interrupt: stops the turn.
        show_waiting: takes the number of open questions.
        notify: takes a line for stderr.
    """

    def __init__(
        self,
        channel: ControlChannel,
        *,
        home: str,
        change_mode: Callable[[str], object],
        add_rules: Callable[[tuple[Rule, ...]], object],
        interrupt: Callable[[], object],
        show_waiting: Callable[[int], object],
        notify: Callable[[str], object],
    ) -> None:
        self.mode = Mode.DEFAULT
        self._channel = channel
        self._home = home
        self._change_mode = change_mode
        self._add_rules = add_rules
        self._interrupt = interrupt
        self._show_waiting = show_waiting
        self._notify = notify
        self._waiting = 0
        self._cwd = "."
        self._approved: ApprovedRules | None = None

    def start_session(
        self, permissions: Permissions, cwd: str, user_home: str, *, tier: str = "off"
    ) -> None:
        """Ask for the calls of this session from now on; approved rules still apply.

        Arguments:
            tier: that of the session's sandbox.
        """
        rules = self._approved.rules if self._approved else []
        self.mode = permissions.mode
        self._cwd = cwd
        self._approved = ApprovedRules(
            permissions,
            workspace=cwd,
            user_home=user_home,
            tools=make_builtin_tools(),
            tier=lambda: tier,
        )
        self._approved.add(*rules)

    async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
        """Ask the host, unless an approved rule or a mode it has set allows the call."""
        assert self._approved
        if request.form:
            return await self._ask_for_input(request, request.form)
        if self._approved.allow(request.tool, request.arguments):
            return ApprovalDecision(True, "allowed for this session")
        if self._is_allowed_by_mode(request):
            return ApprovalDecision(True, f"allowed by the mode {self.mode.value}")
        self._count(1)
        try:
            answer = await self._channel.request("can_use_tool", **self._make_fields(request))
        except HostError as error:
            return ApprovalDecision(False, f"{_ORIGIN} could not decide: {error}")
        finally:
            self._count(-1)
        return self._use_answer(request, answer)

    async def _ask_for_input(self, request: ApprovalRequest, form: InputForm) -> ApprovalDecision:
        """Send the question of an MCP server to the host. Without an answer it is declined."""
        fields: dict[str, Any] = {
            "mcp_server_name": form.server,
            "message": form.message,
            "mode": "url" if form.url else "form",
            **({"url": form.url} if form.url else {"requested_schema": form.schema}),
            **({"agent_id": request.run_id} if is_child_id(request.run_id) else {}),
        }
        self._count(1)
        try:
            answer = await self._channel.request("elicitation", **fields)
        except HostError as error:
            return ApprovalDecision(False, f"{_ORIGIN} could not answer: {error}")
        finally:
            self._count(-1)
        if answer.get("action") != "accept":
            return ApprovalDecision(False, f"{_ORIGIN} declined")
        values = as_object(answer.get("content"))
        return ApprovalDecision(True, f"{_ORIGIN} answered", arguments=dict(values))

    def _count(self, change: int) -> None:
        self._waiting += change
        self._show_waiting(self._waiting)

    def _is_allowed_by_mode(self, request: ApprovalRequest) -> bool:
        """Return whether a mode that was set during the turn allows the call."""
        if self.mode is Mode.BYPASS:
            return True
        return self.mode is Mode.ACCEPT_EDITS and request.category is ToolCategory.WRITE

    def _make_fields(self, request: ApprovalRequest) -> dict[str, Any]:
        assert self._approved
        name = get_claude_name(request.tool)
        arguments = to_host_arguments(request.tool, request.arguments, self._cwd)
        suggested = self._approved.suggest(request.tool, request.arguments)
        path = arguments.get("file_path")
        is_outside = isinstance(path, str) and not path.startswith(f"{self._cwd}{os.sep}")
        return {
            "tool_name": name,
            "input": arguments,
            "permission_suggestions": _make_suggestions(request, suggested),
            "blocked_path": path if is_outside else None,
            "decision_reason": request.why,
            "title": f"Allow {name}?",
            "display_name": name,
            "description": request.command_part or request.why,
            "tool_use_id": request.call_id,
            **({"agent_id": request.run_id} if is_child_id(request.run_id) else {}),
        }

    def _use_answer(self, request: ApprovalRequest, answer: Mapping[str, Any]) -> ApprovalDecision:
        if answer.get("behavior") != "allow":
            if answer.get("interrupt") is True:
                self._interrupt()
            reason = answer.get("message")
            return ApprovalDecision(False, str(reason) if reason else f"{_ORIGIN} said no")
        for update in as_list(answer.get("updatedPermissions")):
            self._apply_update(as_object(update))
        arguments = as_object(answer.get("updatedInput"))
        sent = to_host_arguments(request.tool, request.arguments, self._cwd)
        is_changed = bool(arguments) and arguments != sent
        return ApprovalDecision(
            True, f"{_ORIGIN} said yes", arguments=arguments if is_changed else None
        )

    def _apply_update(self, update: Mapping[str, Any]) -> None:
        """Apply a change of the permissions that came with an answer."""
        kind = update.get("type")
        if kind == "setMode":
            self._change_mode(str(update.get("mode", "")))
            return
        behavior = str(update.get("behavior", "allow"))
        if kind != "addRules" or behavior not in RULE_VERDICTS:
            self._notify(f"a change of permissions is not used: mudroom has no {kind}")
            return
        verdict = Verdict(behavior)
        rules = tuple(self._parse_rules(update, verdict))
        if verdict is not Verdict.ALLOW:
            self._add_rules(rules)
            return
        assert self._approved
        self._approved.add(*rules)
        if update.get("destination") in _KEPT and rules:
            keep_approved(self._home, self._cwd, rules)

    def _parse_rules(self, update: Mapping[str, Any], verdict: Verdict) -> list[Rule]:
        rules: list[Rule] = []
        for value in as_list(update.get("rules")):
            try:
                text = _format_rule(value)
                rules.append(parse_rule(text, verdict, origin=_ORIGIN, base=self._cwd))
            except UsageError as error:
                self._notify(str(error))
        return rules


def _format_rule(value: object) -> str:
    rule = as_object(value)
    content = rule.get("ruleContent")
    name = str(rule.get("toolName", ""))
    return f"{name}({content})" if content else name


def _make_suggestions(request: ApprovalRequest, rules: tuple[Rule, ...]) -> list[dict[str, Any]]:
    """Return the changes of the permissions that would allow this call and similar ones."""
    suggestions: list[dict[str, Any]] = []
    if rules:
        values = [
            {"toolName": get_claude_name(rule.tool), "ruleContent": rule.pattern or None}
            for rule in rules
        ]
        shortened = [{key: item for key, item in value.items() if item} for value in values]
        suggestions.append(
            {
                "type": "addRules",
                "rules": shortened,
                "behavior": "allow",
                "destination": "localSettings",
            }
        )
    if request.category is ToolCategory.WRITE:
        mode = {"type": "setMode", "mode": Mode.ACCEPT_EDITS.value, "destination": "session"}
        suggestions.append(mode)
    return suggestions
