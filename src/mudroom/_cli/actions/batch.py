"""`mudroom batch FILE`: runs each line of a file as one task, and resumes after an interruption."""

from __future__ import annotations

import asyncio
import shutil
import signal
import sys
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from ..._adapters.journals.sessions import stream_events
from ..._core.budgets import Budget, check_amount
from ..._core.listings import count_noun
from ..._core.runs import Reason
from ..._platform.event_loop import run_event_loop
from ..._platform.scratch_dirs import ScratchDir
from ..._session.config import Settings
from ..._session.session import Session
from ...errors import JournalBusy, MudroomError, UnknownName, UsageError
from ..batches.batch import RECORD_TYPES, Batch, BatchFlags, BatchPlan, RecordReader
from ..batches.input_file import InputFacts, InputFile
from ..batches.results import ResultFile, get_new_path, sort_results
from ..batches.status import BatchStatus, StatusFile
from ..output.batch_progress import BatchScreen, format_counts
from ..output.notices.log import show_log
from ..output.run_reporter import EXIT_TRY_LATER
from ..output.signals import catch_signals
from .batch_status import (
    STDIN,
    check_output,
    choose_output,
    find_session,
    name_session,
    resolve_output,
)
from .load_permissions import load_permissions
from .load_settings import load_settings
from .open_session import create_session
from .programs.load_programs import list_server_names, load_programs
from .session_start import NEW_SESSION, SessionStart
from .user_store import open_store


def check_input(file: str) -> None:
    """Raise UsageError if the file cannot be a batch's input."""
    if file == STDIN:
        return
    path = Path(file)
    if path.is_dir():
        raise UsageError("this is a folder", where=file, remedy="Name a file with one task a line.")
    if not path.exists():
        raise UsageError("no such file", where=file, remedy="Name a file with one task a line.")
    if not path.is_file():
        raise UsageError(
            "this is no file that can be read several times",
            where=file,
            remedy="Send the lines to stdin, and use - for the file.",
        )
    try:
        path.open("rb").close()
    except OSError as error:
        raise UsageError(
            f"the file cannot be read: {error.strerror}", where=file, remedy="Change its rights."
        ) from error


@contextmanager
def open_input(file: str) -> Generator[InputFile]:
    if file != STDIN:
        yield InputFile(Path(file))
        return
    # The input is read several times, so stdin is copied first. Each process has its own copy: a
    # second one must not change the input of the first.
    with ScratchDir() as folder:
        path = Path(folder, "stdin.jsonl")
        with path.open("wb") as copy:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        yield InputFile(path, name="stdin")


_LINE_LIMITS = "the key budget of a line and the budget of its agent limit the line"

# --parallel limits the lines; their children also need slots.
_MAX_CHILDREN = 10_000

# Settings that a batch does not use -> what replaces each.
_UNUSED_SETTINGS = {
    "max_children": "--parallel limits the lines that run at the same time",
    "max_budget_usd": "--max-budget-usd limits the costs of all lines",
    "max_turns": _LINE_LIMITS,
    "max_minutes": _LINE_LIMITS,
    "max_tokens": _LINE_LIMITS,
}

# Seconds between screen updates.
_SHOW_SECONDS = 0.25
# Screen updates per write of the status file.
_SHOWN_PER_FILE = 4


def run_batch(cwd: str, flags: BatchFlags, settings: dict[str, object]) -> int:
    """Run a batch.

    Returns 0 if all lines reached their goals, 1 if some did not, 75 if the provider is
    unreachable, and 128 plus the number of a signal that stopped it.
    """
    return run_event_loop(_run_batch(cwd, flags, load_settings(cwd, **settings)))


