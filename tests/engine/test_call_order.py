"""Calls of one answer have the results that they would have one after another, as written."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.engine.conftest import Stage
from tests.long_form import count_examples

from mudroom import Effect, Mode, Permissions, Session, Tool, ToolCallBlock, tool
from mudroom._adapters.models.scripted import ScriptedModel, call
from mudroom.testing.clock import run_virtual

SEEDS = count_examples(12, 400)
NAMES = ("a.txt", "b.txt", "c.txt")
WORDS = ("one", "two", "three")


def make_call(rng: random.Random) -> ToolCallBlock:
    """Return a random call that reads or changes a file."""
    name, word, other = rng.choice(NAMES), rng.choice(WORDS), rng.choice(WORDS)
    return rng.choice(
        [
            call("read", file_path=name),
            call("grep", pattern=word, output_mode="content"),
            # One name: two files written within a tick of the kernel's clock have no order.
            call("glob", pattern=name),
            call("write", file_path=name, content=f"{word}\n{rng.randrange(9)}\n"),
            call("edit", file_path=name, old_string=word, new_string=other),
            call("bash", command=f"cat {name}; echo {word} >> {name}"),
            call("bash", command=f"rm -f {name}"),
        ]
    )


async def run_answers(folder: Path, answers: Sequence[Any]) -> tuple[list[str], dict[str, str]]:
    """Return the results of all calls, and the files at the end."""
    folder.mkdir()
    (folder / "a.txt").write_text("one\n")
    model = ScriptedModel([*answers, "done"])
    options: dict[str, Any] = {"journal": "memory", "sandbox": "off"}
    async with Session(
        model=model, cwd=str(folder), permissions=Permissions(mode=Mode.BYPASS), **options
    ) as (session):
        await session.run("Go.")
    results = [result.text for request in model.requests[1:] for result in request.results]
    return results, {path.name: path.read_text() for path in folder.iterdir()}


@pytest.mark.parametrize("seed", range(SEEDS))
async def test_the_results_are_those_of_one_call_after_another(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    calls = [make_call(rng) for _ in range(rng.randint(2, 8))]
    together = await run_answers(tmp_path / "together", [calls])
    in_turn = await run_answers(tmp_path / "in turn", [[each] for each in calls])
    assert together == in_turn, calls


def make_slow_tool(name: str, effect: Effect, log: list[str]) -> Tool:
    """Return a tool that takes a second, and notes when it begins and ends."""

    @tool(effect=effect)
    async def act(key: str = "") -> str:
        log.append(f"{name}{key} begins")
        await asyncio.sleep(1)
        log.append(f"{name}{key} ends")
        return name

    return replace(act, name=name, get_key=attrgetter("key"))


@pytest.mark.parametrize(
    ("names", "seconds"),
    [
        (["look", "look", "look"], 1),
        (["act", "look", "look", "act"], 3),
        (["look", "act", "look"], 3),
        (["set", "look"], 2),
        (["look", "set", "look", "look"], 3),
        (["look", "task", "task"], 1),
        (["task", "look", "task"], 1),
        (["act", "task", "task", "look"], 2),
    ],
)
def test_calls_wait_only_where_that_could_be_noticed(
    stage: Stage, names: list[str], seconds: int
) -> None:
    log: list[str] = []
    kinds = {"look": Effect.PURE, "act": Effect.EFFECTFUL, "set": Effect.KEYED}
    tools = [make_slow_tool(name, effect, log) for name, effect in kinds.items()]

    async def answer(request: Any) -> Any:
        if request.prompt == "PARENT":
            calls = [call(name, prompt="CHILD") if name == "task" else call(name) for name in names]
            return "end" if request.turn else calls
        await asyncio.sleep(1)
        return "report"

    assert run_virtual(stage.run(answer, tools=tools)).seconds == pytest.approx(seconds, abs=0.1)
