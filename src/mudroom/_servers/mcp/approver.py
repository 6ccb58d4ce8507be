"""The port Approver: the user of the host decides, if the host can ask."""

from __future__ import annotations

import asyncio
import secrets
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from ..._adapters.tools import make_builtin_tools
from ..._core.ports import ApprovalDecision, ApprovalRequest
from ..._platform.time_limits import time_limit
from ..._projections.safe_text import escape_line, format_arguments, sanitize_line
from ...permissions.approved_rules import ApprovedRules
from ...permissions.rules import Permissions
from .host_task import Question
from .host_tasks import HostTasks

ANSWER_SECONDS = 120.0
"""Seconds until a question without an answer counts as answered with no."""

MAX_TEXT = 50_000
"""Characters of a call in a question; the rest is counted."""

ONCE = "allow once"
ALWAYS = "always allow"
NO = "no"
ANSWER_FIELD = "answer"
FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        ANSWER_FIELD: {"type": "string", "title": "Allow it?", "enum": [ONCE, ALWAYS, NO]}
    },
    "required": [ANSWER_FIELD],
}
"""Form of a question; `always allow` holds for similar calls until the server ends."""

CANNOT_ASK = ApprovalDecision(False, "the MCP host cannot ask its user")


class McpApprover:
    """Questions to the users of the hosts.

    Arguments:
        permissions: those of the session. cwd: its folder. user_home: home of the user.
        seconds: time for an answer.

    `tier` is that of the session's sandbox; set it when the session is open.
    """

    def __init__(
        self,
        host_tasks: HostTasks,
        permissions: Permissions,
        *,
        cwd: str,
        user_home: str,
        seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._host_tasks = host_tasks
        self._seconds = seconds
        self.tier = "off"
        self._approved: defaultdict[str, ApprovedRules] = defaultdict(
            lambda: ApprovedRules(
                permissions,
                workspace=cwd,
                user_home=user_home,
                tools=make_builtin_tools(),
                tier=lambda: self.tier,
            )
        )

    async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
        """Wait for the answer of the user, unless an approved rule allows the call."""
        task = self._host_tasks.find_by_run(request.run_id)
        if task is None:
            return CANNOT_ASK
        approved = self._approved[task.owner.name]
        if request.form is None and approved.allow(request.tool, request.arguments):
            return ApprovalDecision(True, "allowed until the server ends")
        if request.form and request.form.url:
            return ApprovalDecision(False, "an MCP host cannot open an address for a task")
        question = Question(
            secrets.token_hex(8), request, asyncio.get_running_loop().create_future()
        )
        task.questions[question.id] = question
        task.notify()
        try:
            async with time_limit(self._seconds):
                decision = await question.answer
        except TimeoutError:
            return ApprovalDecision(False, f"no one answered within {self._seconds:g} s")
        finally:
            task.questions.pop(question.id, None)
        if request.form is None and decision.allowed and decision.why == ALWAYS:
            approved.add(*approved.suggest(request.tool, request.arguments))
        return decision


def describe_question(question: Question) -> str:
    """Return the text of a question for the user."""
    request = question.request
    if request.form:
        return f"MCP server {request.form.server} asks: {request.form.message}"
    tool, agent = sanitize_line(request.tool), sanitize_line(request.agent)
    text = format_arguments(request.arguments)
    left_out = len(text) - MAX_TEXT
    if left_out > 0:
        text = f"{text[:MAX_TEXT]}\n[… {left_out:,} characters left out …]"
    part = escape_line(request.command_part)
    why = escape_line(request.why)
    lines = [f"Allow {tool}? Agent {agent}, run {request.run_id}.", text]
    lines += [f"needs approval: {part}" if part else "", why]
    return "\n".join(filter(None, lines))


def get_form(question: Question) -> dict[str, Any]:
    """Return the form of a question: that of an MCP server, or the answers about a call."""
    form = question.request.form
    return dict(form.schema) if form else FORM


def read_answer(
    question: Question, action: str, content: Mapping[str, Any] | None
) -> ApprovalDecision:
    """Return the decision that a filled form states.

    Arguments:
        action: "accept", "decline" or "cancel".
    """
    if question.request.form and action == "accept":
        return ApprovalDecision(True, "the user answered", arguments=dict(content or {}))
    answer = str((content or {}).get(ANSWER_FIELD, NO))
    if action != "accept" or answer not in (ONCE, ALWAYS):
        return ApprovalDecision(False, "the user said no")
    return ApprovalDecision(True, answer)