async def _run_batch(cwd: str, flags: BatchFlags, settings: Settings) -> int:
    again = _parse_reasons(flags.retry or "")
    if flags.max_budget_usd is not None:  # click lets "nan" pass
        check_amount("usd", flags.max_budget_usd, "--max-budget-usd", is_count=False)
    out = choose_output(flags.file, flags.out)
    check_input(flags.file)
    check_output(out)
    output = resolve_output(out)
    if Path(flags.file).resolve() == output.resolve():
        raise UsageError("the output would replace the input", where=str(output))
    start = await _find_session(settings, out)
    screen = BatchScreen(quiet=flags.quiet, plain=settings.screen == "plain")
    with open_input(flags.file) as source:
        facts = source.check(with_keys=bool(start.resume))
        async with _create_session(settings, cwd, flags, start) as session:
            if not start.resume:
                await _name_new_session(settings, session.id, output)
            texts = [notice.text for notice in session.notices]
            for text in [*texts, *_list_unused(facts, settings)]:
                screen.print_line(text)
            _check_names(session, source, facts, flags)
            with name_output(output), ResultFile(output) as results:
                reader = RecordReader(facts.keys, again, results, flags.kind)
                if start.resume:
                    store = open_store(settings.home)
                    async for event in stream_events(store, start.resume, RECORD_TYPES):
                        reader.apply(event)
                results.publish(reader.record.superseded)
                plan = BatchPlan(flags, facts.total, source.read, str(output))
                batch = Batch(session, plan, reader.record, results)
                file = StatusFile(settings.home, session.id)
                received = await _run_with_screen(batch, file, screen)
                if flags.is_ordered:  # here, where no other process can add results
                    ids = (line.id for line in source.read())
                    await asyncio.to_thread(sort_results, output, ids)
    return _end(batch, screen, received)


@contextmanager
def name_output(output: Path) -> Generator[None]:
    """Turn the output's OSErrors in the block into MudroomErrors."""
    try:
        yield
    except OSError as error:
        if error.filename not in (str(output), str(get_new_path(output))):
            # The error is about another file, such as the input.
            raise
        raise MudroomError(
            f"the output cannot be written: {error.strerror}",
            where=str(output),
            remedy="Results are recorded: correct this, and the same command writes them.",
        ) from error


async def _find_session(settings: Settings, out: str) -> SessionStart:
    """Find the session that wrote this output, or choose a new one.

    Raises UsageError, and JournalBusy if another process is running the batch.
    """
    store = open_store(settings.home)
    output = resolve_output(out)
    if session := await find_session(store, out):
        if writer := await store.find_writer(session):
            raise _make_busy_error(writer, output)
        return SessionStart(resume=session)
    if output.exists() and output.stat().st_size:
        raise UsageError(
            "the output exists, and no batch that is still recorded has written it",
            where=str(output),
            remedy="Name another file with --out, or remove this one.",
        )
    return NEW_SESSION


async def _name_new_session(settings: Settings, session: str, output: Path) -> None:
    """Name the session of a new batch. Raises JournalBusy if another process has just begun it."""
    # Names are unique in the store: if two processes begin the same batch, one fails here.
    try:
        await open_store(settings.home).rename(session, name_session(output))
    except UsageError as error:
        raise _make_busy_error("another process", output) from error


def _make_busy_error(writer: str, output: Path) -> JournalBusy:
    return JournalBusy(
        f"{writer} runs this batch",
        where=str(output),
        remedy="Wait for it or end it. mudroom batch status shows it.",
    )


def _create_session(
    settings: Settings, cwd: str, flags: BatchFlags, start: SessionStart
) -> Session:
    programs = load_programs(settings, cwd)
    loaded = load_permissions(settings, cwd, servers=list_server_names(programs))
    return create_session(
        settings,
        cwd,
        loaded,
        start,
        programs=programs,
        budget=Budget(usd=flags.max_budget_usd),
        max_children=_MAX_CHILDREN,
        prices=True,
    )


def _parse_reasons(text: str) -> set[Reason]:
    """Parse the reasons of --retry. Raises UnknownName."""
    words = [word.strip().upper() for word in text.split(",") if word.strip()]
    if text and not words:
        raise UsageError("no reason is named", where="--retry", remedy="Name some: ERROR,TIMEOUT.")
    known = [reason.value for reason in Reason if reason is not Reason.GOAL]
    for word in words:
        if word not in known:
            raise UnknownName("reason", word, known, where="--retry")
    return {Reason(word) for word in words}


