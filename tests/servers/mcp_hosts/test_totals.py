"""Totals of random trees of runs: an MCP host gets those of the run tree."""

from __future__ import annotations

import json
import os
import random

from tests.servers.acp.trees import act, make_tree

from mudroom import Budget
from mudroom._core.events import AnyEvent, Delta, TurnFinished
from mudroom._projections.run_tree import RunTree

from .conftest import MakeHost, get_values

TREES = 200 if os.environ.get("MUDROOM_LONG") else 8


async def test_a_host_gets_the_totals_of_the_run_tree(make_host: MakeHost) -> None:
    host = make_host(act, limits=Budget(depth=4))
    events: list[AnyEvent] = []
    found = 0
    async with host.connect() as client:
        host.sessions[0].watch(events.append)
        for seed in range(TREES):
            node = make_tree(random.Random(seed)) | {"end": "answer"}
            result = await client.call_tool("task", {"prompt": json.dumps(node)})
            values = get_values(result)
            tree = RunTree.from_events([each for each in events if not isinstance(each, Delta)])
            runs = {name: run for name, run in tree.runs.items() if is_below(name, values["run"])}
            usage = tree.runs[values["run"]].total_usage
            assert values["usage"]["input_tokens"] == usage.input_tokens, seed
            assert values["usage"]["output_tokens"] == usage.output_tokens, seed
            answers = [each for each in events if isinstance(each, TurnFinished)]
            ours = [each for each in answers if is_below(each.run, values["run"])]
            assert values["usage"]["requests"] == len(ours), seed
            assert len(values["children"]) == len(runs) - 1, seed
            found += len(runs) - 1
    assert found > TREES


def is_below(run: str, root: str) -> bool:
    return run == root or run.startswith(f"{root}.")
