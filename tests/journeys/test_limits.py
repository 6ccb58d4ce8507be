"""Limits on the command line, with children that work at the same time and never end."""

from __future__ import annotations

import json

import pytest

from mudroom._core.messages import TextBlock, ToolCallBlock, Usage
from mudroom.testing.model_server import Fault, ModelServer, ServerAnswer, ServerRequest

from ..worker_kinds import NEEDS_RAY
from .conftest import Mudroom
from .course import MODEL

ANSWER = Usage(input_tokens=1_000, output_tokens=400)


def start_endless_children(request: ServerRequest) -> ServerAnswer:
    """Start four children, which read on without end; each answer costs the same."""
    read = {"file_path": "f0.txt", "limit": request.number + 1}
    calls = [ToolCallBlock(f"r{request.number}", "read", read)]
    if "task" in request.tools and not request.turn:
        calls = [ToolCallBlock(f"t{n}", "task", {"prompt": f"CHILD {n}"}) for n in range(4)]
    text = TextBlock("so far")
    return Fault(blocks=(text, *calls), usage=ANSWER)


TOKENS = ("--max-tokens", "10000", "error_max_tokens")
DOLLARS = ("--max-budget-usd", "0.07", "error_max_budget_usd")


@pytest.mark.parametrize(
    ("flag", "maximum", "subtype", "worker"),
    [(*DOLLARS, "local"), (*TOKENS, "process:2"), pytest.param(*DOLLARS, "ray:1", marks=NEEDS_RAY)],
)
async def test_children_pass_a_limit_by_one_answer_in_total(
    flag: str, maximum: str, subtype: str, worker: str, mudroom: Mudroom
) -> None:
    options = ("-p", "PARENT", "-o", "json", flag, maximum, "--worker", worker, *MODEL)
    async with ModelServer(start_endless_children, delay=0.02) as server:
        done = await mudroom(*options, url=server.url)
    result = json.loads(done.out)
    assert (done.code, result["subtype"], result["reason"]) == (1, subtype, "BUDGET")
    report = result["report"]
    usage = report["usage"]
    tokens = usage["input_tokens"] + usage["output_tokens"]
    price = (3 * 1_000 + 15 * 400) / 1_000_000
    spent, answer = (tokens, 1_400) if flag == "--max-tokens" else (report["usd"], price)
    assert float(maximum) - 2 * answer < spent <= float(maximum) + answer
