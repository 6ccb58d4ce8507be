"""The port Approver: the clients of a session decide, by an event `question.answer`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from msgspec import Struct

from ..._core.ports import ApprovalDecision, ApprovalRequest
from ..._platform.time_limits import time_limit
from ..._projections.safe_text import sanitize_line
from ...permissions.approved_rules import ApprovedRules
from .errors import make_wrong_request
from .records.sessions import SessionRecords
from .records.state_file import StateError

_MAX_WHY = 2_000


class Question(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A question, as clients read it.

    Arguments:
        id: the same again if the server was started again meanwhile.
        run, agent: that want the call. call: id of the tool call.
        arguments: of the call.
        why: reason of the question. part: of a command, that it is about.
        change: lines of the change to a file that the call would make.
        form: JSON Schema of values that an MCP server asks for, with its `message`; the answer
            has `values`.
    """

    id: str
    run: str
    agent: str
    call: str
    tool: str
    arguments: dict[str, Any]
    why: str
    part: str = ""
    change: tuple[Any, ...] = ()
    message: str = ""
    form: dict[str, Any] | None = None


class Asking(Struct, frozen=True):
    """The open questions of a session, for other processes. `run`: root run that works."""

    run: str
    questions: tuple[Question, ...]


class Answer(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An answer to a question.

    Arguments:
        question: its id.
        allow: true if the call may run.
        always: similar calls of the session may run, too, until it is closed.
        why: text for the model if the call is denied.
        arguments: arguments to use in place of those of the model.
        values: answers to a form.
    """

    question: str
    allow: bool
    always: bool = False
    why: str = ""
    arguments: dict[str, Any] | None = None
    values: dict[str, Any] | None = None


class QuestionList:
    """The open questions of one session; an Approver.

    Arguments:
        seconds: time for an answer; then the call is denied.
        on_change: called when a question is asked or closed.
    """

    def __init__(self, seconds: float, on_change: Callable[[], None]) -> None:
        self._seconds = seconds
        self._on_change = on_change
        self._open: dict[str, tuple[Question, asyncio.Future[Answer]]] = {}
        self._approved: ApprovedRules | None = None

    def use_rules(self, approved: ApprovedRules) -> None:
        """Use the rules of the session that is open now."""
        self._approved = approved

    def list(self) -> tuple[Question, ...]:
        """Return the open questions, the oldest first."""
        return tuple(question for question, _ in self._open.values())

    async def decide(self, request: ApprovalRequest) -> ApprovalDecision:
        """Wait for the answer of a client, unless an approved rule allows the call."""
        rules = self._approved
        if request.form is None and rules and rules.allow(request.tool, request.arguments):
            return ApprovalDecision(True, "allowed for this session")
        if request.form and request.form.url:
            return ApprovalDecision(False, "a client of the server cannot open an address")
        question = make_question(request)
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._open[question.id] = (question, answered)
        self._on_change()
        try:
            async with time_limit(self._seconds):
                answer = await answered
        except TimeoutError:
            return ApprovalDecision(False, f"no one answered within {self._seconds:g} s")
        finally:
            self._open.pop(question.id, None)
            self._on_change()
        if answer.allow and answer.always and rules and request.form is None:
            rules.add(*rules.suggest(request.tool, request.arguments))
        if request.form:
            return ApprovalDecision(answer.allow, answer.why, arguments=answer.values or {})
        why = answer.why or ("" if answer.allow else "the user said no")
        return ApprovalDecision(answer.allow, why, arguments=answer.arguments)

    def answer(self, answer: Answer) -> bool:
        """Take an answer. Return False if there is no such question."""
        question, answered = self._open.get(answer.question, (None, None))
        if question is None or answered is None or answered.done():
            return False
        if question.form is None and answer.values is not None:
            raise make_wrong_request("the question has no form, so leave out values", "values")
        answered.set_result(answer)
        return True


class QuestionNotes:
    """Notes of the open questions of a session, which other processes read.

    Arguments:
        describe: returns the questions, "" for none.
        notify: takes a line for stderr.
    """

    def __init__(
        self,
        session: str,
        records: SessionRecords,
        describe: Callable[[], str],
        notify: Callable[[str], object],
    ) -> None:
        self._session = session
        self._records = records
        self._describe = describe
        self._notify = notify
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to write a note."""
        task = asyncio.create_task(self._try_to_write())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def write(self) -> None:
        """Write a note unless it is the last one again. Raises StateError."""
        async with self._lock:  # so the last note has the questions that are open then
            text = self._describe()
            record = await self._records.read(self._session)
            if record and record.asking != text:
                await self._records.note_questions(self._session, text)

    async def finish(self) -> None:
        """Wait for the notes that have begun."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _try_to_write(self) -> None:
        try:
            await self.write()
        except StateError as error:
            text = f"other processes do not show its questions: {error}"
            self._notify(f"session {self._session}: {text}")


def make_question(request: ApprovalRequest) -> Question:
    """Return a request as clients read it."""
    place = f"{request.run_id}\n{request.call_id}\n{request.tool}\n{request.command_part}"
    form = request.form
    return Question(
        id="q_" + blake2b(place.encode("utf-8", "replace"), digest_size=8).hexdigest(),
        run=request.run_id,
        agent=request.agent,
        call=request.call_id,
        tool=request.tool,
        arguments=request.arguments,
        why=sanitize_line(request.why, _MAX_WHY),
        part=request.command_part,
        change=tuple(request.change),
        message=f"{form.server}: {form.message}" if form else "",
        form=dict(form.schema) if form else None,
    )
