"""The firewall: only brief and report pass between a parent and its child.

Each text that a run writes or reads has its own mark; the requests are searched for marks of other
runs.
"""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Struct, json

from mudroom import Budget, Session, TextBlock, ThinkingBlock, ToolCallBlock, UserMessage
from mudroom._adapters.models.scripted import Answer, Request, ScriptedModel, call

from ..worker_kinds import RAY

MARK = re.compile(r"<(\d+(?:\.\d+)*) (\w+) \d+>")
EXAMPLES = 10_000 if os.environ.get("MUDROOM_LONG") else 120


class RunScript(Struct, frozen=True):
    """One run of a tree: its calls in each turn, and its children.

    Arguments:
        name: place in the tree, "1.2" is the second child of "1".
        acts: for each turn the kinds of its parallel calls.
        children: started in parallel, after the acts.
        limit: turns of the run, None for enough.
    """

    name: str
    acts: tuple[tuple[str, ...], ...] = ()
    children: tuple[RunScript, ...] = ()
    limit: int | None = None


class MarkingModel:
    """A scripted model for all runs of a tree.

    It marks each text with the run's name and its kind.
    """

    def __init__(self, root: RunScript, folder: Path) -> None:
        self.members: dict[str, RunScript] = {}
        self.folder = folder
        self.count = 0
        self._add(root)

    def _add(self, member: RunScript) -> None:
        self.members[member.name] = member
        for child in member.children:
            self._add(child)

    def make_mark(self, member: RunScript, kind: str) -> str:
        """Return a new text that names its run and its kind."""
        self.count += 1
        return f"<{member.name} {kind} {self.count}>"

    def answer(self, request: Request) -> Answer:
        """Return the next turn of the run that sent the request."""
        member = self.members[request.prompt.split()[0]]
        if not request.tools or request.turn > len(member.acts):
            return self.make_mark(member, "report")
        thought = ThinkingBlock(self.make_mark(member, "thinking"))
        if request.turn == len(member.acts):
            return [
                thought,
                *(self._start(child) for child in member.children),
                self.make_mark(member, "report"),
            ]
        return [
            thought,
            self.make_mark(member, "word"),
            *(self._call(member, act) for act in member.acts[request.turn]),
        ]

    def _start(self, child: RunScript) -> ToolCallBlock:
        return call(
            "task",
            prompt=f"{child.name} {self.make_mark(child, 'brief')}",
            description=f"d {child.name}",
            max_turns=child.limit,
        )

    def _call(self, member: RunScript, act: str) -> ToolCallBlock:
        name = f"{self.count}.txt"
        if act == "read":
            (self.folder / name).write_text(self.make_mark(member, "file"))
            return call("read", path=name)
        if act == "write":
            return call("write", path=f"new-{name}", content=self.make_mark(member, "written"))
        if act == "fail":
            return call("read", path=self.make_mark(member, "error"))
        if act == "todo":
            return call(
                "todo",
                todos=[
                    {
                        "content": self.make_mark(member, "todo"),
                        "status": "pending",
                        "activeForm": "doing",
                    }
                ],
            )
        return call("bash", command=f"echo '{self.make_mark(member, 'shell')}'")


async def collect_requests(root: RunScript, worker: str = "local") -> list[Request]:
    """Return all requests of a run tree in a folder of its own."""
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base, "work")
        folder.mkdir()
        family = MarkingModel(root, folder)
        model = ScriptedModel(family.answer)
        options: dict[str, Any] = {
            "journal": "memory",
            "home": base,
            "environ": {},
            "sandbox": "off",
            "budget": Budget(depth=3),
            "worker": worker,
        }
        async with Session(model=model, cwd=str(folder), **options) as session:
            await session.run(f"{root.name} <{root.name} brief 0>")
        return model.requests


def find_leaks(requests: list[Request]) -> list[str]:
    """Return the marks in requests of runs that they must not reach."""
    leaks: list[str] = []
    for request in requests:
        own_name = request.prompt.split()[0]
        sent = request.system + json.encode(request.messages).decode()
        for owner, kind in MARK.findall(sent):
            child = owner.rpartition(".")[0] == own_name
            if owner != own_name and not (child and kind in ("brief", "report")):
                leaks.append(f"{kind} of {owner} in a request of {own_name}")
    return leaks


@pytest.mark.parametrize("worker", ["local", "process:2", RAY])
async def test_only_brief_and_report_pass_between_parent_and_child(worker: str) -> None:
    everything = (("read", "bash", "fail"), ("write", "todo", "read"))
    grandchild = RunScript("1.2.1", everything)
    children = (
        RunScript("1.1", everything),
        RunScript("1.2", everything, (grandchild,)),
        RunScript("1.3", everything, limit=1),
    )
    requests = await collect_requests(RunScript("1", everything, children), worker)
    assert find_leaks(requests) == []
    seen = {
        mark
        for request in requests
        for mark in MARK.findall(json.encode(request.messages).decode())
    }
    kinds = {"brief", "report", "thinking", "word", "file", "written", "error", "todo", "shell"}
    assert {("1.1", kind) for kind in kinds} <= seen, "the child reads all its own marks"
    parents = [request for request in requests if request.prompt.startswith("1 ")]
    assert all(f"<1.{n} report" in json.encode(parents[-1].messages).decode() for n in (1, 2, 3)), (
        "the parent reads all reports"
    )


acts = st.lists(
    st.lists(st.sampled_from(["read", "write", "fail", "todo"]), min_size=1, max_size=3).map(tuple),
    max_size=3,
).map(tuple)


def run_trees(name: str, depth: int) -> st.SearchStrategy[RunScript]:
    """Return a strategy for run trees of `depth` levels with up to three children per run."""
    none: st.SearchStrategy[tuple[RunScript, ...]] = st.just(())
    below = (
        [
            st.tuples(*(run_trees(f"{name}.{n}", depth - 1) for n in range(1, width + 1)))
            for width in (1, 2, 3)
        ]
        if depth
        else []
    )
    limit = st.sampled_from([None, 1, 2]) if "." in name else st.none()
    return st.builds(RunScript, st.just(name), acts, st.one_of(none, *below), limit)


@pytest.mark.timeout(5_000)
def test_the_firewall_holds_in_any_run_tree(record_property: Callable[[str, str], None]) -> None:
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(run_trees("1", 2))
    def assert_firewall(root: RunScript) -> None:
        assert find_leaks(asyncio.run(collect_requests(root))) == []

    assert_firewall()
    record_property(
        "figure",
        f"firewall in generated run trees\t{EXAMPLES:,} trees, no leak",
    )


def test_the_search_finds_a_leak() -> None:
    leak = Request(
        "system",
        (),
        (UserMessage((TextBlock("1.1 <1.1 brief 1>"), TextBlock("<1 word 2> <1.2 report 3>"))),),
        1,
    )
    assert find_leaks([leak]) == [
        "word of 1 in a request of 1.1",
        "report of 1.2 in a request of 1.1",
    ]
