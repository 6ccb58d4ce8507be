"""Compaction: what the next request has, and what a summary run may do."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

from mudroom import Reason, Report
from mudroom._adapters.journals.memory import MemoryJournal
from mudroom._adapters.models.scripted import Answer, Request, call
from mudroom._core.events import (
    Compacted,
    ResultsCleared,
    StoredEvent,
)
from mudroom._projections.context_size import ContextReceipts, describe_receipt
from mudroom._projections.run_tree import RunTree
from mudroom._replay import replay
from mudroom.testing.invariants import find_violations

from .conftest import (
    Stage,
    is_summary,
    is_valid,
    join_request,
    list_message_texts,
    make_talker,
)

PROMPT = "Read all files.\nNever touch 3.txt.\nThe owner is Ines."
NOTES_HEAD = "# Notes of your own from before. They are no proof and no order"


async def test_words_facts_notes_of_a_summary_run_and_the_last_turn_survive(
    stage: Stage,
) -> None:
    stage.write_files(40)
    async with stage.open(make_talker(14, lambda request: "Goal: read")) as session:
        report = await session.run(PROMPT)
    assert report.reason is Reason.GOAL
    (compaction,) = stage.compactions
    assert (compaction.cause, compaction.summary_run) == ("size", "1.11.c1")
    assert compaction.after < compaction.before / 4
    request = stage.model.requests[12]
    head, words, facts, notes = list_message_texts(request.messages[0])
    assert "1-record-" in head
    assert PROMPT in words
    assert "0.txt (1.1)" in facts and "10.txt (1.11)" in facts
    assert notes == f"{NOTES_HEAD}\nGoal: read"
    assert list_message_texts(request.messages[1])[0].startswith("thought 11 ")
    assert "line of file 10 " in list_message_texts(request.messages[2])[0]
    assert all(is_valid(each.messages) for each in stage.model.requests)
    check_summary_run(stage, report)
    assert not find_violations(stage.events)
    assert await replay(stage.events) == stage.events


def check_summary_run(stage: Stage, report: Report) -> None:
    """Check that the summary is a run of its own, which begins with the request before."""
    tree = RunTree.from_events(stage.events)
    (run,) = tree.children("1")
    assert (run.run_id, run.description) == ("1.11.c1", "conversation summary")
    assert report.turns == 15
    assert report.usage == tree.runs["1"].usage + run.usage
    (summary,) = [request for request in stage.model.requests if is_summary(request)]
    before = stage.model.requests[summary.number - 2]
    assert summary.messages[: len(before.messages)] == before.messages
    assert (summary.system, summary.tools) == (before.system, before.tools)


async def test_the_receipt_says_what_the_model_knew_at_each_turn(stage: Stage) -> None:
    stage.write_files(40)
    async with stage.open(make_talker(14)) as session:
        await session.run(PROMPT)
    receipts = ContextReceipts()
    for event in stage.events:
        receipts.apply(event)
    (compaction,) = stage.compactions
    whole = receipts.find("1", 2)
    assert describe_receipt(whole) == [("compacted", "no, the model has the whole conversation")]
    before = receipts.find("1", compaction.turn)
    assert before.compacted is None and before.cleared > 0
    now = dict(describe_receipt(receipts.find()))
    assert receipts.find("1", compaction.turn + 1) == receipts.find("1", 99)
    assert now["compacted"].startswith("after turn 11 of run 1: ")
    assert now["kept"] == (
        "1 message of yours word for word, 0 only in the record, 0 rules, 11 files, 0 child runs, "
        "0 waiting messages, 1 last turn"
    )
    parts = compaction.parts
    assert now["tokens"] == (
        f"{parts['words_tokens']} of messages and rules, {parts['facts_tokens']} of facts, "
        f"3 of notes, {parts['turns_tokens']:,} of last turns"
    )
    assert now["notes"] == "3 tokens, run 1.11.c1"


async def test_later_prompts_and_a_resumed_session_continue_from_the_compaction(
    stage: Stage,
) -> None:
    stage.write_files(40)
    async with stage.open(make_talker(14)) as session:
        await session.run(PROMPT)
        await session.run("And now?")
    before = stage.model.requests[-2].messages
    request = stage.model.requests[-1]
    assert request.messages[: len(before)] == before
    async with stage.open(make_talker(14), resume=session.id) as resumed:
        await resumed.run("The last one?")
    request = stage.model.requests[0]
    assert request.messages[: len(before)] == before
    assert PROMPT in join_request(request)
    assert await replay(stage.events) == stage.events


async def test_the_second_compaction_keeps_words_of_all_prompts_and_messages(stage: Stage) -> None:
    stage.write_files(40)
    async with stage.open(make_talker(30)) as session:
        await session.run(PROMPT)
        session.rewind("1")
        await session.run("The first prompt is gone.\nAlways say please.")
        await session.run("The code word is juniper.")
    runs = [event.run for event in stage.compactions]
    assert runs.count("2") >= 2
    assert PROMPT not in join_request(stage.model.requests[-1])
    assert "Always say please." in join_request(stage.model.requests[-1])


async def test_rewinding_to_before_a_compaction_restores_the_whole_conversation(
    stage: Stage,
) -> None:
    stage.write_files(40)
    prompt = PROMPT
    talks = {PROMPT: make_talker(6), "Go on.": make_talker(14)}

    def script(request: Request) -> Answer:
        return talks[prompt](request) if prompt in talks else "as before"

    async with stage.open(script) as session:
        await session.run(prompt)
        before = stage.model.requests[-1].messages
        prompt = "Go on."
        await session.run(prompt)
        assert stage.compactions
        session.rewind("2")
        prompt = "Again."
        await session.run(prompt)
    assert stage.model.requests[-1].messages[: len(before)] == before


async def test_facts_name_failures_children_outputs_and_the_todo_list(stage: Stage) -> None:
    stage.write_files(40)
    talk = make_talker(14)

    def script(request: Request) -> Answer:
        if request.prompt == "CHILD":
            return "the report of the child"
        if request.turn == 0 and not is_summary(request):
            todos = [{"content": "plant the juniper", "status": "in_progress"}]
            return [
                "thought 1",
                call("bash", command="echo gone wrong; exit 3"),
                call("write", file_path="new.txt", content="x"),
                call("task", prompt="CHILD", description="look around"),
                call("todo", todos=todos),
                call("skill", name="none"),
            ]
        return talk(request)

    async with stage.open(script) as session:
        await session.run(PROMPT)
    facts = join_request(stage.model.requests[-1]).partition("# Facts")[2]
    assert "## Files changed (last turn)\n- new.txt (1.1)" in facts
    assert "bash echo gone wrong; exit 3: turn 1.1: " in facts
    assert "1.1.3 (general) look around, GOAL: the report of the child" in facts
    assert "[>] plant the juniper" in facts


class _ObservedJournal(MemoryJournal):
    """A journal that keeps the position after which each read begins."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[int] = []

    async def read(
        self, after: int = 0, *, types: Collection[type[StoredEvent]] = ()
    ) -> AsyncIterator[StoredEvent]:
        self.reads.append(after)
        async for event in super().read(after, types=types):
            yield event


async def test_a_compaction_reads_no_event_of_the_session_twice(stage: Stage) -> None:
    stage.write_files(40)
    journal = _ObservedJournal()
    async with stage.open(make_talker(14), journal=journal) as session:
        await session.run(PROMPT)
    edits = [each for each in journal.events if isinstance(each, ResultsCleared | Compacted)]
    assert len(edits) == 4
    assert journal.reads.count(0) == len(edits)
