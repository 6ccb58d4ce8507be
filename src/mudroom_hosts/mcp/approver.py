"""Questions to the hosts' users, who decide if their host can ask them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mudroom import ApprovalDecision, ApprovalRequest, Session
from mudroom.driving import Question, Questions
from mudroom.views import escape_line, format_arguments, sanitize_line

from .host_tasks import HostTasks

ANSWER_SECONDS = 120.0  # after this, an unanswered question counts as a no

MAX_TEXT = 50_000  # characters of a call shown in a question; the rest is counted

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
"""Form of a question; `always allow` covers similar calls until the server ends."""

CANNOT_ASK = ApprovalDecision(False, "the MCP host cannot ask its user")


class McpApprover:
    """The session's approver: each owner of tasks has questions and approved rules."""

    def __init__(self, host_tasks: HostTasks, seconds: float = ANSWER_SECONDS) -> None:
        self._host_tasks = host_tasks
        self._seconds = seconds
        self._session: Session | None = None
        self._by_owner: dict[str, Questions] = {}

    async def start_session(self, session: Session) -> None:
        self._session = session

    async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
        """Wait for the user's answer, unless an approved rule allows the call."""
        task = self._host_tasks.find_by_run(request.run_id)
        if task is None:
            return CANNOT_ASK
        questions = self._get_questions(task.owner.name)
        decision = await questions.decide(request)
        if decision.allowed and decision.why == ALWAYS:
            questions.allow_always(request)
        return decision

    def _get_questions(self, owner: str) -> Questions:
        questions = self._by_owner.get(owner)
        if questions is None:
            questions = self._by_owner[owner] = Questions(
                seconds=self._seconds,
                on_change=self._show,
                refuse=_refuse_address,
                allowed="allowed until the server ends",
            )
            assert self._session
            questions.start_session(self._session)
        return questions

    def _show(self, question: Question) -> None:
        task = self._host_tasks.find_by_run(question.request.run_id)
        if task is None:
            return
        if question.is_open:
            task.questions[question.id] = question
        else:
            task.questions.pop(question.id, None)
        task.notify()


def _refuse_address(request: ApprovalRequest) -> str | None:
    if request.form and request.form.url:
        return "an MCP host cannot open an address for a task"
    return None


def describe_question(question: Question) -> str:
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
    """Return a question's form: an MCP server's, or the possible answers about a call."""
    form = question.request.form
    return dict(form.schema) if form else FORM


def read_answer(
    question: Question, action: str, content: Mapping[str, Any] | None
) -> ApprovalDecision:
    """Read the decision from a filled form. `action`: "accept", "decline" or "cancel"."""
    if question.request.form and action == "accept":
        return ApprovalDecision(True, "the user answered", arguments=dict(content or {}))
    answer = str((content or {}).get(ANSWER_FIELD, NO))
    if action != "accept" or answer not in (ONCE, ALWAYS):
        return ApprovalDecision(False, "the user said no")
    return ApprovalDecision(True, answer)
