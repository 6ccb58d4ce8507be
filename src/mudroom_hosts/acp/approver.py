"""Questions to the editor's user, who decides on tool calls at every depth."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from mudroom import ApprovalDecision, ApprovalRequest, Session
from mudroom.driving import Question, Questions
from mudroom.errors import MudroomError
from mudroom.permissions import Rule
from mudroom.ports import InputForm
from mudroom.views import sanitize_line

from ..json_values import as_object
from .json_rpc import RequestError
from .params import ClientAbilities
from .tool_calls import (
    describe_title,
    find_kind,
    list_locations,
    make_content,
    make_proposed,
    make_text,
)
from .updates import SessionUpdates

_ONCE, _ALWAYS, _REJECT = "allow", "allow_always", "reject"

AskClient = Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]]
"""Sends a request with its parameters. Raises RequestError."""


class EditorApprover:
    """Asks the editor's user, at every depth, and keeps the rules from the answers."""

    def __init__(
        self, ask: AskClient, abilities: ClientAbilities, notify: Callable[[str], object]
    ) -> None:
        self.questions = Questions(
            self._ask, refuse=self._refuse_form, on_change=self._show_waiting
        )
        self._ask_client = ask
        self._abilities = abilities
        self._notify = notify
        self._updates: SessionUpdates | None = None
        self._session = ""
        self._cwd = "."

    def start_session(self, updates: SessionUpdates, session: Session) -> None:
        self.questions.mode = session.permissions.mode
        self._updates = updates
        self._session = session.id
        self._cwd = session.cwd

    def _refuse_form(self, request: ApprovalRequest) -> str | None:
        if request.form is None:
            return None
        abilities = self._abilities
        if abilities.shows_addresses if request.form.url else abilities.shows_forms:
            return None
        kind = "addresses" if request.form.url else "forms"
        return f"the editor shows no {kind} of MCP servers"

    def _show_waiting(self, question: Question) -> None:
        assert self._updates
        change = 1 if question.is_open else -1
        self._updates.children.show_waiting(question.request.run_id, change)

    async def _ask(self, question: Question) -> ApprovalDecision:
        request = question.request
        if request.form:
            return await self._ask_for_input(request, request.form)
        rules = self.questions.suggest_rules(request)
        try:
            answer = await self._ask_client(
                "session/request_permission", self._make_question(request, rules)
            )
        except RequestError as error:
            return ApprovalDecision(False, f"the editor could not decide: {error}")
        return self._use_answer(request, rules, answer)

    async def _ask_for_input(self, request: ApprovalRequest, form: InputForm) -> ApprovalDecision:
        """Ask the user what an MCP server wants to know. No answer means declined."""
        assert self._updates
        found = self._updates.find_call(request.run_id, request.call_id)
        question = make_input_question(form, found[0] if found else self._session)
        if found:
            question["toolCallId"] = found[1].id
        try:
            answer = await self._ask_client("elicitation/create", question)
        except RequestError as error:
            return ApprovalDecision(False, f"the editor could not answer: {error}")
        return read_input_answer(answer)

    def _make_question(self, request: ApprovalRequest, rules: tuple[Rule, ...]) -> dict[str, Any]:
        assert self._updates
        title = describe_title(request.tool, request.arguments)
        found = self._updates.find_call(request.run_id, request.call_id)
        call_id = found[1].id if found else f"{request.run_id}/{request.call_id}"
        if not found:
            title = sanitize_line(f"{request.name or request.agent} {request.run_id}: {title}")
        reason = f"{request.why}: {request.command_part}" if request.command_part else request.why
        content = [*make_proposed(request, self._cwd), make_content(make_text(reason))]
        return {
            "sessionId": found[0] if found else self._session,
            "toolCall": {
                "toolCallId": call_id,
                "title": title,
                "name": request.tool,
                "kind": find_kind(request.tool, category=request.category),
                "status": "pending",
                "content": content,
                "locations": list_locations(request.tool, request.arguments, self._cwd),
                "rawInput": request.arguments,
            },
            "options": [
                {"optionId": _ONCE, "name": "Allow", "kind": "allow_once"},
                {"optionId": _ALWAYS, "name": _describe_rules(rules), "kind": "allow_always"},
                {"optionId": _REJECT, "name": "Reject", "kind": "reject_once"},
            ],
        }

    def _use_answer(
        self, request: ApprovalRequest, rules: tuple[Rule, ...], answer: dict[str, Any]
    ) -> ApprovalDecision:
        choice = as_object(answer.get("outcome")).get("optionId")
        if choice == _ONCE:
            return ApprovalDecision(True, "the user said yes")
        if choice == _ALWAYS:
            return ApprovalDecision(True, self._approve(request, rules))
        if choice == _REJECT:
            return ApprovalDecision(False, "the user said no")
        return ApprovalDecision(False, "the user cancelled the question")

    def _approve(self, request: ApprovalRequest, rules: tuple[Rule, ...]) -> str:
        """Use rules from now on and keep them for the folder; return why the call is allowed."""
        if not self.questions.allow_always(request, rules):
            return "the user said yes, for this session"
        try:
            self.questions.keep_rules(*rules)
        except (MudroomError, OSError) as error:
            self._notify(f"the rule holds only for this session: {error}")
            return "the user said yes, for this session"
        return "the user said yes, for this folder"


def _describe_rules(rules: tuple[Rule, ...]) -> str:
    if not rules:
        return "Always allow this exact call in this session"
    about = ", ".join(f"{rule.tool} {rule.pattern}".strip() for rule in rules)
    return sanitize_line(f"Always allow in this folder: {about}")


def make_input_question(form: InputForm, session: str) -> dict[str, Any]:
    question: dict[str, Any] = {
        "sessionId": session,
        "message": f"MCP server {form.server} asks: {form.message}",
    }
    if form.url:
        return {**question, "mode": "url", "elicitationId": secrets.token_hex(8), "url": form.url}
    return {**question, "mode": "form", "requestedSchema": form.schema}


def read_input_answer(answer: Mapping[str, Any]) -> ApprovalDecision:
    """Read the decision from an answer; anything but an accept declines."""
    if answer.get("action") != "accept":
        return ApprovalDecision(False, "the user declined")
    values = as_object(answer.get("content"))
    return ApprovalDecision(True, "the user answered", arguments=values)
