"""Driving a session: what a screen or a server needs between its client and a `Session`.

`SessionDriver` queues the client's prompts, stops them, and opens the session again when its
options change. `Questions` holds the tool calls that the client must decide on. A server is then
a mapping of messages: each message of its protocol becomes one call, each event one message.

For what such a server needs besides: `check_prompt`, `check_outputs` and `explain_mismatch` check
what clients send, `FairSlots` shares places for work between them, `Listener` takes the connections
of an HTTP server, and `delete_session` deletes a session with its files.

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

from .._adapters.journals.sessions import delete_session
from .._core.schemas.mismatch import explain_mismatch
from .._platform.connection_limits import ConnectionLimits
from .checks import check_outputs, check_prompt
from .driver import SessionDriver, SessionStart
from .fair_slots import FairSlots
from .listening import Listener, ListenOptions, Refusal, ServerAddress
from .questions import Question, Questions
from .turn import Turn

__all__ = [
    "ConnectionLimits",
    "FairSlots",
    "ListenOptions",
    "Listener",
    "Question",
    "Questions",
    "Refusal",
    "ServerAddress",
    "SessionDriver",
    "SessionStart",
    "Turn",
    "check_outputs",
    "check_prompt",
    "delete_session",
    "explain_mismatch",
]
