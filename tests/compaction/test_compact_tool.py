"""The compact tool: a model compacts its own conversation, at the end of the turn."""

from __future__ import annotations

import pytest

from mudroom import Agent, Compaction
from mudroom._adapters.models.scripted import Answer, Request, Script, call
from mudroom._core.events import Compacted, RunStarted, ToolCallFinished, TurnFinished
from mudroom._replay import replay
from mudroom.testing.invariants import find_violations

from .conftest import Stage, find_thought, is_summary, join_request, make_talker

TURNS = 8
"""Turns of about 3,300 tokens: the eighth request has more than 30 % of the window."""


def make_compacting_talker(at: int = TURNS, focus: str = "the blue door") -> Script:
    """Return the script of `make_talker` that calls `compact` and `read` in one turn."""
    talk = make_talker(TURNS + 2)

    def answer(request: Request) -> Answer:
        if not is_summary(request) and find_thought(request) == at - 1:
            text = f"thought {at} {'y' * 5_000}"
            return [text, call("compact", focus=focus), call("read", file_path="0.txt")]
        return talk(request)

    return answer


def find_compact_results(stage: Stage) -> list[ToolCallFinished]:
    """Return the recorded results of the tool."""
    return [event for event in stage.select(ToolCallFinished) if event.name == "compact"]


async def test_a_model_compacts_its_conversation_at_the_end_of_the_turn(stage: Stage) -> None:
    stage.write_files(40)
    async with stage.open(
        make_compacting_talker(), compaction=Compaction(context_window=70_000)
    ) as session:
        report = await session.run("Read all files.")
    assert report.text == "done"
    (compaction,) = stage.compactions
    assert (compaction.cause, compaction.turn) == ("model", TURNS)
    assert compaction.parts["notes_tokens"]
    summaries = [request for request in stage.model.requests if is_summary(request)]
    assert len(summaries) == 1
    assert "Above all keep: the blue door" in join_request(summaries[0])
    events = stage.events
    results = [event for event in stage.select(ToolCallFinished) if event.turn == TURNS]
    assert len(results) == 2
    assert all(events.index(result) < events.index(compaction) for result in results)
    following = stage.model.requests[stage.model.requests.index(summaries[0]) + 1]
    assert "line of file 0 " in join_request(following), "results of the turn stay"
    assert await replay(events) == events


async def test_a_small_conversation_is_not_compacted(stage: Stage) -> None:
    stage.write_files(40)
    async with stage.open(
        make_compacting_talker(at=3), compaction=Compaction(context_window=70_000)
    ) as session:
        await session.run("Read all files.")
    (result,) = find_compact_results(stage)
    assert result.result.error
    assert "30 %" in result.result.text
    assert not stage.compactions


async def test_the_tool_works_without_automatic_compaction(stage: Stage) -> None:
    stage.write_files(40)
    async with stage.open(
        make_compacting_talker(), compaction=Compaction(context_window=70_000, automatic=False)
    ) as session:
        await session.run("Read all files.")
    assert [event.cause for event in stage.compactions] == ["model"]


async def test_each_cut_around_a_compaction_of_the_model_gives_the_same_end(stage: Stage) -> None:
    stage.write_files(40)
    script = make_compacting_talker()
    async with stage.open(script, compaction=Compaction(context_window=70_000)) as session:
        whole = await session.run("Read all files.")
    events = stage.events
    first = next(
        number
        for number, event in enumerate(events)
        if isinstance(event, ToolCallFinished) and event.name == "compact"
    )
    journal = stage.journal
    for cut in range(first - 2, len(events) - 1):
        stage.journal = journal
        async with stage.open(
            script, resume=session.id, kept=cut, compaction=Compaction(context_window=70_000)
        ) as resumed:
            report = await resumed.resume_unfinished()
        where = f"killed after {cut} events, the last one {events[cut - 1]!r:.200}"
        assert report is not None, where
        assert (report.text, report.turns) == (whole.text, whole.turns), where
        assert [event.cause for event in stage.select(Compacted)] == ["model"], where
        answers = [(each.run, each.turn) for each in stage.select(TurnFinished)]
        assert len(answers) == len(set(answers)) == whole.turns + 1, where
        assert not find_violations(stage.events), where


@pytest.mark.parametrize(
    ("tools", "has_tool"), [(None, False), (("read",), False), (("read", "compact"), True)]
)
async def test_children_have_the_tool_only_if_their_agent_names_it(
    stage: Stage, tools: tuple[str, ...] | None, has_tool: bool
) -> None:
    helper = Agent(name="helper", tools=tools)

    def script(request: Request) -> Answer:
        if request.prompt == "PARENT" and request.turn == 0:
            return [call("task", prompt="CHILD", agent="helper")]
        return "done"

    async with stage.open(script, agents=[helper]) as session:
        await session.run("PARENT")
    parent, child = (event.brief.tools for event in stage.select(RunStarted))
    assert "compact" in parent
    assert ("compact" in child) == has_tool
