"""A server as a stranger would write it: JSON lines in and out, with public doors only."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

from mudroom import ApprovalDecision, Report, Session
from mudroom.driving import Question, Questions, SessionDriver, SessionStart, Turn
from mudroom.events import AnyEvent, Delta

MakeSession = Callable[[Questions, SessionStart], Session]


class LineServer:
    """One client, which gets lines by `write`, and its conversation."""

    def __init__(
        self, make_session: MakeSession, write: Callable[[str], object], *, resumes: bool
    ) -> None:
        self._write = write
        self._questions = Questions(on_change=self._show_question)
        self._driver = SessionDriver(
            lambda _, start: make_session(self._questions, start),
            None,
            questions=self._questions,
            on_event=self._show_event,
            resumes=resumes,
        )

    async def serve(self, lines: AsyncIterator[str]) -> None:
        async with self._driver as driver:
            self._send("open", session=driver.session.id)
            async for line in lines:
                self._handle(json.loads(line))
            await driver.drain()

    def pause(self) -> None:
        self._driver.pause()

    def _handle(self, line: dict[str, Any]) -> None:
        match line:
            case {"type": "prompt", "id": id, "text": text}:
                self._driver.submit(lambda turn: self._run(turn, text), key=id)
            case {"type": "cancel"}:
                self._driver.interrupt()
            case {"type": "answer", "question": question, "allow": allow}:
                self._questions.answer(question, ApprovalDecision(allow))
            case _:
                self._send("error", text="the line is not understood")

    async def _run(self, turn: Turn[Any], text: str) -> None:
        report: Report[Any] | None = await turn.run(text)
        self._send("end", id=turn.key, reason=report.reason if report else "CANCELLED")

    def _show_event(self, event: AnyEvent) -> None:
        if isinstance(event, Delta) and event.kind == "text":
            self._send("text", run=event.run, text=event.text)

    def _show_question(self, question: Question) -> None:
        kind = "question" if question.is_open else "withdrawn"
        self._send(kind, question=question.id, tool=question.request.tool)

    def _send(self, kind: str, **fields: Any) -> None:
        self._write(json.dumps({"type": kind, **fields}))
