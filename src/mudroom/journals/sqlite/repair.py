"""A journal that is damaged inside: what of it is lost, and a new file with all the rest."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from zlib import crc32

from msgspec import Struct

from ..._core.agents import Agent, Brief, Reason, Report
from ..._core.budgets import Budget
from ..._core.events import RunFinished, RunStarted, SessionOpened, StoredEvent, TurnFinished
from ...errors import JournalDamaged
from ..encoding import decode, encode, replace_surrogates
from .journal import open_reader
from .page_recovery import has_torn_tail, recover_records
from .schema import JournalMeta, connect_reader, connect_writer, read_meta, translate_errors
from .store import lock, unlock

LOST_TEXT = "(This was lost: the record of the session was damaged.)"
"""Stands where words were."""


class JournalCondition(Struct, frozen=True, kw_only=True):
    """How a journal is.

    Arguments:
        kept: records that are as they were written. lost: first and last number of each stretch of records that are not.
        cut_off: whether the last record was still being written when its process died; nothing depended on it.
        damaged: where the damaged file is kept, once it is repaired.
    """

    intact: int
    lost: tuple[tuple[int, int], ...] = ()
    torn_tail: bool = False
    damaged_copy: str = ""


def check_journal(path: Path) -> JournalCondition:
    """Read a whole journal. Raises JournalNewer, or JournalError when there is none."""
    cut_off = has_torn_tail(path)
    try:
        return JournalCondition(intact=sum(1 for _ in open_reader(path).read()), torn_tail=cut_off)
    except JournalDamaged:
        found = _whole(path)
        return JournalCondition(
            intact=len(found), lost=_gaps(found, _last(path)), torn_tail=cut_off
        )


def repair_journal(path: Path, *, cwd: str) -> JournalCondition:
    """Put all records that are whole into a new file in place of the damaged one, which is kept beside it.

    A run that was under way and may have lost a record ends with the reason LOST; one whose beginning is lost gets a stand-in.

    Arguments:
        cwd: the session's folder, where its record does not say any more.

    Raises JournalBusy, JournalError. A journal that is whole stays as it is.
    """
    found = check_journal(path)
    if not found.lost:
        return found
    held = lock(path)
    try:
        events, gaps = _whole(path), found.lost
        meta = _meta(path)
        new = path.with_name(path.name + ".repaired")
        new.unlink(missing_ok=True)
        _write(new, meta, _mended(events, gaps, meta.session, cwd))
        kept = _beside(path)
        for end in ("-wal", ""):
            part = path.with_name(path.name + end)
            if part.exists():
                part.rename(kept.with_name(kept.name + end))
        path.with_name(path.name + "-shm").unlink(missing_ok=True)
        new.rename(path)
        _sync(path.parent)
        return JournalCondition(intact=len(events), lost=gaps, damaged_copy=str(kept))
    finally:
        unlock(path, held)


def _whole(path: Path) -> dict[int, StoredEvent]:
    found: dict[int, StoredEvent] = {}
    for seq, body in recover_records(path).items():
        try:
            found[seq] = decode(body)
        except ValueError:
            continue
    return found


def _last(path: Path) -> int:
    try:
        with closing(connect_reader(path)) as connection:
            return connection.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()[0]
    except sqlite3.Error:
        return 0


def _gaps(found: Mapping[int, StoredEvent], last: int) -> tuple[tuple[int, int], ...]:
    gaps: list[tuple[int, int]] = []
    before = 0
    for seq in (*found, max(last, *found, 0) + 1):
        if seq > before + 1:
            gaps.append((before + 1, seq - 1))
        before = seq
    return tuple(gaps) or (
        (1, 1),
    )  # the reader failed: something is lost, if only the file's own account of itself


def _meta(path: Path) -> JournalMeta:
    try:
        with translate_errors(path), closing(connect_reader(path)) as connection:
            return read_meta(connection, path)
    except JournalDamaged:
        return JournalMeta(session=path.stem, created=path.stat().st_mtime, program="")


def _mended(
    found: Mapping[int, StoredEvent], gaps: Sequence[tuple[int, int]], session: str, cwd: str
) -> list[StoredEvent]:
    """The events with what a reader cannot do without: a beginning for every session and run, an end for runs with a hole."""
    events, begun = list[StoredEvent](), dict[str, int]()
    opened = any(isinstance(event, SessionOpened) for event in found.values())
    if not opened:
        events.append(SessionOpened(at=0.0, session=session, cwd=cwd, version=""))
    open_roots: dict[str, StoredEvent] = {}
    for seq, event in found.items():
        if event.run and event.run not in begun:
            begun[event.run] = seq
            if not isinstance(event, RunStarted):
                events.append(_beginning(event, found.values()))
                begun[event.run] = 0
        events.append(event)
        if event.run and "." not in event.run:
            open_roots[event.run] = event
            if isinstance(event, RunFinished):
                del open_roots[event.run]
    last_hole = max(last for _, last in gaps)
    lost = [event for run, event in open_roots.items() if begun[run] < last_hole]
    return [*events, *(_end(event) for event in lost)]


def _beginning(event: StoredEvent, events: Iterable[StoredEvent]) -> RunStarted:
    run = event.run
    model = next(
        (e.message.model for e in events if isinstance(e, TurnFinished) and e.run == run), ""
    )
    brief = Brief(
        run_id=run,
        agent=Agent(name="lost"),
        prompt=LOST_TEXT,
        tools=(),
        model=model,
        budget=Budget(),
        parent=run.rpartition(".")[0].rpartition(".")[0],
        depth=run.count(".") // 2,
    )
    return RunStarted(at=event.at, run=run, prompt_id=event.prompt_id, brief=brief)


def _end(event: StoredEvent) -> RunFinished:
    report: Report = Report(
        outputs={}, text="", reason=Reason.LOST, run_id=event.run, error="its record was damaged"
    )
    return RunFinished(
        at=event.at, run=event.run, turn=event.turn, prompt_id=event.prompt_id, report=report
    )


def _write(path: Path, meta: JournalMeta, events: Sequence[StoredEvent]) -> None:
    with translate_errors(path):
        connection, _ = connect_writer(path, meta.session, create=True)
        with closing(connection):
            connection.execute("BEGIN")
            facts = {
                "created": repr(meta.created or time.time()),
                **({"name": meta.name} if meta.name else {}),
            }
            connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", facts.items())
            for seq, event in enumerate(events, 1):
                body = encode(event)
                row = (
                    seq,
                    replace_surrogates(event.run),
                    event.__struct_config__.tag,
                    body,
                    crc32(body),
                )
                connection.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", row)
            connection.execute("COMMIT")


def _beside(path: Path) -> Path:
    names = (path.with_name(f"{path.name}.damaged{n or ''}") for n in range(1_000))
    return next(name for name in names if not name.exists())


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
