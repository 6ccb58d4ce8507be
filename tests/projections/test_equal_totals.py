"""Totals of random trees of runs: all screens count the same children, calls and tokens.

Tests of the ACP server and of the viewer compare theirs with the run tree, too.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

from tests.servers.acp.trees import act, make_tree

from mudroom import Budget, Ledger, Session
from mudroom._core.events import StoredEvent
from mudroom._projections.run_tree import RunTree
from mudroom._projections.session_summary import SummaryState
from mudroom._projections.spans import SessionSpans
from mudroom._projections.stream_json import StreamJson
from mudroom.testing import MemoryJournal, ScriptedModel

TREES = 500 if os.environ.get("MUDROOM_LONG") else 20

Totals = tuple[int, int, int]
"""Children, tool calls, tokens of all runs."""


async def record_tree(seed: int, folder: Path) -> list[StoredEvent]:
    node = make_tree(random.Random(seed)) | {"end": "answer"}
    journal = MemoryJournal()
    session = Session(
        model=ScriptedModel(act),
        cwd=str(folder),
        home=str(folder / "home"),
        journal=journal,
        sandbox="off",
        prompt_budget=Budget(depth=4),
    )
    async with session:
        assert (await session.run(json.dumps(node))).ok
    return list(journal.events)


def count_in_tree(events: list[StoredEvent]) -> Totals:
    tree = RunTree.from_events(events)
    runs = tree.runs.values()
    calls = sum(run.tool_call_count for run in runs)
    return sum(run.depth > 0 for run in runs), calls, tree.roots[0].total_usage.total_tokens


def count_in_spans(events: list[StoredEvent]) -> Totals:
    spans = SessionSpans().apply_all(events)
    operations = [span.attributes["gen_ai.operation.name"] for span in spans]
    values = [
        span.attributes.get(f"gen_ai.usage.{kind}_tokens", 0)
        for span in spans
        for kind in ("input", "output")
        if span.attributes["gen_ai.operation.name"] == "chat"
    ]
    tokens = sum(value for value in values if isinstance(value, int))
    return operations.count("invoke_agent") - 1, operations.count("execute_tool"), tokens


def count_in_stream(events: list[StoredEvent]) -> tuple[int, int]:
    stream = StreamJson(session="s", cwd="/w", model="m", tools=(), agents=())
    lines = [line for event in events for line in stream.make_event_lines(event)]
    calls = [
        block
        for line in lines
        if line["type"] == "assistant"
        for block in line["message"]["content"]
        if block["type"] == "tool_use"
    ]
    return sum(line.get("subtype") == "task_started" for line in lines), len(calls)


async def test_all_screens_have_the_totals_of_the_run_tree(tmp_path: Path) -> None:
    found = 0
    for seed in range(TREES):
        events = await record_tree(seed, tmp_path)
        children, calls, tokens = count_in_tree(events)
        assert count_in_spans(events) == (children, calls, tokens), seed
        assert count_in_stream(events) == (children, calls), seed
        ledger = Ledger.from_events(events)
        descendants = RunTree.from_events(events).roots[0].descendant_usage.total_tokens
        assert (ledger.children, ledger.child_tokens) == (children, descendants), seed
        summary = SummaryState()
        for event in events:
            summary.apply(event)
        assert (summary.children, summary.tokens) == (children, tokens), seed
        found += children
    assert found > 2 * TREES
