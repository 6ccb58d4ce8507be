"""The user's messages to named children while no prompt runs."""

from __future__ import annotations

from ..._core.events import TeamMessageSent
from ..._core.runs import InboxMessage
from ..._engine.session_context import SessionServices


async def send_between_prompts(
    services: SessionServices, latest_run: str, name: str, message: InboxMessage
) -> bool:
    """Store a message to an idle child, which works again with it at the next prompt.

    Returns False if no child of the conversation has the name, or if it cannot read the message.

    Arguments:
        latest_run: id of the last prompt. name: of the child, or id of one of its runs.
    """
    event = _make_event(services, latest_run, name, message)
    if event is None:
        return False
    services.teams.observe(event)
    await services.journal.append(event)
    services.watchers.show(event)
    return True


def _make_event(
    services: SessionServices, latest_run: str, name: str, message: InboxMessage
) -> TeamMessageSent | None:
    roster = services.teams.roster
    wanted = roster.find(latest_run, name)
    for mate in roster.list_current(latest_run):
        if wanted is None or mate.first_run != wanted.first_run or not mate.is_idle:
            continue
        if message.approve is not None and not mate.briefs[-1].is_plan:
            return None
        return TeamMessageSent(
            at=services.clock.now(),
            to=mate.name,
            child=mate.first_run,
            message=message,
            after=latest_run,
        )
    return None
