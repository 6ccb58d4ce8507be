"""Checks and repairs damaged journals: reports lost records, writes the rest to a new file."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from zlib import crc32

from msgspec import Struct
from msgspec.structs import replace

from ...._core.agents import Agent
from ...._core.budgets import Budget
from ...._core.events import (
    RunFinished,
    RunStarted,
    SessionOpened,
    StoredEvent,
    TurnFinished,
    decode_event,
    encode_event,
)
from ...._core.json_values import clean_text
from ...._core.runs import Brief, Reason, Report, count_above, find_parent_id, is_child_id
from ...._platform.private_files import sync_folder
from ....errors import JournalDamaged
from .folder import lock, unlock
from .reader import open_reader
from .schema import (
    JournalMeta,
    connect_reader,
    create_file,
    has_torn_tail,
    publish_file,
    read_last_number,
    read_meta,
    translate_errors,
)

_READ_RECORD = "SELECT body, crc FROM events WHERE seq = ?"
LOST_TEXT = "(This text was lost: the record of the session was damaged.)"


class JournalCondition(Struct, frozen=True, kw_only=True):
    """The condition of a journal.

    `lost` has the first and last number of each range of damaged or missing records. If the end of
    the file is unreadable, so that the number of lost records is unknown, `first_unreadable` is the
    first of them, else 0. A torn tail is a last record left incomplete when its process was killed;
    nothing depended on it.
    """

    intact: int
    is_damaged: bool = False
    lost: tuple[tuple[int, int], ...] = ()
    first_unreadable: int = 0
    torn_tail: bool = False
    damaged_copy: str = ""


def check_journal(path: Path) -> JournalCondition:
    """Read a whole journal and report its condition.

    Raises JournalNewer, JournalDamaged if no record can be read, JournalError without a file.
    """
    torn_tail = has_torn_tail(path)
    try:
        intact = sum(1 for _ in open_reader(path).read())
        return JournalCondition(intact=intact, torn_tail=torn_tail)
    except JournalDamaged:
        events = _recover_events(path)
        last = _find_last_number(path)
        return JournalCondition(
            intact=len(events),
            is_damaged=True,
            lost=_find_gaps(events, last or 0),
            first_unreadable=max(events, default=0) + 1 if last is None else 0,
            torn_tail=torn_tail,
        )


def repair_journal(path: Path, *, cwd: str) -> JournalCondition:
    """Replace a damaged journal with a new file of all intact records.

    The damaged file is kept next to it. An active root run that may have lost a record ends with
    the reason LOST, and a run whose start is lost gets a placeholder. An intact journal stays
    unchanged. `cwd` is the session's folder, used if its opening is lost.

    Raises JournalBusy, JournalError, or JournalDamaged if no record can be read.
    """
    condition = check_journal(path)
    if not condition.is_damaged:
        return condition
    descriptor = lock(path)
    try:
        events = _recover_events(path)
        meta = _read_meta(path)
        new = path.with_name(path.name + ".repaired")
        new.unlink(missing_ok=True)
        last_gap = condition.first_unreadable or max((end for _, end in condition.lost), default=0)
        _write(new, meta, _complete(events, last_gap, meta.session, cwd))
        copy = _choose_copy_path(path)
        # The log first: after a crash in between, the damaged file is still in place.
        for suffix in ("-wal", ""):
            source = path.with_name(path.name + suffix)
            if source.exists():
                source.rename(copy.with_name(copy.name + suffix))
        path.with_name(path.name + "-shm").unlink(missing_ok=True)
        new.rename(path)
        sync_folder(path.parent)
        return replace(condition, damaged_copy=str(copy))
    finally:
        unlock(path, descriptor)


def _recover_events(path: Path) -> dict[int, StoredEvent]:
    """Read each record on its own, skipping those that cannot be read.

    Raises JournalDamaged if SQLite cannot find any records.
    """
    events: dict[int, StoredEvent] = {}
    last = _find_last_number(path)
    try:
        with closing(connect_reader(path)) as connection:
            for seq in range(1, last + 1) if last is not None else count(1):
                try:
                    row = connection.execute(_READ_RECORD, (seq,)).fetchone()
                except sqlite3.DatabaseError:
                    if last is None:
                        break  # the rest of the file is gone
                    continue
                with suppress(ValueError):
                    if row and isinstance(row[0], bytes) and crc32(row[0]) == row[1]:
                        events[seq] = decode_event(row[0])
                if row is None and last is None:
                    break
    except sqlite3.DatabaseError as error:
        raise _make_unreadable_error(path, error) from error
    if not events:
        raise _make_unreadable_error(path, "no record can be read")
    return events


def _make_unreadable_error(path: Path, cause: object) -> JournalDamaged:
    return JournalDamaged(
        f"the journal cannot be repaired: {cause}",
        where=str(path),
        remedy="The file is unchanged. The program sqlite3 may save a part of it: .recover",
    )


def _find_last_number(path: Path) -> int | None:
    try:
        with closing(connect_reader(path)) as connection:
            return read_last_number(connection)
    except sqlite3.Error:
        return None


def _find_gaps(events: Mapping[int, StoredEvent], last: int) -> tuple[tuple[int, int], ...]:
    gaps: list[tuple[int, int]] = []
    previous = 0
    for seq in (*events, max(last, *events, 0) + 1):
        if seq > previous + 1:
            gaps.append((previous + 1, seq - 1))
        previous = seq
    return tuple(gaps)


def _read_meta(path: Path) -> JournalMeta:
    try:
        with translate_errors(path), closing(connect_reader(path)) as connection:
            return read_meta(connection, path)
    except JournalDamaged:
        return JournalMeta(session=path.stem, created=path.stat().st_mtime, program="")


def _complete(
    recovered: Mapping[int, StoredEvent], last_gap: int, session: str, cwd: str
) -> list[StoredEvent]:
    """Add events where readers depend on lost ones.

    These are the starts of the session and of each run, and the ends of active root runs that may
    have lost a record. `last_gap` is the number of the last lost record, 0 for none.
    """
    events: list[StoredEvent] = []
    starts: dict[str, int] = {}
    if not any(isinstance(event, SessionOpened) for event in recovered.values()):
        events.append(SessionOpened(at=0.0, session=session, cwd=cwd, version=""))
    active_roots: dict[str, StoredEvent] = {}
    for seq, event in recovered.items():
        run = event.run
        if run and run not in starts:
            starts[run] = seq
            if not isinstance(event, RunStarted):
                events.append(_make_placeholder_start(event, recovered.values()))
                starts[run] = 0
        events.append(event)
        if run and not is_child_id(run):
            active_roots[run] = event
            if isinstance(event, RunFinished):
                del active_roots[run]
    lost = [event for run, event in active_roots.items() if starts[run] < last_gap]
    return [*events, *map(_make_lost_end, lost)]


def _make_placeholder_start(event: StoredEvent, events: Iterable[StoredEvent]) -> RunStarted:
    run = event.run
    answers = (e.message for e in events if isinstance(e, TurnFinished) and e.run == run)
    brief = Brief(
        run_id=run,
        agent=Agent(name="lost"),
        prompt=LOST_TEXT,
        tools=(),
        model=next((answer.model for answer in answers), ""),
        budget=Budget(),
        parent=find_parent_id(run),
        depth=count_above(run),
    )
    return RunStarted(at=event.at, run=run, prompt_id=event.prompt_id, brief=brief)


def _make_lost_end(event: StoredEvent) -> RunFinished:
    report: Report = Report(
        outputs={}, text="", reason=Reason.LOST, run_id=event.run, error="its record was damaged"
    )
    return RunFinished(
        at=event.at, run=event.run, turn=event.turn, prompt_id=event.prompt_id, report=report
    )


def _write(path: Path, meta: JournalMeta, events: Sequence[StoredEvent]) -> None:
    with translate_errors(path):
        connection, _ = create_file(path, meta.session)
        connection.execute("BEGIN")
        values = {"created": repr(meta.created or time.time())}
        if meta.name:
            values["name"] = meta.name
        connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values.items())
        for seq, event in enumerate(events, 1):
            body = encode_event(event)
            run = clean_text(event.run)
            row = (seq, run, event.__struct_config__.tag, body, crc32(body))
            connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", row)
        connection.execute("COMMIT")
        publish_file(connection, path, meta.session).close()


def _choose_copy_path(path: Path) -> Path:
    paths = (path.with_name(f"{path.name}.damaged{n or ''}") for n in range(1_000))
    return next(candidate for candidate in paths if not candidate.exists())
