"""`mudroom batch FILE`: runs each line of a file as one task, and goes on after an interruption."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from ...._core.budgets import Budget
from ...._core.counts import count_noun
from ...._core.runs import Reason
from ...._platform.event_loop import run_event_loop
from ...._platform.private_files import make_private_folder
from ....batches.batch import Batch, BatchPlan
from ....batches.control import BatchFolder
from ....batches.input_file import InputFacts, InputFile
from ....batches.results import ResultFormat, sort_results
from ....batches.saved_record import SavedRecord
from ....config import Settings
from ....errors import UnknownName, UsageError
from ....journals.sessions import require_no_writer
from ....session import Session
from ...output.batch_progress import BatchScreen, format_counts
from ...output.notices.log import show_log
from ...output.run_reporter import EXIT_TRY_LATER
from ..load_permissions import load_permissions
from ..load_settings import load_settings
from ..open_session import create_session
from ..programs.load_programs import list_server_names, load_programs
from ..session_start import NEW_SESSION, SessionStart
from ..user_store import open_store
from .past_results import make_saved_record, open_results
from .signals import handle_batch_signals

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


def run_batch(cwd: str, flags: BatchFlags, settings: dict[str, object]) -> int:
    """Run a batch and return the exit code.

    0: all lines reached their goals. 1: some did not. 75: the provider is unreachable. 128 and the
    number of a signal: stopped.
    """
    return run_event_loop(_run_batch(cwd, flags, load_settings(cwd, **settings)))


def name_session(output: Path) -> str:
    """Return the name of the session of a batch: one per output."""
    stem = "".join(each if each.isalnum() or each in "-_." else "-" for each in output.name)[:40]
    return f"batch-{stem}-{sha256(str(output).encode()).hexdigest()[:8]}"


def choose_output(file: str, out: str) -> Path:
    """Return the absolute path of the output. Raises UsageError."""
    if out:
        return Path(out).absolute()
    if file == "-":
        raise UsageError("a batch from stdin needs a place for its output", remedy="Add --out.")
    path = Path(file).absolute()
    return path.with_name(f"{path.stem}.results.jsonl")


async def _run_batch(cwd: str, flags: BatchFlags, settings: Settings) -> int:
    again = _parse_reasons(flags.retry)
    output = choose_output(flags.file, flags.out)
    if not output.parent.is_dir():
        raise UsageError("no such directory", where=str(output.parent), remedy="Create it.")
    source = InputFile(_find_input(flags.file, output, settings.home))
    if source.path.resolve() == output.resolve():
        raise UsageError("the output would replace the input", where=str(output))
    name = name_session(output)
    start = await _find_session(settings, name, output)
    facts = source.check(with_keys=bool(start.resume))
    kind = cast("ResultFormat", flags.kind)
    continued = None
    if start.resume:
        saved = make_saved_record(settings.home, start.resume)
        continued = await saved.read(facts.keys, again, output, kind)
    screen = BatchScreen(quiet=flags.quiet, plain=settings.screen == "plain")
    new_session = _create_session(settings, cwd, flags, start)
    new_session.past_events = continued.events if continued else None
    async with new_session as session:
        if not start.resume:
            await open_store(settings.home).rename(session.id, name)
        saved = make_saved_record(settings.home, session.id, continued)
        for notice in [*session.notices, *_list_notices(facts, settings)]:
            screen.print_line(notice)
        _check_names(session, source, facts, flags)
        record, results = await open_results(
            settings.home, start.resume, facts, again, output, kind, continued
        )
        plan = BatchPlan(
            total=facts.total,
            lines=source.read,
            output=str(output),
            agent=flags.agent,
            parallel=flags.parallel,
            kind=kind,
            usd_limit=flags.max_budget_usd,
        )
        with results:
            results.publish()
            batch = Batch(session, plan, record, results)
            folder = BatchFolder(settings.home, session.id)
            received = await _run_with_screen(batch, folder, screen, saved)
            if len(received) < 2:
                await saved.save_if_due(batch.done)
    if flags.is_ordered:
        sort_results(output, (line.id for line in source.read()))
    return _end(batch, screen, received)


def _find_input(file: str, output: Path, home: str) -> Path:
    """Return the path of the input; stdin is copied into the state folder first."""
    if file != "-":
        path = Path(file)
        if not path.is_file():
            raise UsageError("no such file", where=file, remedy="Name a file with one task a line.")
        return path
    folder = Path(home, "batches")
    make_private_folder(folder)
    path = folder / f"{name_session(output)}.jsonl"
    path.write_bytes(sys.stdin.buffer.read())
    return path


async def _find_session(settings: Settings, name: str, output: Path) -> SessionStart:
    """Return the session that wrote this output before, or a new one.

    Raises UsageError, and JournalBusy if another process writes the session.
    """
    store = open_store(settings.home)
    with suppress(UnknownName):
        session = await store.find(name)
        await require_no_writer(store, session)
        return SessionStart(resume=session)
    if output.exists() and output.stat().st_size:
        raise UsageError(
            "the output exists, and no batch that is still recorded has written it",
            where=str(output),
            remedy="Name another file with --out, or remove this one.",
        )
    return NEW_SESSION


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
        _check_name(session, f"{source.path}, line {number}", agent=name)
    for name, number in facts.models.items():
        _check_name(session, f"{source.path}, line {number}", model=name)


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

    async def save() -> None:
        await saved.save_if_due(batch.done)

    received: list[int] = []
    stopped = asyncio.Event()
    watching = asyncio.create_task(_watch(batch, folder, screen))
    saving = asyncio.create_task(save_until(stopped, save))
    try:
        with handle_batch_signals(stop, batch.cancel) as received, show_log(screen.print_line):
            await batch.run()
    finally:
        watching.cancel()
        stopped.set()
        if len(received) > 1:
            saving.cancel()  # the user does not want to wait, and no other save follows
        await asyncio.gather(watching, saving, return_exceptions=True)
        screen.clear()
        folder.write_status(batch.make_status(has_ended=True))
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
    handled = change.number if change else 0  # of an earlier process
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
            folder.write_status(status)
        polls += 1
        await asyncio.sleep(_POLL_SECONDS)


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
