"""A process killed before or after each record around a compaction: nothing is bought twice."""

from __future__ import annotations

from mudroom import Report
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._core.events import Compacted, ResultsCleared, TurnFinished
from mudroom._replay import replay
from mudroom.testing.invariants import find_violations

from .conftest import Stage, is_valid, join_request, make_talker

PROMPT = "Read all files. Never touch 3.txt."
TURNS = 14


def has_usage_of(report: Report, whole: Report) -> bool:
    """Compare tokens. The path of the record, which requests name, is another one each time."""
    used, expected = report.usage, whole.usage
    is_near = abs(used.input_tokens - expected.input_tokens) < 50
    return is_near and used.output_tokens == expected.output_tokens


async def test_each_cut_around_a_compaction_gives_the_same_end(stage: Stage) -> None:
    stage.write_files(40)
    async with stage.open(make_talker(TURNS)) as session:
        whole = await session.run(PROMPT)
    events = stage.events
    assert len(stage.compactions) == 1
    first = next(n for n, event in enumerate(events) if isinstance(event, ResultsCleared)) - 3
    journal = stage.journal
    for cut in range(first, len(events) - 1):
        stage.journal = journal
        async with stage.open(make_talker(TURNS), resume=session.id, kept=cut) as resumed:
            report = await resumed.resume_unfinished()
        where = f"killed after {cut} events, the last one {events[cut - 1]!r:.200}"
        assert report is not None, where
        assert (report.text, report.reason, report.turns) == ("done", whole.reason, TURNS + 1), (
            where
        )
        answers = [(each.run, each.turn) for each in stage.select(TurnFinished)]
        assert len(answers) == len(set(answers)) == TURNS + 2, where
        assert len(stage.select(Compacted)) == 1, where
        assert has_usage_of(report, whole), where
        assert all(is_valid(request.messages) for request in stage.model.requests), where
        assert not find_violations(stage.events), where
        assert await replay(stage.events) == stage.events, where


async def test_each_cut_of_a_compaction_that_the_user_asked_for(stage: Stage) -> None:
    stage.write_files(40)
    async with stage.open(make_talker(3)) as session:
        await session.run(PROMPT)
        await session.compact()
    events = stage.events
    journal = stage.journal
    first = next(n for n, event in enumerate(events) if event.run == "2") + 1
    last = next(n for n, event in enumerate(events) if isinstance(event, Compacted)) + 1
    for cut in range(first, last + 1):
        stage.journal = journal
        async with stage.open(make_talker(3), resume=session.id, kept=cut) as resumed:
            report = await resumed.resume_unfinished()
            bought = len(stage.model.requests)
            await resumed.run("And now?")
        assert report is not None and report.text == "the notes"
        has_answer = any(
            isinstance(each, TurnFinished) and each.run == "2" for each in events[:cut]
        )
        assert bought == (not has_answer)
        assert len(stage.select(Compacted)) == 1
        assert "the notes" in join_request(stage.model.requests[-1])
        assert await replay(stage.events) == stage.events


async def test_a_child_compacts_keeps_its_task_whole_and_is_resumed(stage: Stage) -> None:
    stage.write_files(40)
    talk = make_talker(TURNS)
    task = f"CHILD: {'read everything; ' * 200}never stop early"

    def script(request: Request) -> Answer:
        if request.prompt == "PARENT":
            return [call("task", prompt=task)] if request.turn == 0 else "done"
        return talk(request)

    async with stage.open(script) as session:
        whole = await session.run("PARENT")
    (compaction,) = stage.compactions
    assert (compaction.run, compaction.summary_run) == ("1.1.1", f"1.1.1.{compaction.turn}.c1")
    assert task in join_request([each for each in stage.model.requests if each.prompt == task][-1])
    events = stage.events
    start = next(n for n, event in enumerate(events) if event.run.endswith(".c1"))
    journal = stage.journal
    for cut in range(start - 1, start + 6):
        stage.journal = journal
        async with stage.open(script, resume=session.id, kept=cut) as resumed:
            report = await resumed.resume_unfinished()
        assert report is not None
        assert report.text == "done" and has_usage_of(report, whole)
        assert not find_violations(stage.events)
        assert await replay(stage.events) == stage.events
