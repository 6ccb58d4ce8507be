"""Trees of runs for tests: a prompt that says which children a run starts, and a checker."""

from __future__ import annotations

import json
import random
from typing import Any

from mudroom.errors import ModelRefused
from mudroom.testing import Request, call

Node = dict[str, Any]


def make_tree(rng: random.Random, depth: int = 3) -> Node:
    """Return a random tree: what each run does, and its children."""
    count = rng.choice((0, 0, 1, 2, 3)) if depth else 0
    return {
        "tools": rng.randrange(3),
        "end": rng.choice(("answer", "answer", "answer", "error")),
        "background": rng.random() < 0.3,
        "children": [make_tree(rng, depth - 1) for _ in range(count)],
    }


def count_nodes(node: Node) -> int:
    return 1 + sum(map(count_nodes, node["children"]))


def act(request: Request) -> Any:
    """Do as the prompt says: a JSON object with the children, the tools and the end."""
    start = request.prompt.index("{")
    node, _ = json.JSONDecoder().raw_decode(request.prompt[start:])
    if request.turn == 0:
        calls = [call("glob", pattern=f"*{number}") for number in range(node["tools"])]
        calls += [
            call(
                "task",
                prompt=json.dumps(child),
                description=f"child {number}",
                agent="general",
                **({"background": True} if child["background"] else {}),
            )
            for number, child in enumerate(node["children"])
        ]
        if calls:
            return ["Working.", *calls]
    if node["end"] == "error" and request.turn < 2:
        return ModelRefused("the model failed")
    return "Finished."
