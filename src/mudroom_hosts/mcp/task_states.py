"""States of tasks as hosts get them, and which hosts declare tasks.

Import this module late: it imports the package `mcp`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import mcp_types
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from mudroom.driving import Question

from .following import Context, make_input_request

EXTENSION = "io.modelcontextprotocol/tasks"


def accepts_tasks(context: Context) -> bool:
    """Return whether the host of a request declares the extension."""
    capabilities = context.session.client_capabilities
    extensions = capabilities.extensions if capabilities else None
    is_modern = context.protocol_version in MODERN_PROTOCOL_VERSIONS
    return is_modern and EXTENSION in (extensions or {})


def require_tasks(context: Context) -> None:
    """Raise MCPError for a host that does not declare the extension."""
    if not accepts_tasks(context):
        raise MCPError(
            mcp_types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            f"The client did not declare {EXTENSION}",
            {"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
        )


def describe_state(state: Mapping[str, Any], questions: Sequence[Question]) -> dict[str, Any]:
    """Return the state of a task with the questions that its host must answer."""
    if not questions:
        return dict(state)
    requests = {question.id: _dump_question(question) for question in questions}
    return {**state, "status": "input_required", "inputRequests": requests}


def _dump_question(question: Question) -> dict[str, Any]:
    request = make_input_request(question)
    return request.model_dump(by_alias=True, mode="json", exclude_none=True)
