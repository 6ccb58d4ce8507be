"""Cost of a run of 200 turns: no compaction, old results cleared, notes bought, and both."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from mudroom import Compaction, TextBlock
from mudroom._adapters.models.pricing import calculate_cost
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._core.messages import Message, Usage
from mudroom._engine.compaction import shortening as compaction

from .conftest import Stage, is_summary, list_message_texts

PAGE = Path(__file__).parents[2] / "docs" / "long-conversations.md"
MODEL = "anthropic:claude-sonnet-4-5"
TURNS = 200
RESULT_LENGTH = 4_000
TEXT_LENGTH = 760
"""Characters of an answer: 84 % of the conversation are results."""

MOST = {"none": 1.0, "clearing": 0.6, "summary": 0.55, "both": 0.5}
"""Largest part of the tokens of a run without compaction."""


class Cost(NamedTuple):
    """Tokens of all requests, model calls for notes, and the price of all input in dollars."""

    tokens: int
    summaries: int
    usd: float


def answer(request: Request) -> Answer:
    """Write a text and read a file, 200 times; summarise in 2,000 characters."""
    if is_summary(request):
        return "note " * 400
    texts = [text for message in request.messages for text in list_message_texts(message)]
    turn = max((int(text.split()[1]) for text in texts if text.startswith("turn ")), default=0)
    if turn >= TURNS:
        return "done"
    text = f"turn {turn + 1} ".ljust(TEXT_LENGTH, "y")
    return [TextBlock(text), call("read", file_path=f"{turn % 40}.txt")]


def count_tokens(messages: tuple[Message, ...]) -> int:
    return sum(len(text) for each in messages for text in list_message_texts(each)) // 4


def measure(requests: list[Request]) -> Cost:
    """Add up all requests. The provider reads the part from its cache that the last one had."""
    head = 1_500  # system prompt and tools
    usd = 0.0
    tokens = 0
    before: tuple[Message, ...] = ()
    for request in requests:
        size = head + count_tokens(request.messages)
        is_equal = request.messages[: len(before)] == before
        cached = head + (count_tokens(before) if is_equal else 0) if before else 0
        usage = Usage(size, 0, cache_read_tokens=cached, cache_write_tokens=size - cached)
        usd += calculate_cost(MODEL, usage) or 0.0
        tokens += size
        before = request.messages
    return Cost(tokens, sum(map(is_summary, requests)), usd)


async def run_long(stage: Stage, kind: str, monkeypatch: pytest.MonkeyPatch) -> Cost:
    """Run 200 turns with a part of the compaction."""

    async def leave_out(*_: object, **__: object) -> bool:
        return False

    with monkeypatch.context() as patch:
        if kind == "summary":
            patch.setattr(compaction, "clear_old_results", leave_out)
        if kind == "clearing":
            patch.setattr(compaction, "compact", leave_out)
        async with stage.open(
            answer, compaction=Compaction(automatic=kind != "none", context_window=60_000)
        ) as session:
            report = await session.run("Read all files.")
    assert report.text == "done"
    return measure(stage.model.requests)


def read_table() -> dict[str, Cost]:
    """Return the figures in the documentation."""
    rows = re.findall(
        r"^\| (\w+)[^|]*\| ([\d,]+) \|[^|]*\| (\d+) \| \$([\d.]+) \|",
        PAGE.read_text(),
        re.MULTILINE,
    )
    return {
        kind: Cost(int(tokens.replace(",", "")), int(summaries), float(usd))
        for kind, tokens, summaries, usd in rows
    }


async def test_clearing_and_notes_cost_at_most_half_of_a_long_run_and_the_page_says_so(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.write_files(40, length=RESULT_LENGTH)
    costs = {kind: await run_long(stage, kind, monkeypatch) for kind in MOST}
    table = read_table()
    assert table.keys() == costs.keys(), list(costs.items())
    for kind, cost in costs.items():
        assert cost.tokens <= MOST[kind] * costs["none"].tokens, costs
        # The prompts have paths of the machine, so the figures differ a little.
        assert tuple(cost) == pytest.approx(tuple(table[kind]), rel=0.05), costs
