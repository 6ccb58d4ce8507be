"""Questions of MCP servers to the user of the editor, as `elicitation/create` of the protocol."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any, cast

from ..._core.ports import ApprovalDecision
from ..._core.ports.input_forms import InputForm


def make_input_question(form: InputForm, session: str) -> dict[str, Any]:
    """Return the parameters of the request.

    Arguments:
        session: id of the session that the question belongs to.
    """
    question: dict[str, Any] = {
        "sessionId": session,
        "message": f"MCP server {form.server} asks: {form.message}",
    }
    if form.url:
        return {**question, "mode": "url", "elicitationId": secrets.token_hex(8), "url": form.url}
    return {**question, "mode": "form", "requestedSchema": form.schema}


def read_input_answer(answer: Mapping[str, Any]) -> ApprovalDecision:
    """Return the decision that an answer states; anything but an accept declines."""
    if answer.get("action") != "accept":
        return ApprovalDecision(False, "the user declined")
    content = answer.get("content")
    values = cast("dict[str, Any]", content) if isinstance(content, dict) else {}
    return ApprovalDecision(True, "the user answered", arguments=values)
