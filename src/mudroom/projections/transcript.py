"""The messages of one run, rebuilt from its events."""

from __future__ import annotations

from collections.abc import Iterable

from .._core.events import (
    CallFinished,
    Resumed,
    RunStarted,
    Stored,
    Told,
    TurnFinished,
    TurnStarted,
)
from .._core.messages import Call, Message, Result, Text, User


def transcript(events: Iterable[Stored], run_id: str) -> tuple[Message, ...]:
    """The messages of one run as its model sees them, rebuilt from the record; empty if the run never began.

    First the history recorded with the brief, then the prompt as a user message; what a run `continues` is in the transcript of
    the run it names. After every answer follows at most one user message:
    the results of its calls in the order of the calls, then what was told before the next model call, a text block each.
    Words told before the first model call join the prompt. While a call of the last answer has no result, the list
    ends with that answer. Of two results of one call the first counts. Failed and repeated model calls leave no trace.
    """
    book = _Rebuilt()
    for event in events:
        if event.run == run_id:
            book.apply(event)
    book.close()
    return tuple(book.messages)


def result_of(event: CallFinished) -> Result:
    """What the model reads of a finished call."""
    return Result(event.call_id, event.name, event.result.text, event.result.error)


class _Rebuilt:
    """The messages so far, and what will join the next user message."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.begun = False
        self.calls: tuple[Call, ...] = ()
        self.results: dict[str, Result] = {}
        self.told: list[Text | Result] = []
        self.unanswered = False

    def apply(self, event: Stored) -> None:
        if isinstance(event, RunStarted) and not self.begun:
            self.begun = True
            self.messages.extend(event.brief.history)
            self.told.append(Text(event.brief.prompt))
        elif isinstance(event, Told):
            self.told.append(Text(event.text))
        elif isinstance(event, CallFinished):
            self.results.setdefault(event.call_id, result_of(event))
        elif isinstance(event, TurnStarted):
            self.close()
            self.unanswered = True
        elif isinstance(event, Resumed):
            if (
                self.unanswered and self.messages and isinstance(last := self.messages[-1], User)
            ):  # it is asked again
                self.told[:0] = last.content
                self.messages.pop()
            self.unanswered = False
        elif isinstance(event, TurnFinished):
            self.messages.append(event.message)
            self.unanswered = False
            self.calls = event.message.calls

    def close(self) -> None:
        if any(call.id not in self.results for call in self.calls):
            return
        if content := (*(self.results[call.id] for call in self.calls), *self.told):
            self.messages.append(User(content))
        self.calls, self.results, self.told = (), {}, []
