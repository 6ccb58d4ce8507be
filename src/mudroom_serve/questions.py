"""Questions to a session's clients, who decide by sending `question.answer`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from hashlib import blake2b
from typing import Any

from msgspec import Struct, convert

from mudroom import driving
from mudroom.driving import Questions
from mudroom.ports import ApprovalDecision, ApprovalRequest
from mudroom.views import sanitize_line

from .request_errors import make_wrong_request
from .state.server_state import StateError
from .state.sessions import SessionRecords

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
    """A session's open questions, for other processes."""

    run: str  # the running root run
    questions: tuple[Question, ...]


class QuestionAnswer(
    Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="question.answer"
):
    """An answer to a question about a tool call."""

    question: str
    allow: bool
    always: bool = False  # also allow similar calls until the session is closed
    why: str = ""  # for the model if the call is denied
    arguments: dict[str, Any] | None = None  # replace the model's
    values: dict[str, Any] | None = None  # answers to a form


def make_questions(seconds: float, on_change: Callable[[], object]) -> Questions:
    """Make a session's approver, whose clients read the questions and answer by id.

    A call not answered within `seconds` is denied.
    """
    return Questions(
        seconds=seconds,
        on_change=lambda question: on_change(),
        refuse=_refuse_address,
        make_id=_make_id,
    )


def _refuse_address(request: ApprovalRequest) -> str | None:
    if request.form and request.form.url:
        return "a client of the server cannot open an address"
    return None


def use_answer(questions: Questions, body: dict[str, Any]) -> bool:
    """Use an answer. Return False if there is no such question. Raises RequestError."""
    answer = convert(body, QuestionAnswer)
    question = questions.find(answer.question)
    if question is None:
        return False
    request = question.request
    if request.form:
        decision = ApprovalDecision(answer.allow, answer.why, arguments=answer.values or {})
        return question.answer(decision)
    if answer.values is not None:
        raise make_wrong_request("the question has no form, so leave out values", "values")
    why = answer.why or ("" if answer.allow else "the user said no")
    if answer.allow and answer.always:
        questions.allow_always(request)
    return question.answer(ApprovalDecision(answer.allow, why, arguments=answer.arguments))


class QuestionNotes:
    """Notes of a session's open questions, for other processes to read."""

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
        task = asyncio.create_task(self._try_to_write())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def write(self) -> None:
        """Write a note unless it repeats the last one. Raises StateError."""
        async with self._lock:  # so that the last note has the latest questions
            text = self._describe()
            record = await self._records.read(self._session)
            if record and record.asking != text:
                await self._records.note_questions(self._session, text)

    async def finish(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _try_to_write(self) -> None:
        try:
            await self.write()
        except StateError as error:
            text = f"other processes do not show its questions: {error}"
            self._notify(f"session {self._session}: {text}")


def list_questions(questions: Questions) -> tuple[Question, ...]:
    return tuple(_describe(question) for question in questions.list())


def _describe(question: driving.Question) -> Question:
    request = question.request
    form = request.form
    return Question(
        id=question.id,
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


def _make_id(request: ApprovalRequest) -> str:
    """Make an id that stays the same when the server restarts."""
    place = f"{request.run_id}\n{request.call_id}\n{request.tool}\n{request.command_part}"
    return "q_" + blake2b(place.encode("utf-8", "replace"), digest_size=8).hexdigest()
