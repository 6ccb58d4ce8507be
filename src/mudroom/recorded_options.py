"""Options and events of a session that is resumed or forked; its place on the disk."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from . import config
from ._core.events import RunStarted, SessionOpened, StoredEvent
from ._core.ports import Journal
from ._core.tool_patterns import parse_tool_patterns
from ._platform.open_beneath import find_real_path
from ._platform.path_text import path_from_text
from .conversation_state import select_finished
from .errors import JournalDamaged, UsageError
from .journals.sessions import stream_events
from .open_adapters import open_store
from .option_record import restore_options
from .options import SessionOptions
from .permissions.rules import Verdict
from .pricing import calculate_cost
from .projections.open_events import OpenEvents
from .tools import BOARD_TOOLS


def get_environ(options: SessionOptions) -> Mapping[str, str]:
    """Return the variables with keys and addresses."""
    return os.environ if options.environ is None else options.environ


def find_home(options: SessionOptions) -> str:
    """Return the absolute path of mudroom's state folder."""
    if options.home:
        return os.path.abspath(options.home)
    return config.find_home(get_environ(options))


def find_folder(options: SessionOptions) -> str:
    """Return the absolute path of the session's folder. Raises UsageError if there is none."""
    if options.workspace is not None:
        return options.workspace.root
    folder = find_real_path(options.cwd)
    if not os.path.isdir(folder):
        raise UsageError(
            "no such directory", where=options.cwd, remedy="Name a folder that exists."
        )
    return folder


async def use_recorded_options(
    options: SessionOptions,
    *,
    drops_tasks: bool,
    chosen: Collection[str],
    past: OpenEvents | None = None,
) -> tuple[SessionOptions, OpenEvents]:
    """Return the options that the session to resume was started with, and its events.

    Arguments:
        drops_tasks: leave out the events of tasks that have ended.
        chosen: names of options that win over the record.
        past: its first events, if they have been read already.

    Raises UnknownName when there is no such session, JournalDamaged when it has no start.
    """
    recorded = past or OpenEvents(calculate_cost, drops_tasks=drops_tasks)
    session = await _read_recorded(options, recorded)
    events = recorded.events
    openings = [event for event in events if isinstance(event, SessionOpened)]
    if not openings:
        raise JournalDamaged(
            "the record does not start with a session",
            where=session or options.resume or "",
            remedy="Start a new session.",
        )
    opened = openings[0]
    options = restore_options(options, openings, chosen)
    briefs = [
        event.brief for event in events if type(event) is RunStarted and event.brief.depth == 0
    ]
    of_session = [brief for brief in briefs if not brief.has_own_model]
    reuses_model = options.model == "auto" and of_session
    options = replace(
        options,
        # The record of a fork begins with that of its original, which has another id.
        id=options.id if options.fork else session or openings[-1].session,
        resume=session or openings[-1].session,
        cwd=path_from_text(opened.cwd),
        model=of_session[-1].model if reuses_model else options.model,
        board=options.board or is_board_offered([*events, *recorded.starts.values()]),
        **_choose_style(options, events),
        prices=options.prices or any(brief.budget.usd is not None for brief in briefs),
    )
    return options, recorded


def _choose_style(options: SessionOptions, events: Sequence[StoredEvent]) -> dict[str, str]:
    """Return the options about the output style: a resumed session keeps its last one."""
    opened = [event for event in events if type(event) is SessionOpened and event.output_style]
    is_chosen_now = options.output_style and not options.output_style_origin
    if is_chosen_now or not opened:
        return {}
    origin = "the record of this session"
    return {"output_style": opened[-1].output_style, "output_style_origin": origin}


def describe_other_board(events: Sequence[StoredEvent], board: str) -> str:
    """Return a notice if a session used another task board before, "" if not.

    Arguments:
        board: file name of its board now, "" for none.
    """
    recorded = _find_board(events)
    if not board or recorded in ("", board):
        return ""
    return (
        f"this session uses the task board {board} now, and used {recorded} before: "
        "its folder belongs to another project (a git repository, or a folder without git)"
    )


def is_board_offered(events: Sequence[StoredEvent]) -> bool:
    """Return whether the tools for the task board were offered to all runs of a session."""
    selections = {
        (event.brief.agent.tools, event.brief.tools)
        for event in events
        if type(event) is RunStarted
    }
    return bool(_find_board(events)) or any(_has_offered_board(*each) for each in selections)


def _find_board(events: Sequence[StoredEvent]) -> str:
    """Return the file name of the last task board that all runs were offered, "" for none."""
    boards = [each.board for each in events if type(each) is SessionOpened and each.board]
    return boards[-1] if boards else ""


def _has_offered_board(agent_tools: tuple[str, ...] | None, tools: tuple[str, ...]) -> bool:
    """Return whether a run has tools for the board that its agent does not name."""
    named = {pattern.tool for pattern in parse_tool_patterns(agent_tools)}
    return any(tool in BOARD_TOOLS and tool not in named for tool in tools)


async def copy_journal(
    options: SessionOptions, recorded: OpenEvents, journal: Journal
) -> OpenEvents:
    """Copy the events of the resumed session into the journal of its fork; return the copied ones.

    While another process writes that session, unfinished runs are left out.
    """
    events = recorded.events
    if await open_store(options.store, find_home(options)).find_writer(options.resume or ""):
        events = select_finished(events)
    await journal.append(*events)
    copied = OpenEvents(calculate_cost, drops_tasks=False)
    copied.extend(events)
    return copied


async def _read_recorded(options: SessionOptions, recorded: OpenEvents) -> str:
    """Read the events of the session that the options resume; return its id in the store.

    It is "" for a journal of the caller, which has one session only.

    Raises UsageError, JournalError.
    """
    if options.journal == "memory" and not options.fork:
        raise UsageError(
            'a session in memory cannot be resumed with journal="memory"',
            remedy="Pass the Journal object again, or a store=MemoryStore().",
        )
    if not isinstance(options.journal, str) and not options.fork:
        async for event in options.journal.read(recorded.count):
            recorded.apply(event)
        return ""
    store = open_store(options.store, find_home(options))
    session = await store.find(options.resume or "")
    async for event in stream_events(store, session, after=recorded.count):
        recorded.apply(event)
    return session


def list_grants(options: SessionOptions) -> tuple[str, ...]:
    """Return the rights beyond the sandbox that the caller gave, for the record."""
    grants = ["network"] if options.allow_net else []
    grants.extend(str(rule) for rule in options.permissions.rules if rule.verdict is Verdict.ALLOW)
    return tuple(grants)