def _list_unused(facts: InputFacts, settings: Settings) -> Iterable[str]:
    for name, remedy in _UNUSED_SETTINGS.items():
        if origin := settings.origins.get(name):
            yield f"{name} ({origin}) is not used by a batch: {remedy}"
    for key, lines in sorted(facts.ignored.items()):
        yield f"body.{key} of {count_noun(lines, 'line')} is not used"


def _check_names(session: Session, source: InputFile, facts: InputFacts, flags: BatchFlags) -> None:
    """Check the agents and models of all lines. Raises UsageError naming the line."""
    session.check_task(agent=flags.agent)
    for name, number in facts.agents.items():
        _check_name(session, f"{source.name}, line {number}", agent=name)
    for name, number in facts.models.items():
        _check_name(session, f"{source.name}, line {number}", model=name)


def _check_name(session: Session, where: str, **names: Any) -> None:
    try:
        session.check_task(**names)
    except UsageError as error:
        raise UsageError(error.message, where=where, remedy=error.remedy) from error


async def _run_with_screen(batch: Batch, file: StatusFile, screen: BatchScreen) -> list[int]:

    def stop() -> None:
        batch.stop("stopped by a signal")
        screen.print_line("no further lines start; Ctrl-C again stops those that run")

    def pause() -> None:
        batch.pause()
        screen.print_line("paused: the same command continues the lines that run")

    watching = asyncio.create_task(_watch(batch, file, screen))
    try:
        with (
            handle_batch_signals(stop, batch.cancel, pause) as received,
            show_log(screen.print_line),
        ):
            await batch.run()
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        screen.clear()
        _write_status(file, batch.make_status(has_ended=True), screen)
    return received


async def _watch(batch: Batch, file: StatusFile, screen: BatchScreen) -> None:
    for number in count():
        status = batch.make_status()
        screen.show(status)
        if number % _SHOWN_PER_FILE == 0:
            _write_status(file, status, screen)
        await asyncio.sleep(_SHOW_SECONDS)


def _write_status(file: StatusFile, status: BatchStatus, screen: BatchScreen) -> None:
    # The status is a convenience: a full disk must not stop the batch.
    try:
        file.write(status)
    except OSError as error:
        text = f"the status for mudroom batch status cannot be written: {error.strerror}"
        screen.print_once(text)


def _end(batch: Batch, screen: BatchScreen, received: list[int]) -> int:
    status = batch.make_status(has_ended=True)
    screen.print_line(f"{format_counts(status)}: {status.output}")
    if batch.stop_cause and not received:
        screen.print_line(batch.stop_cause)
    if status.done < status.total:
        left = count_noun(status.total - status.done, "line")
        screen.print_line(f"{left} left; the same command continues")
    elif status.failed:
        reasons = ",".join(sorted(set(status.reasons) - {"GOAL"}))
        screen.print_line(f"--retry {reasons} runs the failed lines again")
    if received:
        return 128 + received[0]
    if batch.is_unavailable:
        return EXIT_TRY_LATER
    return 0 if batch.has_reached_all_goals else 1


@contextmanager
def handle_batch_signals(
    stop: Callable[[], None], cancel: Callable[[], None], pause: Callable[[], None]
) -> Generator[list[int]]:
    """Call `stop` at the first Ctrl-C inside the block, and `cancel` at the second.

    SIGTERM and SIGHUP call `pause`. Yields the list of signals received.
    """

    def act(received: Sequence[int]) -> bool:
        interrupts = received.count(signal.SIGINT)
        if interrupts == len(received) == 1:
            stop()
        elif interrupts == len(received) == 2:
            cancel()
        elif received[-1] != signal.SIGINT and len(received) - interrupts == 1:
            pause()
        # A signal after `cancel` or `pause` ends the process at once: nothing is lost, because the
        # next process continues the interrupted lines.
        else:
            return False
        return True

    with catch_signals(act) as received:
        yield received
