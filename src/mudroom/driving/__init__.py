"""Driving a session: what a screen or a server needs between its client and a `Session`.

`SessionDriver` queues the client's prompts, stops them, and reopens the session when its options
change. `Questions` holds the tool calls awaiting the client's decision. All that remains for a
server is to map messages: each message of its protocol becomes one call, each event one message.

Servers also find here: `check_prompt`, `check_outputs` and `explain_mismatch`, which check what
clients send; `Peer`, which tracks the open requests between a server and its client, in both
directions; `FairSlots`, which shares slots for work between clients; `Listener`, which accepts an
HTTP server's connections; `make_private_file` and `replace_private_file`, which write files that no
other user may read; and `delete_session`, which deletes a session with its files. `RunControls`,
`McpControls` and `Notice` are the types of `session.runs`, `session.mcp` and the items of
`session.notices`.

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

from typing import TYPE_CHECKING

from .._platform.imports import load_later

if TYPE_CHECKING:
    from .._adapters.journals.sessions import delete_session
    from .._core.notices import Notice
    from .._core.schemas import explain_mismatch
    from .._peers import Peer, PeerGone
    from .._platform.connection_limits import ConnectionLimits
    from .._platform.private_files import make_private_file, replace_private_file
    from .._session.controls import McpControls, RunControls
    from .driver import SessionDriver, SessionStart
    from .fair_slots import FairSlots
    from .listening import Listener, ListenOptions, Refusal, ServerAddress
    from .questions import Question, Questions
    from .turn import Turn, check_outputs, check_prompt

__all__ = [
    "ConnectionLimits",
    "FairSlots",
    "ListenOptions",
    "Listener",
    "McpControls",
    "Notice",
    "Peer",
    "PeerGone",
    "Question",
    "Questions",
    "Refusal",
    "RunControls",
    "ServerAddress",
    "SessionDriver",
    "SessionStart",
    "Turn",
    "check_outputs",
    "check_prompt",
    "delete_session",
    "explain_mismatch",
    "make_private_file",
    "replace_private_file",
]

# A server can answer its first request before importing what a session needs.
__getattr__ = load_later(
    __name__,
    {
        "._adapters.journals.sessions": "delete_session",
        "._core.notices": "Notice",
        "._core.schemas": "explain_mismatch",
        "._peers": "Peer PeerGone",
        "._platform.connection_limits": "ConnectionLimits",
        "._platform.private_files": "make_private_file replace_private_file",
        "._session.controls": "McpControls RunControls",
        "driver": "SessionDriver SessionStart",
        "fair_slots": "FairSlots",
        "listening": "ListenOptions Listener Refusal ServerAddress",
        "questions": "Question Questions",
        "turn": "Turn check_outputs check_prompt",
    },
)
