"""Beginnings and ends of children: one SubagentStop for each SubagentStart, however it ends."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_until

from mudroom import Budget, Integrations, Session
from mudroom._adapters.integrations.hook_programs.spec import HookSpec
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call

from .hook_helpers import make_spec

SHORT = 24
LONG = 1_000


class Tree:
    """A random tree of children that work, fail, wait, or exceed their budgets.

    Arguments:
        seed: of the random choices.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.waiting = 0

    async def answer(self, request: Request) -> Answer:
        depth = int(request.prompt.split()[0][1:])
        if request.turn > 2:
            return "the end"
        kind = self._random.choice(["end", "children", "fail", "wait", "loop", "children"])
        if kind == "children" and depth < 2:
            return [
                call(
                    "task",
                    prompt=f"D{depth + 1} child",
                    max_turns=self._random.choice([1, 2, 5]),
                    background=self._random.random() < 0.4,
                )
                for _ in range(self._random.randint(1, 3))
            ]
        if kind == "fail" and depth:
            raise RuntimeError("the model is broken")
        if kind == "wait" and depth:
            self.waiting += 1
            await asyncio.sleep(self._random.choice([0, 0.005]))
        if kind == "loop":
            return [call("read", file_path="notes.txt")]
        return "the end"


class Pairs:
    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    async def __call__(self, hook_input: dict[str, Any]) -> None:
        self.counts[hook_input["hook_event_name"], hook_input["agent_id"]] += 1

    def check(self) -> int:
        agents = {agent for _, agent in self.counts}
        for agent in agents:
            assert self.counts["SubagentStart", agent] == 1, agent
            assert self.counts["SubagentStop", agent] == 1, agent
        return len(agents)


@pytest.mark.parametrize(
    "count",
    [
        SHORT,
        pytest.param(
            LONG,
            marks=pytest.mark.skipif(
                "MUDROOM_LONG" not in os.environ, reason="long: set MUDROOM_LONG"
            ),
        ),
    ],
)
async def test_every_child_of_random_trees_begins_and_ends_once(tmp_path: Path, count: int) -> None:
    (tmp_path / "notes.txt").write_text("one\n")
    children = 0
    for seed in range(count):
        tree = Tree(seed)
        pairs = Pairs()
        async with Session(
            model=ScriptedModel(tree.answer),
            cwd=str(tmp_path),
            home=str(tmp_path / f"home{seed}"),
            journal="memory",
            environ={},
            sandbox="off",
            prompt_budget=Budget(depth=2, turns=4, children=9),
            integrations=Integrations(hooks={"SubagentStart": [pairs], "SubagentStop": [pairs]}),
        ) as session:
            prompt = asyncio.create_task(session.run("D0 root"))
            if seed % 3 == 0:
                for _ in range(seed % 200):
                    await asyncio.sleep(0)
                session.runs.cancel()
            await asyncio.wait({prompt})
        children += pairs.check()
    assert children >= count / 2


PROGRAM = """
import asyncio, sys
from pathlib import Path
from mudroom import Integrations, Session
from mudroom._adapters.models.scripted import ScriptedModel, call
from tests.integrations.test_hook_pairs import make_specs
from tests.waiting import wait_until

folder, session_id, resumes = Path(sys.argv[1]), sys.argv[2], sys.argv[3] == "resume"

async def answer(request):
    if request.prompt.startswith("D1"):
        if not resumes:
            (folder / "works").touch()
            await asyncio.Event().wait()
        # The end of the session does not wait for a hook of SessionStart that still works.
        await wait_until(lambda: (folder / "log").read_text().count("SessionStart") == 2)
        return "done"
    return "end" if request.turn else [call("task", prompt="D1 child")]

async def main():
    start = {"resume": session_id} if resumes else {"id": session_id}
    async with Session(
        model=ScriptedModel(answer), cwd=str(folder), home=str(folder / "home"), sandbox="off",
        integrations=Integrations(hook_programs=make_specs(folder)), **start,
    ) as session:
        if resumes:
            await session.resume_unfinished()
        else:
            await session.run("D0")

asyncio.run(main())
"""


def make_specs(folder: Path) -> list[HookSpec]:
    """Return hooks that write the names of events into a file."""
    events = ("SubagentStart", "SubagentStop", "SessionStart")
    return [make_spec(event, f"echo {event} >> {folder}/log") for event in events]


async def test_a_child_that_was_killed_ends_once_after_the_session_is_resumed(
    tmp_path: Path,
) -> None:
    session_id = "5e55a1d0-0000-4000-8000-0000000000aa"

    async def start(how: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, str(tmp_path), session_id, how
        )

    first = await start("new")
    await wait_until((tmp_path / "works").exists)
    first.send_signal(signal.SIGKILL)
    await first.wait()
    log = tmp_path / "log"
    assert log.read_text().split() == ["SessionStart", "SubagentStart"]
    assert await (await start("resume")).wait() == 0
    # The resumed child does not wait for the hooks of SessionStart: either line may be the last.
    lines = log.read_text().split()
    assert Counter(lines) == {"SessionStart": 2, "SubagentStart": 1, "SubagentStop": 1}
