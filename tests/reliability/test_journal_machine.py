"""The journal as a state machine: appends, torn tails, reopening, forks, concurrent readers.

hypothesis chooses the steps; MUDROOM_LONG=1 tries 10,000 sequences.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.memory_folder import find_memory_folder

from mudroom import JournalError
from mudroom._adapters.journals.sqlite.journal import SqliteJournal
from mudroom._adapters.journals.sqlite.reader import open_reader
from mudroom._core.events import NoteInjected, StoredEvent
from mudroom.errors import JournalBusy

from .killed import LONG

TEXTS = st.lists(
    st.text(st.characters(exclude_categories=("Cs",)), max_size=300), min_size=1, max_size=5
)


class JournalMachine(RuleBasedStateMachine):
    """The file of a session, and the list of its acknowledged events."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = Path(tempfile.mkdtemp(prefix="journal-", dir=find_memory_folder()))
        self.path, self.forks = self.folder / "s1.db", 0
        self.events: list[StoredEvent] = []
        self.journal: SqliteJournal | None = SqliteJournal.open(
            self.path, session="s1", create=True
        )
        self.append(["the first event creates the file"])

    def teardown(self) -> None:
        if self.journal:
            self.loop.run_until_complete(self.journal.close())
        self.loop.close()
        shutil.rmtree(self.folder)

    @precondition(lambda self: self.journal)
    @rule(texts=TEXTS)
    def append(self, texts: list[str]) -> None:
        assert self.journal
        new = [
            NoteInjected(at=float(len(self.events) + n), run="1", text=text)
            for n, text in enumerate(texts)
        ]
        self.loop.run_until_complete(self.journal.append(*new))
        self.events += new

    @precondition(lambda self: self.journal)
    @rule()
    def append_and_cancel_the_caller(self) -> None:
        """Cancel the caller before the answer: the event is in the record."""
        assert self.journal
        event = NoteInjected(at=float(len(self.events)), run="1", text="cancelled")

        async def cancelled(journal: SqliteJournal) -> None:
            waiting = asyncio.ensure_future(journal.append(event))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await journal.append()

        self.loop.run_until_complete(cancelled(self.journal))
        self.events.append(event)
        self.loop.run_until_complete(self.journal.close())
        self.journal = None

    @precondition(lambda self: self.journal)
    @rule()
    def close(self) -> None:
        assert self.journal
        self.loop.run_until_complete(self.journal.close())
        self.journal = None

    @precondition(lambda self: not self.journal)
    @rule()
    def reopen(self) -> None:
        self.journal = SqliteJournal.open(self.path, session="s1", create=False)

    @precondition(lambda self: self.journal)
    @rule()
    def a_second_opener_is_refused(self) -> None:
        with pytest.raises(JournalBusy):
            SqliteJournal.open(self.path, session="s1", create=False)

    @rule()
    def a_file_is_not_created_twice(self) -> None:
        with pytest.raises(JournalError):
            SqliteJournal.open(self.path, session="s1", create=True)

    @rule()
    def another_session_s_id_is_refused(self) -> None:
        with pytest.raises(JournalError):
            SqliteJournal.open(self.path, session="s2", create=False)

    @precondition(lambda self: self.journal)
    @rule(junk=st.binary(min_size=1, max_size=6000), cut=st.integers(0, 4000))
    def lose_power(self, junk: bytes, cut: int) -> None:
        """Leave a half-written commit at the end of the log: acknowledged events stay."""
        copy = self.folder / "torn.db"
        for suffix in ("", "-wal"):
            Path(f"{copy}{suffix}").write_bytes(Path(f"{self.path}{suffix}").read_bytes())
        with open(f"{copy}-wal", "ab") as log:
            log.write((b"\0" * 24 + junk)[: cut + 1])
        journal = SqliteJournal.open(copy, session="s1", create=False)
        assert list(open_reader(copy).read()) == self.events
        self.loop.run_until_complete(journal.append(NoteInjected(at=1, run="1", text="after")))
        self.loop.run_until_complete(journal.close())
        assert list(open_reader(copy).read())[:-1] == self.events
        for path in self.folder.glob("torn.db*"):
            path.unlink()

    @rule()
    def fork(self) -> None:
        self.forks += 1
        other = SqliteJournal.open(self.folder / f"f{self.forks}.db", session="f", create=True)
        self.loop.run_until_complete(other.append(*open_reader(self.path).read()))
        self.loop.run_until_complete(
            other.append(NoteInjected(at=0, run="1", text="only in the fork"))
        )
        assert list(open_reader(other.path).read())[:-1] == self.events
        self.loop.run_until_complete(other.close())

    @rule(wanted=st.integers(0, 8))
    def read_beside_the_writer(self, wanted: int) -> None:
        """Read during an append: the reader gets the first part of the record."""
        reader = open_reader(self.path).read()
        read = [event for _, event in zip(range(wanted), reader, strict=False)]
        if self.journal:
            self.append(["while it was read"])
        read += reader
        assert read == self.events[: len(read)]

    @invariant()
    def all_acknowledged_events_are_in_the_record(self) -> None:
        assert list(open_reader(self.path).read()) == self.events


JournalMachine.TestCase.settings = settings(
    max_examples=10_000 if LONG else 25,
    stateful_step_count=20,
    deadline=None,
    derandomize=not LONG,
    suppress_health_check=(HealthCheck.too_slow, HealthCheck.filter_too_much),
    database=None,
)


@pytest.mark.timeout(20_000)
class TestS5S6Journal(JournalMachine.TestCase):
    """S5, S6: one writer, and a record of exactly the acknowledged events."""
