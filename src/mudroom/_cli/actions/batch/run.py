"""`mudroom batch FILE`: runs each line of a file as one task, and continues after an interruption.

Ctrl-C starts no further lines, a second one stops those that run. SIGTERM and SIGHUP pause those
that run at once: who sends them does not wait for lines to end.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Generator, Iterable
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from ...._adapters.journals.sessions import stream_events
from ...._batches.batch import Batch, BatchPlan
from ...._batches.control import BatchChange, BatchFolder
from ...._batches.input_file import InputFacts, InputFile
from ...._batches.recorded_results import RECORD_TYPES, BatchRecord, read_record
from ...._batches.results import ResultFile, ResultFormat, get_new_path, sort_results
from ...._batches.saved_record import Continued, SavedRecord
from ...._batches.status import BatchStatus
from ...._core.budgets import Budget, check_amount
from ...._core.events import StoredEvent
from ...._core.listings import count_noun
from ...._core.runs import Reason
from ...._platform.event_loop import run_event_loop
from ...._session.config import Settings
from ...._session.session import Session
from ....errors import JournalBusy, MudroomError, UnknownName, UsageError
from ...output.batch_progress import BatchScreen, format_counts
from ...output.notices.log import show_log
from ...output.run_reporter import EXIT_TRY_LATER
from ...output.signals import SIGNALS, exit_now
from ..load_permissions import load_permissions
from ..load_settings import load_settings
from ..open_session import create_session
from ..programs.load_programs import list_server_names, load_programs
from ..session_start import NEW_SESSION, SessionStart
from ..user_store import open_store
from .open_input import check_input, open_input
from .output import check_output, choose_output, find_session, name_session, resolve_output

_LINE_LIMITS = "the key budget of a line and the budget of its agent limit the line"

MAX_PARALLEL = 10_000
"""Lines of one process that can run at the same time."""

_UNUSED_SETTINGS = {
    "max_children": "--parallel limits the lines that run at the same time",
    "max_budget_usd": "--max-budget-usd limits the costs of all lines",
    "max_turns": _LINE_LIMITS,
    "max_minutes": _LINE_LIMITS,
    "max_tokens": _LINE_LIMITS,
}
"""Settings that a batch does not use, and what there is in place of each."""

_POLL_SECONDS = 0.25
"""Seconds between two looks at the changes that other processes ask for."""
_POLLS_PER_STATUS = 4
_SAVE_SECONDS = 5.0
"""Minimum seconds between two saves of the record."""


class BatchFlags(Struct, frozen=True, kw_only=True):
    """Flags of the command line for one batch; see `mudroom batch --help`."""

    file: str
    out: str = ""
    agent: str = "general"
    parallel: int = 64
    kind: str = "native"
    is_ordered: bool = False
    retry: str = ""
    max_budget_usd: float | None = None
    quiet: bool = False


class _Plan(Struct, frozen=True):
    """What the command line asks for.

    Arguments:
        again: reasons whose lines run again. start: the session of the batch.
    """

    cwd: str
    flags: BatchFlags
    settings: Settings
    again: set[Reason]
    output: Path
    start: SessionStart


def run_batch(cwd: str, flags: BatchFlags, settings: dict[str, object]) -> int:
    """Run a batch and return the exit code.

    0: all lines reached their goals. 1: some did not. 75: the provider is unreachable. 128 and the
    number of a signal: stopped.
    """
    return run_event_loop(_run_batch(cwd, flags, load_settings(cwd, **settings)))


async def _run_batch(cwd: str, flags: BatchFlags, settings: Settings) -> int:
    again = _parse_reasons(flags.retry)
    if flags.max_budget_usd is not None:  # click lets "nan" pass
        check_amount("usd", flags.max_budget_usd, "--max-budget-usd", is_count=False)
    out = choose_output(flags.file, flags.out)
    check_input(flags.file)
    check_output(out)
    output = resolve_output(out)
    if Path(flags.file).resolve() == output.resolve():
        raise UsageError("the output would replace the input", where=str(output))
    start = await _find_session(settings, out)
    with open_input(flags.file) as source:
        plan = _Plan(cwd, flags, settings, again, output, start)
        batch, screen, received = await _run_input(plan, source)
    return _end(batch, screen, received)


async def _run_input(plan: _Plan, source: InputFile) -> tuple[Batch, BatchScreen, list[int]]:
    """Run the lines of an input. Return the batch, its screen and the received signals."""
    flags, settings, output, start = plan.flags, plan.settings, plan.output, plan.start
    facts = source.check(with_keys=bool(start.resume))
    kind = cast("ResultFormat", flags.kind)
    continued = None
    if start.resume:
        saved = make_saved_record(settings.home, start.resume)
        continued = await saved.read(facts.keys, plan.again, output, kind)
    screen = BatchScreen(quiet=flags.quiet, plain=settings.screen == "plain")
    new_session = _create_session(settings, plan.cwd, flags, start)
    new_session.past_events = continued.events if continued else None
    async with new_session as session:
        if not start.resume:
            await _name_new_session(settings, session.id, output)
        saved = make_saved_record(settings.home, session.id, continued)
        for notice in [*session.notices, *_list_notices(facts, settings)]:
            screen.print_line(notice)
        _check_names(session, source, facts, flags)
        with name_output(output):
            record, results = await open_results(
                settings.home, start.resume, facts, plan.again, output, kind, continued
            )
            with results:
                results.publish()
                options = _make_plan(source, facts, flags, output)
                batch = Batch(session, options, record, results)
                folder = BatchFolder(settings.home, session.id)
                received = await _run_with_screen(batch, folder, screen, saved)
            if len(received) < 2:
                await saved.save_if_due(batch.done)
            if flags.is_ordered:  # here, because no other process can add results meanwhile
                ids = (line.id for line in source.read())
                await asyncio.to_thread(sort_results, output, ids)
    return batch, screen, received


def _make_plan(source: InputFile, facts: InputFacts, flags: BatchFlags, output: Path) -> BatchPlan:
    return BatchPlan(
        total=facts.total,
        lines=source.read,
        output=str(output),
        agent=flags.agent,
        parallel=flags.parallel,
        kind=cast("ResultFormat", flags.kind),
        usd_limit=flags.max_budget_usd,
    )


@contextmanager
def name_output(output: Path) -> Generator[None]:
    """Raise MudroomError for an OSError of the output in the block."""
    try:
        yield
    except OSError as error:
        if error.filename not in (str(output), str(get_new_path(output))):
            raise
        raise MudroomError(
            f"the output cannot be written: {error.strerror}",
            where=str(output),
            remedy="Results are recorded: correct this, and the same command writes them.",
        ) from error


async def _find_session(settings: Settings, out: str) -> SessionStart:
    """Return the session that wrote this output before, or a new one.

    Raises UsageError, and JournalBusy if another process runs the batch.
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
    """Name the session of a new batch. Raises JournalBusy if another process has begun it."""
    try:
        await open_store(settings.home).rename(session, name_session(output))
    except UsageError as error:
        raise _make_busy_error("another process", output) from error


