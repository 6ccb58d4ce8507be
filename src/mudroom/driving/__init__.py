"""Driving a session: what a screen or a server needs between its client and a `Session`.

`SessionDriver` queues the client's prompts, stops them, and opens the session again when its
options change. `Questions` holds the tool calls that the client must decide on. A server is then
a mapping of messages: each message of its protocol becomes one call, each event one message.

Example:
    questions = Questions()

    def make_session(model: str, start: SessionStart) -> Session:
        return Session(model=model, cwd=".", approver=questions, **start.options)

    async def use(driver: SessionDriver[str]) -> None:
        first = driver.submit("Which testing framework does this project use?")
        second = driver.submit("Where are its tests?", key="line 2")
        driver.withdraw("line 2")
        for turn in (first, second):
            report = await turn.wait()
            print(report.text if report else "It was stopped before it began.")

    async def answer(question: Question) -> None:
        question.answer(ApprovalDecision(False, "Not now."))

    async with SessionDriver(make_session, "offline", questions=questions) as driver:
        await use(driver)
        driver.plan = "offline"  # the next prompt begins with this model
        for question in questions.list():
            await answer(question)
"""

from __future__ import annotations

from .driver import SessionDriver, SessionStart
from .questions import Question, Questions
from .turn import Turn

__all__ = ["Question", "Questions", "SessionDriver", "SessionStart", "Turn"]
