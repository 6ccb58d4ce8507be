"""Requests that the model refuses as too long: shortened, the window learnt, or an honest end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mudroom import Agent, Compaction, Reason
from mudroom._adapters.models.scripted import Answer, Request, Script, call
from mudroom._core.events import TurnFailed
from mudroom._replay import replay
from mudroom.errors import ContextOverflow
from mudroom.testing.invariants import find_violations

from .conftest import Stage, is_summary, is_valid, join_request, make_reader, make_talker

LONG_AGENT = Agent(name="long", description="Has many rules.", instructions="rule " * 400)
"""An agent whose instructions are longer than the context windows of these tests."""


def refuse_above(tokens: int, script: Script, message: str = "the prompt is too long") -> Script:
    """Return a script that refuses requests with more tokens; a token is 4 characters."""
    assert callable(script)

    def answer(request: Request) -> Answer:
        size = len(request.system) + len(join_request(request))
        return ContextOverflow(message) if size > tokens * 4 else script(request)  # type: ignore

    return answer


REFUSALS = (
    "prompt is too long: 205000 tokens > 200000 maximum",
    "prompt is too long: 900000 tokens > 200000 maximum",
    "`inputs` tokens + `max_new_tokens` must be <= 200000. Given: 199999 `inputs` tokens",
    "prompt is too long",
)


@pytest.mark.parametrize(
    ("refusal", "limit", "make_script"),
    [
        *((refusal, 6_000, make_talker) for refusal in REFUSALS),
        *((refusal, 30_000, make_reader) for refusal in REFUSALS),
        (REFUSALS[0], 6_000, make_reader),
        (REFUSALS[0], 30_000, make_talker),
    ],
)
async def test_a_refusal_shortens_whatever_the_estimate_of_the_engine(
    stage: Stage, make_script: Callable[[int], Script], limit: int, refusal: str
) -> None:
    stage.write_files(40)
    script = refuse_above(limit, make_script(30), refusal)
    async with stage.open(script, compaction=Compaction(context_window=200_000)) as session:
        report = await session.run("Read all files. Never touch 3.txt.")
    assert (report.reason, report.text) == (Reason.GOAL, "done"), report.error
    assert stage.select(TurnFailed)
    assert len(stage.select(TurnFailed)) <= 24
    assert "Never touch 3.txt." in join_request(stage.model.requests[-1])
    assert all(is_valid(request.messages) for request in stage.model.requests)
    assert not find_violations(stage.events)
    assert await replay(stage.events) == stage.events


async def test_the_learnt_window_holds_in_a_resumed_session(stage: Stage) -> None:
    stage.write_files(40)
    script = refuse_above(15_000, make_talker(20))
    async with stage.open(script, compaction=Compaction(context_window=None)) as session:
        await session.run("Read all files.")
    assert [failure.overflow > 15_000 for failure in stage.select(TurnFailed)] == [True]
    length = next(n for n, event in enumerate(stage.events) if isinstance(event, TurnFailed)) + 1
    async with stage.open(
        script, compaction=Compaction(context_window=None), resume=session.id, kept=length
    ) as resumed:
        report = await resumed.resume_unfinished()
    assert report is not None and report.reason is Reason.GOAL
    assert len(stage.select(TurnFailed)) == 1
    assert await replay(stage.events) == stage.events


async def test_one_result_that_is_larger_than_the_window_is_cut(stage: Stage) -> None:
    stage.write_files(1, length=48_000)
    script = refuse_above(8_000, make_reader(1))
    async with stage.open(script, compaction=Compaction(context_window=None)) as session:
        report = await session.run("Read the file.")
    assert (report.reason, report.text) == (Reason.GOAL, "done")
    text = join_request(stage.model.requests[-1])
    assert "cut to save space: the whole result is in" in text
    assert await replay(stage.events) == stage.events


@pytest.mark.parametrize("limit", [100, 2_500])
async def test_a_context_that_cannot_be_made_to_fit_ends_with_the_words_it_had(
    stage: Stage, limit: int
) -> None:
    def script(request: Request) -> Answer:
        if request.turn == 0:
            return ["my first finding", call("glob", pattern="*")]
        return ContextOverflow("the prompt is too long")

    answers = refuse_above(limit, script) if limit == 100 else script
    async with stage.open(answers, compaction=Compaction(context_window=None)) as session:
        report = await session.run("Look around.")
    assert report.reason is Reason.ERROR
    assert report.error.startswith("its context cannot be made to fit: the prompt is too long")
    assert report.text == ("" if limit == 100 else "my first finding")
    assert len(stage.model.requests) <= 5
    assert await replay(stage.events) == stage.events


async def test_a_window_smaller_than_the_system_prompt_ends_the_run_with_a_remedy(
    stage: Stage,
) -> None:
    script = refuse_above(300, lambda _: "done")
    async with stage.open(
        script, compaction=Compaction(context_window=300), agent=LONG_AGENT
    ) as session:
        for _ in range(2):
            report = await session.run("Look around.")
            assert (report.reason, report.text) == (Reason.ERROR, "")
            assert report.error == (
                "its context cannot be made to fit: the prompt is too long. Use a model with a "
                "larger context window, or fewer tools and shorter instructions."
            )
    assert len(stage.model.requests) == 2, "a request that cannot be shortened is not repeated"
    assert not stage.compactions
    assert await replay(stage.events) == stage.events


async def test_a_window_setting_smaller_than_the_system_prompt_stops_no_work(stage: Stage) -> None:
    stage.write_files(3, length=400)
    async with stage.open(
        make_reader(3), compaction=Compaction(context_window=300), agent=LONG_AGENT
    ) as session:
        report = await session.run("Read all files.")
    assert (report.reason, report.text) == (Reason.GOAL, "done")
    summaries = [request for request in stage.model.requests if is_summary(request)]
    assert len(summaries) <= 3, "a compaction that does not help is not bought for each turn"
    assert await replay(stage.events) == stage.events


async def test_without_automatic_compaction_a_refusal_ends_the_run(stage: Stage) -> None:
    stage.write_files(40)
    script = refuse_above(15_000, make_reader(30))
    async with stage.open(
        script, compaction=Compaction(context_window=None, automatic=False)
    ) as session:
        report = await session.run("Read all files.")
    assert (report.reason, len(stage.select(TurnFailed))) == (Reason.ERROR, 1)
    assert not stage.clearings


async def test_a_full_session_goes_on_when_it_is_continued_or_compacted(stage: Stage) -> None:
    stage.write_files(40)
    talk = make_talker(12)
    async with stage.open(talk, compaction=Compaction(context_window=None)) as session:
        await session.run("Read all files. Never touch 3.txt.")
    small = refuse_above(15_000, talk)
    async with stage.open(
        small, compaction=Compaction(context_window=None), resume=session.id
    ) as again:
        report = await again.run("Go on.")
    assert report.reason is Reason.GOAL
    assert stage.compactions[-1].run == "2"
    assert await replay(stage.events) == stage.events


@pytest.mark.parametrize("is_automatic", [True, False])
async def test_compact_works_when_the_conversation_is_too_long(
    stage: Stage, is_automatic: bool
) -> None:
    stage.write_files(40)
    talk = make_talker(12, lambda request: "Goal: the short notes")
    async with stage.open(talk, compaction=Compaction(context_window=None)) as session:
        await session.run("Read all files. Never touch 3.txt.")
    short = refuse_above(
        15_000, lambda request: talk(request) if is_summary(request) else "as I said"
    )
    async with stage.open(
        short, compaction=Compaction(context_window=None, automatic=is_automatic), resume=session.id
    ) as again:
        report = await again.compact()
        assert (report.reason, report.text) == (Reason.GOAL, "Goal: the short notes")
        report = await again.run("Go on.")
    assert report.reason is Reason.GOAL
    text = join_request(stage.model.requests[-1])
    assert "Goal: the short notes" in text
    assert "Never touch 3.txt." in text
    assert not find_violations(stage.events)
    assert await replay(stage.events) == stage.events