def _make_busy_error(writer: str, output: Path) -> JournalBusy:
    return JournalBusy(
        f"{writer} runs this batch",
        where=str(output),
        remedy="Wait for it or end it. mudroom batch status looks at it, batch set changes it.",
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
        max_children=MAX_PARALLEL,  # `parallel` limits the lines, and can grow while they run
        prices=True,
    )


def _parse_reasons(text: str) -> set[Reason]:
    """Return the reasons of --retry. Raises UnknownName."""
    words = [word.strip().upper() for word in text.split(",") if word.strip()]
    if text and not words:
        raise UsageError("no reason is named", where="--retry", remedy="Name some: ERROR,TIMEOUT.")
    known = [reason.value for reason in Reason if reason is not Reason.GOAL]
    for word in words:
        if word not in known:
            raise UnknownName("reason", word, known, where="--retry")
    return {Reason(word) for word in words}


def _list_notices(facts: InputFacts, settings: Settings) -> Iterable[str]:
    for name, remedy in _UNUSED_SETTINGS.items():
        if origin := settings.origins.get(name):
            yield f"{name} ({origin}) is not used by a batch: {remedy}"
    for key, count in sorted(facts.ignored.items()):
        yield f"body.{key} of {count_noun(count, 'line')} is not used"


def _check_names(session: Session, source: InputFile, facts: InputFacts, flags: BatchFlags) -> None:
    """Check the agents and models of all lines. Raises UsageError that names the line."""
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


