"""SessionRegistry: the sessions active in this process, and the streams of all sessions."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from mudroom.errors import JournalBusy, MudroomError

from .feed import SessionFeed
from .monitoring import Faults
from .served_session import ServedSession, ServerParts
from .state.inputs import CANCELLED_BEFORE, PROMPT, Input, InputResult
from .state.server_state import ServerState
from .state.sessions import SessionRecord, SessionRecords

_T = TypeVar("_T")

_LOOK = "looking for prompts of other processes"
_BUSY_SECONDS = 1.0  # seconds before retrying a session that another process had open
_CLOSED_PER_COLLECTION = 20
"""Fewest closed sessions after which garbage is collected. A session's objects refer to each other,
and a command's thresholds (`own_process`) are not reached for thousands of sessions."""
_OPEN_PER_CLOSED = 50
"""Active sessions per closed session that a collection waits for, as it visits them all."""


class SessionRegistry:
    """The sessions of one server process."""

    def __init__(self, parts: ServerParts, state: ServerState, records: SessionRecords) -> None:
        self.elsewhere: set[str] = set()  # ids of sessions run by another process
        self._parts = parts
        self._state = state
        self._records = records
        self._served: dict[str, ServedSession] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._feeds: dict[str, SessionFeed] = {}
        self._retries: dict[str, float] = {}
        self._faults = Faults()
        self._aside: set[asyncio.Task[Any]] = set()
        self._change_number = -1
        self._is_closed = False
        self._closed_count = 0

    def find(self, session: str) -> ServedSession | None:
        return self._served.get(session)

    def count_open(self) -> int:
        return sum(served.driver is not None for served in self._served.values())

    def start(self, record: SessionRecord) -> ServedSession | None:
        """Let a session run its prompts; return it, None while the server is stopping."""
        served = self._served.get(record.id)
        if served:
            served.woken.set()
            return served
        if self._is_closed:
            return None
        feed = self._feeds.setdefault(record.id, SessionFeed(record.id))
        served = ServedSession(record, self._parts, feed, self._limit_owner)
        self._served[record.id] = served
        self._tasks[record.id] = asyncio.create_task(self._serve(served))
        return served

    async def apply(self, record: SessionRecord, item: Input) -> InputResult | None:
        """Carry out an event other than a prompt; return None if another process must."""
        if served := self._served.get(record.id):
            return await served.apply(item)
        if await self._parts.store.find_writer(record.id):
            return None
        cancels_all = item.type == "run.cancel" and not item.body.get("run")
        is_applied = cancels_all and await self._parts.inputs.cancel_waiting(record.id)
        result = InputResult(is_applied=is_applied)
        await self._parts.inputs.finish(item.number, result)
        return result

    @asynccontextmanager
    async def follow(self, session: str) -> AsyncGenerator[SessionFeed]:
        feed = self._feeds.setdefault(session, SessionFeed(session))
        feed.streams += 1
        try:
            yield feed
        finally:
            feed.streams -= 1
            self._drop_feed(feed)

    def count_streams(self) -> int:
        return sum(feed.streams for feed in self._feeds.values())

    async def watch_others(self) -> None:
        """Forever take over sessions whose process has ended, and notice what others do."""
        while True:
            try:
                await self._look()
                self._faults.remove(_LOOK)
            except MudroomError as error:
                self._tell(_LOOK, str(error))
                await asyncio.sleep(self._parts.options.retry_seconds)
            except Exception as error:  # noqa: BLE001  (for example no free descriptor; may pass)
                self._tell(_LOOK, f"{type(error).__name__}: {error}")
                await asyncio.sleep(self._parts.options.retry_seconds)
            await asyncio.sleep(self._parts.options.poll_seconds)

    def _tell(self, subject: str, text: str) -> None:
        """Report a fault, once while it lasts."""
        if self._faults.add(subject, text):
            self._parts.notify(f"{subject}: {text}")

    async def _look(self) -> None:
        number = await self._state.read_change_number()
        retries = self._list_due_retries()
        if number == self._change_number and not self.elsewhere and not retries:
            return
        still_elsewhere: set[str] = set()
        sessions = await self._parts.inputs.list_open_sessions()
        for session in sessions:
            record = await self._records.read(session)
            if record is None:
                continue
            if served := self._served.get(session):
                await self._pass_on(served)
            elif await self._parts.store.find_writer(session):
                still_elsewhere.add(session)
            elif session not in self._retries or session in retries:
                self._retries.pop(session, None)
                self.start(record)
        for session in self.elsewhere | still_elsewhere:
            if feed := self._feeds.get(session):
                feed.notify()
        for session in retries.difference(sessions):  # such as deleted ones
            self._retries.pop(session, None)
        self.elsewhere = still_elsewhere
        self._change_number = number  # only now: after an error, everything is examined again

    async def _pass_on(self, served: ServedSession) -> None:
        """Use events that other processes received for a session active here."""
        for item in await self._parts.inputs.list_open(served.record.id):
            if item.type != PROMPT:
                await served.apply(item)
        served.woken.set()

    def _list_due_retries(self) -> set[str]:
        now = asyncio.get_running_loop().time()
        return {session for session, when in self._retries.items() if when <= now}

    async def _serve(self, served: ServedSession) -> None:
        session = served.record.id
        try:
            while True:
                served.woken.clear()
                await served.serve()
                if not served.woken.is_set():
                    break
            self._faults.remove(f"session {session}")
        except JournalBusy:  # another process is running it
            self._retries[session] = asyncio.get_running_loop().time() + _BUSY_SECONDS
        except MudroomError as error:
            seconds = self._parts.options.retry_seconds
            self._retries[session] = asyncio.get_running_loop().time() + seconds
            self._tell(f"session {session}", str(error))
        finally:
            self._served.pop(session, None)
            self._tasks.pop(session, None)
            served.feed.forget()
            served.feed.notify()
            self._drop_feed(served.feed)
            self._closed_count += 1
            wanted = max(_CLOSED_PER_COLLECTION, len(self._served) // _OPEN_PER_CLOSED)
            if self._closed_count >= wanted:
                self._closed_count = 0
                gc.collect()

    def _drop_feed(self, feed: SessionFeed) -> None:
        if feed.streams == 0 and feed.session not in self._served:
            self._feeds.pop(feed.session, None)

    def cancel_prompt(self, record: SessionRecord, number: int) -> None:
        """Stop a prompt that no client is waiting for."""
        served = self._served.get(record.id)
        if served and served.driver and served.current == number and served.run:
            served.driver.cancel()
            return
        self._start_aside(self._parts.inputs.finish(number, CANCELLED_BEFORE))

    async def complete(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Return the result of work, which continues to its end even if its client disconnects."""
        task = asyncio.create_task(work)
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._tell_of_error)  # its client does not read it
            raise

    def _start_aside(self, work: Coroutine[Any, Any, object]) -> None:
        task = asyncio.create_task(work)
        self._aside.add(task)
        task.add_done_callback(self._aside.discard)
        task.add_done_callback(self._tell_of_error)

    def _tell_of_error(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, MudroomError) and self._faults.add(str(error), str(error)):
            self._parts.notify(str(error))

    def _limit_owner(self, owner: str) -> None:
        """Limit an owner's sessions to the rest of the day's budget."""
        for served in self._served.values():
            if served.record.owner == owner and served.charges.has_limits:
                self._start_aside(served.update_budget())

    async def stop(self, session: str) -> bool:
        """Stop a session's work and close it. Return whether it was active here."""
        served = self._served.get(session)
        task = self._tasks.get(session)
        if served is None or task is None:
            return False
        if served.driver:
            served.driver.cancel()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return True

    async def close(self) -> None:
        """Stop all work so that a later process can continue it."""
        self._is_closed = True
        for served in list(self._served.values()):
            served.seal()
        tasks: list[asyncio.Task[Any]] = [*self._tasks.values(), *self._aside]
        for task in tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)
        for feed in self._feeds.values():
            feed.notify()
