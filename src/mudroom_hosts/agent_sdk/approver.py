"""Questions to the host, which decides on tool calls via the request `can_use_tool`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from mudroom import ApprovalDecision, ApprovalRequest, Mode, Session
from mudroom.driving import Question, Questions
from mudroom.errors import UsageError
from mudroom.permissions import Rule, Verdict, parse_rule
from mudroom.ports import InputForm, ToolCategory
from mudroom.views import get_claude_name, is_child_id

from ..json_values import as_list, as_object
from .channel import ControlChannel, HostError
from .output import to_host_arguments

_ORIGIN = "the program that started mudroom"
_KEPT = ("localSettings", "projectSettings", "userSettings")
"""Destinations of rules that outlive the session."""
_VERDICTS = (Verdict.ALLOW, Verdict.ASK, Verdict.DENY)


class HostApprover:
    """Asks the host, and applies what its answers bring: rules, a mode, an interrupt.

    Deny and ask rules apply from the next prompt on.
    """

    def __init__(
        self,
        channel: ControlChannel,
        *,
        change_mode: Callable[[str], object],
        add_rules: Callable[[tuple[Rule, ...]], object],
        interrupt: Callable[[], object],
        show_waiting: Callable[[int], object],
        notify: Callable[[str], object],
    ) -> None:
        self.questions = Questions(self._ask, on_change=self._count)
        self._channel = channel
        self._change_mode = change_mode
        self._add_rules = add_rules
        self._interrupt = interrupt
        self._show_waiting = show_waiting
        self._notify = notify
        self._cwd = "."

    def start_session(self, session: Session) -> None:
        self.questions.mode = session.permissions.mode
        self._cwd = session.cwd

    def _count(self, _: Question) -> None:
        self._show_waiting(len(self.questions.list()))

    async def _ask(self, question: Question) -> ApprovalDecision:
        request = question.request
        if request.form:
            return await self._ask_for_input(request, request.form)
        try:
            answer = await self._channel.request("can_use_tool", **self._make_fields(request))
        except HostError as error:
            return ApprovalDecision(False, f"{_ORIGIN} could not decide: {error}")
        return self._use_answer(request, answer)

    async def _ask_for_input(self, request: ApprovalRequest, form: InputForm) -> ApprovalDecision:
        """Send an MCP server's question to the host. No answer means declined."""
        fields: dict[str, Any] = {
            "mcp_server_name": form.server,
            "message": form.message,
            "mode": "url" if form.url else "form",
            **({"url": form.url} if form.url else {"requested_schema": form.schema}),
            **({"agent_id": request.run_id} if is_child_id(request.run_id) else {}),
        }
        try:
            answer = await self._channel.request("elicitation", **fields)
        except HostError as error:
            return ApprovalDecision(False, f"{_ORIGIN} could not answer: {error}")
        if answer.get("action") != "accept":
            return ApprovalDecision(False, f"{_ORIGIN} declined")
        values = as_object(answer.get("content"))
        return ApprovalDecision(True, f"{_ORIGIN} answered", arguments=dict(values))

    def _make_fields(self, request: ApprovalRequest) -> dict[str, Any]:
        name = get_claude_name(request.tool)
        arguments = to_host_arguments(request.tool, request.arguments, self._cwd)
        suggested = self.questions.suggest_rules(request)
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
        kind = update.get("type")
        if kind == "setMode":
            self._change_mode(str(update.get("mode", "")))
            return
        behavior = str(update.get("behavior", "allow"))
        if kind != "addRules" or behavior not in _VERDICTS:
            self._notify(f"a change of permissions is not used: mudroom has no {kind}")
            return
        verdict = Verdict(behavior)
        rules = tuple(self._parse_rules(update, verdict))
        if verdict is not Verdict.ALLOW:
            self._add_rules(rules)
            return
        self.questions.add_rules(*rules)
        if update.get("destination") in _KEPT:
            self.questions.keep_rules(*rules)

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
    """Make the permission updates that would allow this call and similar ones."""
    suggestions: list[dict[str, Any]] = []
    if rules:
        values = [
            {
                "toolName": get_claude_name(rule.tool),
                **({"ruleContent": rule.pattern} if rule.pattern else {}),
            }
            for rule in rules
        ]
        suggestions.append(
            {
                "type": "addRules",
                "rules": values,
                "behavior": "allow",
                "destination": "localSettings",
            }
        )
    if request.category is ToolCategory.WRITE:
        mode = {"type": "setMode", "mode": Mode.ACCEPT_EDITS.value, "destination": "session"}
        suggestions.append(mode)
    return suggestions