async def _run_with_screen(
    batch: Batch, folder: BatchFolder, screen: BatchScreen, saved: SavedRecord
) -> list[int]:
    """Run a batch, show its status, carry out changes, save its record.

    Return the received signals.
    """

    def stop() -> None:
        batch.stop("stopped by a signal")
        screen.print_line("no further lines start; Ctrl-C again stops those that run")

    def pause() -> None:
        batch.pause()
        screen.print_line("paused: the same command continues the lines that run")

    async def save() -> None:
        await saved.save_if_due(batch.done)

    received: list[int] = []
    stopped = asyncio.Event()
    watching = asyncio.create_task(_watch(batch, folder, screen))
    saving = asyncio.create_task(save_until(stopped, save))
    try:
        with (
            handle_batch_signals(stop, batch.cancel, pause) as received,
            show_log(screen.print_line),
        ):
            await batch.run()
    finally:
        watching.cancel()
        stopped.set()
        if len(received) > 1:
            saving.cancel()  # the user does not want to wait, and no other save follows
        await asyncio.gather(watching, saving, return_exceptions=True)
        screen.clear()
        _write_status(folder, batch.make_status(has_ended=True), screen)
    return received


async def save_until(
    stopped: asyncio.Event, save: Callable[[], Awaitable[None]], seconds: float = _SAVE_SECONDS
) -> None:
    """Save again and again. When stopped, wait for the end of the last save.

    A cancel would not end the thread that writes, and the next save writes the same file.

    Arguments:
        seconds: pause before each save.
    """
    while not stopped.is_set():
        with suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), seconds)
            return
        await save()


async def _watch(batch: Batch, folder: BatchFolder, screen: BatchScreen) -> None:
    """Show and write the status, and carry out the changes of other processes."""
    change = folder.read_change()
    handled = change.number if change else 0
    batch.apply(BatchChange(handled))  # it was for an earlier process
    polls = 0
    while True:
        change = folder.read_change()
        has_changed = change is not None and change.number > handled
        if change and has_changed:
            handled = change.number
            batch.apply(change)
        status = batch.make_status()
        screen.show(status)
        if has_changed or polls % _POLLS_PER_STATUS == 0:
            _write_status(folder, status, screen)
        polls += 1
        await asyncio.sleep(_POLL_SECONDS)


def _write_status(folder: BatchFolder, status: BatchStatus, screen: BatchScreen) -> None:
    """Write the status for other processes. The batch goes on if that fails."""
    try:
        folder.write_status(status)
    except OSError as error:
        text = f"the status for mudroom batch status cannot be written: {error.strerror}"
        screen.print_once(text)


def _end(batch: Batch, screen: BatchScreen, received: list[int]) -> int:
    """Print the end of a batch and return the exit code."""
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
    """Call `stop` at the first Ctrl-C inside the block, `cancel` at the second.

    SIGTERM and SIGHUP call `pause`. A signal after `cancel` or `pause` ends the process at once:
    the next one continues the interrupted lines. Yield the list of received signals.
    """
    loop = asyncio.get_running_loop()
    received: list[int] = []

    def on_signal(number: int) -> None:
        received.append(number)
        interrupts = received.count(signal.SIGINT)
        if interrupts == len(received) == 1:
            stop()
        elif interrupts == len(received) == 2:
            cancel()
        elif number != signal.SIGINT and len(received) - interrupts == 1:
            pause()
        else:
            exit_now(128 + received[0])

    handled = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    for number in handled:
        loop.add_signal_handler(number, on_signal, number)
    try:
        yield received
    finally:
        for number in handled:
            loop.remove_signal_handler(number)


def make_saved_record(home: str, session: str, continued: Continued | None = None) -> SavedRecord:
    """Return the saved record of a batch.

    Arguments:
        home: mudroom's state folder. session: id of the session of the batch.
        continued: what was read of it.
    """
    saved = continued.saved if continued else 0
    return SavedRecord(BatchFolder(home, session).path, open_store(home), session, saved)


async def open_results(
    home: str,
    session: str,
    facts: InputFacts,
    again: Collection[Reason],
    output: Path,
    kind: ResultFormat,
    continued: Continued | None,
) -> tuple[BatchRecord, ResultFile]:
    """Return what earlier processes did, and the output with their results.

    Arguments:
        home: mudroom's state folder. session: id of the session that continues, "" for a new one.
        again: reasons whose lines run again.
        continued: from the saved record; None if there is none that fits.
    """
    if not session:
        return BatchRecord(), ResultFile(output)
    results = continued.open_results(output) if continued else None
    if continued and results:
        return continued.record, results

    def read_events() -> AsyncIterator[StoredEvent]:
        return stream_events(open_store(home), session, RECORD_TYPES)

    return await read_record(read_events, facts.keys, again, partial(ResultFile, output), kind)
