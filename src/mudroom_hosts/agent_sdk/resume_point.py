"""The message at which a resumed conversation continues, given by `--resume-session-at`."""

from __future__ import annotations

import uuid
from collections.abc import Collection

from mudroom import AnyEvent, Session
from mudroom.errors import UsageError
from mudroom.events import ConversationRewound, RunResumed, RunStarted, StoredEvent, TurnFinished
from mudroom.views import is_child_id

_FLAG = "--resume-session-at"


def make_message_id(event: TurnFinished) -> str:
    """Make the `uuid` of an answer's line; it is the same in forks and later processes."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"mudroom {event.run} {event.at!r}"))


class ResumePoint:
    """The conversation's prompt that contains the message. It is the last one kept."""

    def __init__(self, message_id: str) -> None:
        self._message_id = message_id
        self._run = ""
        self._latest_run = ""
        self._next_runs: dict[str, str] = {}
        self._is_inside = False

    def observe(self, event: StoredEvent) -> None:
        if isinstance(event, ConversationRewound):
            self._latest_run = event.latest_run
        elif is_child_id(event.run):
            return
        elif isinstance(event, RunStarted) and not event.brief.depth:
            self._next_runs[event.brief.continues] = event.run
            self._latest_run = event.run
        elif isinstance(event, TurnFinished):
            self._is_inside |= event.run == self._run
            if make_message_id(event) == self._message_id:
                self._run = event.run
                self._is_inside = False

    async def apply(self, session: Session) -> str:
        """Rewind the conversation; return a notice, "" for none.

        An interrupted prompt after the message ends first, without further work.

        Raises UsageError if the record has no such message, or if a rewind removed its prompt and
        no later prompt continues it.
        """
        if not self._run:
            raise UsageError(
                f"the session has no answer with the uuid {self._message_id}",
                where=_FLAG,
                remedy="Use the uuid of an assistant message of the main conversation.",
            )
        notices: list[str] = []
        if self._latest_run != self._run:
            following = self._find_following()
            if interrupted := self._find_interrupted(session.unfinished_runs):
                await _end_interrupted(session)
                notices.append(f"prompt {interrupted} was interrupted; it is left out, too")
            session.rewind(following)
        if self._is_inside:
            notices.append(f"{_FLAG} names a message inside a prompt; the whole prompt is kept")
        return "; ".join(notices)

    def _find_interrupted(self, unfinished: Collection[str]) -> str:
        later = (run for run in self._next_runs.values() if run != self._run)
        return next((run for run in later if run in unfinished), "")

    def _find_following(self) -> str:
        following = self._next_runs.get(self._run)
        if following is None:
            raise UsageError(
                f"prompt {self._run} with the message {self._message_id} was left out by a rewind",
                where=_FLAG,
                remedy="Use the uuid of an assistant message that is in the conversation.",
            )
        return following


async def _end_interrupted(session: Session) -> None:
    """End an interrupted prompt as soon as it continues, so that it does no more work."""

    def cancel(event: AnyEvent) -> None:
        if isinstance(event, RunResumed) and not is_child_id(event.run):
            session.runs.cancel()

    stop_watching = session.watch(cancel)
    try:
        await session.resume_unfinished()
    finally:
        stop_watching()
