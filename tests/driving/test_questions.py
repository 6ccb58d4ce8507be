"""Questions: answers from both sides, time, withdrawal at the end of a run, what is remembered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import SECONDS, wait_until

from mudroom import ApprovalDecision, ApprovalRequest, Mode, Permissions, Report, Session
from mudroom.driving import Question, Questions, SessionDriver, SessionStart
from mudroom.errors import MudroomError
from mudroom.testing import Request, ScriptedModel, call

from .prompts import get_last_prompt

YES = ApprovalDecision(True, "the user said yes")
REQUEST = ApprovalRequest("1", "main", "bash", {"command": "make"}, why="no rule allows it")


def answer(request: Request) -> Any:
    """Call what the prompt names; then say what came of it."""
    prompt = get_last_prompt(request)
    if request.results:
        return " ".join(result.text for result in request.results)
    if prompt.startswith("delegate"):
        return call("task", prompt=prompt.removeprefix("delegate "), description="do it")
    if prompt.startswith("write"):
        return call("write", file_path=prompt.split()[1], content="text\n")
    return call("bash", command=prompt)


@asynccontextmanager
async def drive(folder: Path, questions: Questions) -> AsyncGenerator[SessionDriver[str]]:
    """Open a driver; its plan is the permission mode."""

    def make_session(mode: str, start: SessionStart) -> Session:
        return Session(
            model=ScriptedModel(answer),
            cwd=str(folder),
            home=str(folder / "home"),
            sandbox="off",
            environ={},
            approver=questions,
            permissions=Permissions(mode=Mode(mode), can_ask=True),
            **start.options,
        )

    driver = SessionDriver(make_session, "default", questions=questions)
    async with asyncio.timeout(SECONDS), driver:
        yield driver


async def run(driver: SessionDriver[str], prompt: str) -> str:
    report: Report[Any] | None = await driver.submit(prompt).wait()
    assert report
    return report.text


async def test_a_client_that_reads_the_list_answers_by_id(tmp_path: Path) -> None:
    changes: list[int] = []
    questions = Questions(on_change=lambda _: changes.append(len(questions.list())))
    async with drive(tmp_path, questions) as driver:
        turn = driver.submit("delegate write made.txt")
        await wait_until(questions.list)
        (question,) = questions.list()
        assert (question.request.tool, question.request.run_id) == ("write", "1.1.1")
        assert questions.list("1") == questions.list("1.1.1") == (question,)
        assert questions.list("2") == ()
        assert not questions.answer("other", YES)
        assert questions.answer(question.id, YES)
        assert not questions.answer(question.id, ApprovalDecision(False))
        assert await turn.wait()
    assert (tmp_path / "made.txt").exists()
    assert changes == [1, 0]


async def test_a_client_that_is_asked_answers_and_questions_do_not_wait(tmp_path: Path) -> None:
    both = asyncio.Barrier(2)

    async def ask(_: Question) -> ApprovalDecision:
        await both.wait()
        return YES

    questions = Questions(ask)
    async with asyncio.timeout(SECONDS):
        decisions = await asyncio.gather(questions.decide(REQUEST), questions.decide(REQUEST))
    assert decisions == [YES, YES]


Ask = Callable[[Question], Awaitable[ApprovalDecision]]


async def wait_for_ever(_: Question) -> ApprovalDecision:
    await asyncio.Event().wait()
    return YES


ENDS: dict[str, Callable[[Questions, asyncio.Task[ApprovalDecision]], object]] = {
    "another client answers": lambda questions, _: questions.answer(questions.list()[0].id, YES),
    "its run ends": lambda questions, _: questions.withdraw("1"),
    "its run is cancelled": lambda _, deciding: deciding.cancel(),
}


@pytest.mark.parametrize("end", [*ENDS, "its time is over"])
async def test_a_question_is_withdrawn_when(end: str) -> None:
    withdrawn = asyncio.Event()
    asked: list[Question] = []

    async def ask(question: Question) -> ApprovalDecision:
        asked.append(question)
        try:
            return await wait_for_ever(question)
        finally:
            withdrawn.set()

    questions = Questions(ask, seconds=None if end in ENDS else 0.01)
    deciding = asyncio.create_task(questions.decide(REQUEST))
    await wait_until(lambda: asked)
    (question,) = asked
    if end in ENDS:
        ENDS[end](questions, deciding)
    await asyncio.wait({deciding})
    assert withdrawn.is_set()
    assert questions.list() == ()
    assert not question.is_open
    assert not question.answer(YES)
    if not deciding.cancelled():
        assert deciding.result().allowed == (end == "another client answers")


async def test_the_end_of_a_run_withdraws_only_its_own_questions() -> None:
    questions = Questions()
    runs = ["1", "1.1.1", "1.1.1~2", "10", "2"]
    deciding = [
        asyncio.create_task(
            questions.decide(ApprovalRequest(run, "main", "bash", {"command": run}, why=""))
        )
        for run in runs
    ]
    await wait_until(lambda: len(questions.list()) == len(runs))
    questions.withdraw("1")
    await wait_until(lambda: sum(task.done() for task in deciding) == 3)
    assert [each.request.run_id for each in questions.list()] == ["10", "2"]
    for task in deciding:
        task.cancel()


@pytest.mark.parametrize(
    ("error", "expected"), [(MudroomError("it is gone"), "it is gone"), (ValueError("bug"), None)]
)
async def test_a_client_that_cannot_answer_denies(error: Exception, expected: str | None) -> None:
    async def ask(_: Question) -> ApprovalDecision:
        raise error

    questions = Questions(ask)
    if expected is None:
        with pytest.raises(ValueError, match="bug"):
            await questions.decide(REQUEST)
    else:
        decision = await questions.decide(REQUEST)
        assert not decision.allowed
        assert expected in decision.why
    assert questions.list() == ()


async def test_who_cannot_be_asked_is_not(tmp_path: Path) -> None:
    changes: list[object] = []
    questions = Questions(on_change=changes.append, refuse=lambda _: "the client is blind")
    async with drive(tmp_path, questions) as driver:
        assert "the client is blind" in await run(driver, "write a.txt")
    assert changes == []


async def test_ids_that_the_client_makes_do_not_collide() -> None:
    questions = Questions(make_id=lambda request: request.run_id)
    deciding = [asyncio.create_task(questions.decide(REQUEST)) for _ in range(2)]
    await wait_until(lambda: len(questions.list()) == 2)
    first, second = questions.list()
    assert first.id == "1"
    assert second.id.startswith("1_")
    for question in (first, second):
        assert question.answer(YES)
    await asyncio.gather(*deciding)


@pytest.mark.parametrize(
    ("first", "second", "is_asked"),
    [
        ("write a.txt", "write b.txt", False),
        ("write a.txt", "rm -r build", True),
        ("echo $(date) > a", "echo $(date) > a", False),  # no rule can allow it: the exact call
        ("echo $(date) > a", "echo $(date) > b", True),
    ],
)
async def test_always_holds_for_similar_calls_and_after_another_opening(
    tmp_path: Path, first: str, second: str, *, is_asked: bool
) -> None:
    asked: list[ApprovalRequest] = []

    async def ask(question: Question) -> ApprovalDecision:
        asked.append(question.request)
        questions.allow_always(question.request)
        return YES

    questions = Questions(ask)
    async with drive(tmp_path, questions) as driver:
        await run(driver, first)
        assert len(asked) == 1
        driver.open_later()
        await run(driver, second)
    assert len(asked) == 1 + is_asked


@pytest.mark.parametrize("mode", [None, *Mode])
async def test_a_mode_that_is_set_meanwhile_widens_what_is_allowed(
    tmp_path: Path, mode: Mode | None
) -> None:
    questions = Questions(refuse=lambda request: f"asked about {request.tool}")
    questions.mode = mode
    async with drive(tmp_path, questions) as driver:
        wrote = await run(driver, "write a.txt")
        ran = await run(driver, "rm -r build")
    assert ("asked about" not in wrote) == (mode in (Mode.ACCEPT_EDITS, Mode.BYPASS))
    assert ("asked about" not in ran) == (mode is Mode.BYPASS)


async def test_questions_without_a_session_allow_nothing_by_themselves() -> None:
    questions = Questions(refuse=lambda _: "no")
    assert questions.suggest_rules(REQUEST) == ()
    assert not (await questions.decide(REQUEST)).allowed
