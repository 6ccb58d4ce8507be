"""Requests for batches, and the lines of their inputs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict

from ...._core.budgets import Budget
from ....batches.line_formats import BatchLine, LineError, check_line_id
from ....errors import quote_value
from ..bodies import DEFAULT_AGENT, BudgetFields, Name
from ..errors import RequestError
from ..openai.requests import parse_chat, parse_response

Endpoint = Literal["/v1/chat/completions", "/v1/responses"]
ENDPOINTS: tuple[str, ...] = get_args(Endpoint)
MAX_LINES = 50_000

_MetadataKey = Annotated[str, Meta(max_length=64)]
_MetadataText = Annotated[str, Meta(max_length=512)]


class NewBatch(Struct, frozen=True, kw_only=True):
    """A batch to create.

    Arguments:
        input_file_id: a file with one request per line.
        endpoint: path that all requests are for.
        completion_window: kept, without an effect: there is no such limit.
        workspace, mode, budget: as of a session; the budget is that of each line.
    """

    input_file_id: Name
    endpoint: Endpoint
    completion_window: Annotated[str, Meta(max_length=100)] = "24h"
    metadata: Annotated[dict[_MetadataKey, _MetadataText], Meta(max_length=16)] | None = None
    workspace: Name | None = None
    mode: Name | None = None
    budget: BudgetFields = BudgetFields()


class _Line(Struct, frozen=True, forbid_unknown_fields=True):
    """A line of an input."""

    custom_id: str
    url: str
    body: msgspec.Raw
    method: str = "POST"


def make_line_parser(
    endpoint: str, budget: Budget, default_agent: str
) -> Callable[[int, bytes], BatchLine]:
    """Return the function that reads a line of an input.

    Arguments:
        budget: limits of each line.
        default_agent: agent of lines whose model is the default agent.
    """
    limits = {name: value for name, value in asdict(budget).items() if value is not None}
    return partial(_parse_line, endpoint, limits or None, default_agent)


def _parse_line(
    endpoint: str, budget: dict[str, Any] | None, default_agent: str, number: int, text: bytes
) -> BatchLine:
    try:
        line = msgspec.json.decode(text, type=_Line)
        msgspec.json.decode(line.body, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise LineError(f"no request: {error}") from error
    if line.url != endpoint or line.method != "POST":
        shown = quote_value(f"{line.method} {line.url}")
        raise LineError(f"the request is {shown}, but the batch is for POST {endpoint}")
    parse = parse_chat if endpoint == ENDPOINTS[0] else parse_response
    try:
        request, wanted = parse(bytes(line.body))
    except RequestError as error:
        raise LineError(error.message) from error
    if request.stream:
        raise LineError("stream cannot be used in a batch")
    if getattr(request, "previous_response_id", None):
        raise LineError("previous_response_id cannot be used: each line is a task of its own")
    if not isinstance(wanted.prompt, str):
        raise LineError("images cannot be used in a batch")
    return BatchLine(
        number=number,
        id=check_line_id(line.custom_id),
        prompt=wanted.prompt,
        agent=default_agent if wanted.agent == DEFAULT_AGENT else wanted.agent,
        budget=budget,
        outputs=wanted.outputs,
    )
