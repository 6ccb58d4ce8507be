"""The firewall: nothing of a child is in any request of its parent but the report, nothing of the parent's in the child's but the brief.

Every text a run writes, reads or is told carries a mark of its own; then the requests are searched for marks that must not be there.
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

from mudroom import Budget, Session, TextBlock, ThinkingBlock, UserMessage
from mudroom.models.scripted import Request, ScriptedModel, call

MARK = re.compile(r"<(\d+(?:\.\d+)*) (\w+) \d+>")
CASES = 10_000 if os.environ.get("MUDROOM_LONG") else 200


class Member(Struct, frozen=True):
    """One run of a family: what it does in each turn, and whom it has as children.

    Arguments:
        name: its place, "1.2" the second child of "1". acts: for each turn, kinds of calls made side by side.
        children: started all at once, after the acts. limit: turns it is allowed, None for enough.
    """

    name: str
    acts: tuple[tuple[str, ...], ...] = ()
    children: tuple[Member, ...] = ()
    limit: int | None = None


class Family:
    """A model that plays all members, and marks every word of each with its name and kind."""

    def __init__(self, root: Member, folder: Path) -> None:
        self.members, self.folder, self.count = dict[str, Member](), folder, 0
        self._enrol(root)

    def _enrol(self, member: Member) -> None:
        self.members[member.name] = member
        for child in member.children:
            self._enrol(child)

    def mark(self, member: Member, kind: str) -> str:
        """Words that say whose they are, each time others."""
        self.count += 1
        return f"<{member.name} {kind} {self.count}>"

    def answer(self, request: Request) -> Any:
        """The next turn of whoever is asked."""
        member = self.members[request.prompt.split()[0]]
        if not request.tools or request.turn > len(member.acts):
            return self.mark(member, "report")
        thought = ThinkingBlock(self.mark(member, "thinking"))
        if request.turn == len(member.acts):
            return [
                thought,
                *(self._start(child) for child in member.children),
                self.mark(member, "report"),
            ]
        return [
            thought,
            self.mark(member, "word"),
            *(self._call(member, act) for act in member.acts[request.turn]),
        ]

    def _start(self, child: Member) -> Any:
        return call(
            "task",
            prompt=f"{child.name} {self.mark(child, 'brief')}",
            description=f"d {child.name}",
            max_turns=child.limit,
        )

    def _call(self, member: Member, act: str) -> Any:
        name = f"{self.count}.txt"
        if act == "read":
            (self.folder / name).write_text(self.mark(member, "file"))
            return call("read", path=name)
        if act == "write":
            return call("write", path=f"new-{name}", content=self.mark(member, "written"))
        if act == "fail":
            return call("read", path=self.mark(member, "error"))
        if act == "todo":
            return call(
                "todo",
                todos=[
                    {
                        "content": self.mark(member, "todo"),
                        "status": "pending",
                        "activeForm": "doing",
                    }
                ],
            )
        return call("bash", command=f"echo '{self.mark(member, 'shell')}'")


async def play(root: Member) -> list[Request]:
    """All requests of a family that works in a folder of its own."""
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base, "work")
        folder.mkdir()
        family = Family(root, folder)
        model = ScriptedModel(family.answer)
        given: dict[str, Any] = {
            "journal": "memory",
            "home": base,
            "environ": {},
            "sandbox": "off",
            "budget": Budget(depth=3),
        }
        async with Session(model=model, cwd=str(folder), **given) as session:
            await session.run(f"{root.name} <{root.name} brief 0>")
        return model.requests


def trespasses(requests: list[Request]) -> list[str]:
    """Marks that stand in a request of a run they must not reach."""
    found: list[str] = []
    for request in requests:
        mine = request.prompt.split()[0]
        sent = request.system + json.encode(request.messages).decode()
        for whose, kind in MARK.findall(sent):
            child = whose.rpartition(".")[0] == mine
            if whose != mine and not (child and kind in ("brief", "report")):
                found.append(f"{kind} of {whose} in a request of {mine}")
    return found


async def test_no_byte_of_a_child_reaches_its_parent_but_the_report_and_none_of_the_parents_the_child_but_the_brief() -> (
    None
):
    everything = (("read", "bash", "fail"), ("write", "todo", "read"))
    grandchild = Member("1.2.1", everything)
    children = (
        Member("1.1", everything),
        Member("1.2", everything, (grandchild,)),
        Member("1.3", everything, limit=1),
    )
    requests = await play(Member("1", everything, children))
    assert trespasses(requests) == []
    seen = {
        mark
        for request in requests
        for mark in MARK.findall(json.encode(request.messages).decode())
    }
    kinds = {"brief", "report", "thinking", "word", "file", "written", "error", "todo", "shell"}
    assert {("1.1", kind) for kind in kinds} <= seen, "the marks are there to be found"
    parents = [request for request in requests if request.prompt.startswith("1 ")]
    assert all(f"<1.{n} report" in json.encode(parents[-1].messages).decode() for n in (1, 2, 3)), (
        "the reports did come back"
    )


acts = st.lists(
    st.lists(st.sampled_from(["read", "write", "fail", "todo"]), min_size=1, max_size=3).map(tuple),
    max_size=3,
).map(tuple)


def members(name: str, depth: int) -> st.SearchStrategy[Member]:
    """Families of up to three children a run, `depth` levels down."""
    none: st.SearchStrategy[tuple[Member, ...]] = st.just(())
    below = (
        [
            st.tuples(*(members(f"{name}.{n}", depth - 1) for n in range(1, width + 1)))
            for width in (1, 2, 3)
        ]
        if depth
        else []
    )
    limit = st.sampled_from([None, 1, 2]) if "." in name else st.none()
    return st.builds(Member, st.just(name), acts, st.one_of(none, *below), limit)


@pytest.mark.timeout(5_000)
def test_the_firewall_holds_in_any_family(record_property: Callable[[str, str], None]) -> None:
    @settings(
        max_examples=CASES,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(members("1", 2))
    def holds(root: Member) -> None:
        assert trespasses(asyncio.run(play(root))) == []

    holds()
    record_property(
        "figure",
        f"the firewall, in families made up\t{CASES:,} families, no byte where it must not be",
    )


def test_the_search_finds_what_must_not_be_there() -> None:
    leak = Request(
        "system",
        (),
        (UserMessage((TextBlock("1.1 <1.1 brief 1>"), TextBlock("<1 word 2> <1.2 report 3>"))),),
        1,
    )
    assert trespasses([leak]) == [
        "word of 1 in a request of 1.1",
        "report of 1.2 in a request of 1.1",
    ]
