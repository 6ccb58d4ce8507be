"""Restores the state of a resumed or forked session from its record."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ..._core.events import StoredEvent
from ..._projections.open_events import OpenEvents
from .. import recorded_options
from ..conversation_state import ConversationState
from ..options import SessionOptions
from .runner import SessionRunner


async def load_record(
    runner: SessionRunner,
    options: SessionOptions,
    conversation: ConversationState,
    recorded: OpenEvents,
    watchers: Iterable[Callable[[StoredEvent], None]],
) -> list[str]:
    """Restore the state of a session from its record; return the notices for the user.

    Arguments:
        recorded: events of the session that the options resume.
        watchers: called with each of these events.

    Raises JournalError.
    """
    services = runner.resources.services
    if options.fork:
        recorded = await recorded_options.copy_journal(options, recorded, services.journal)
    # Another process may have written until this one opened the journal.
    async for event in services.journal.read(recorded.count):
        recorded.apply(event)
    events = recorded.events
    conversation.load(events)
    # The events of ended tasks may have been left out, but their numbers are taken.
    conversation.run_count = max(conversation.run_count, recorded.task_count)
    services.request_heads.load(recorded.heads)
    services.request_heads.load(events)
    watching = list(watchers)
    for event in events:
        services.teams.observe(event)
        services.check_results.observe(event)
        if runner.resources.tracing:
            runner.resources.tracing.observe_past(event)
        for watch in watching:
            watch(event)
    runner.meter.add_past(recorded, conversation.unfinished_events)
    folder = services.environments.shared.workspace.root
    services.former_folders.update(recorded_options.find_former_folders(events, folder))
    notices = [
        recorded_options.describe_move(events, folder),
        recorded_options.describe_other_board(events, runner.resources.board_name),
    ]
    return [notice for notice in notices if notice]
