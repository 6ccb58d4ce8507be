"""What clients read: sessions, events they sent, pages of recorded events."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from .questions import Question
from .served_session import Status
from .state.inputs import Input, State


class InputView(Struct, frozen=True, kw_only=True):
    """An event that a client sent.

    Arguments:
        run, reason: root run of a prompt, and why it ended; "" before.
        is_applied: of an event that is no prompt: false if there was nothing to act on.
        error: why it could not be used, "" if it was.
    """

    id: str
    session: str
    type: str
    state: State
    object: str = "input"
    run: str = ""
    reason: str = ""
    is_applied: bool | None = None
    error: str = ""


class SessionView(Struct, frozen=True, kw_only=True):
    """A session.

    Arguments:
        agent, mode: "" for the default ones.
        created: seconds since 1970.
        run: root run of the prompt that works, "" if none.
        questions: calls that wait for an answer.
        usd, tokens: amounts that its runs have spent, as far as prices are known.
        last: the last prompt, None before the first.
    """

    id: str
    agent: str
    workspace: str
    mode: str
    created: float
    status: Status
    object: str = "session"
    run: str = ""
    questions: tuple[Question, ...] = ()
    budget: dict[str, Any] = {}
    usd: float = 0.0
    tokens: int = 0
    last: InputView | None = None


class SessionCreated(SessionView, frozen=True, kw_only=True):
    """A session that a request created. `input`: its first prompt, None without one."""

    input: InputView | None = None


class SessionPage(Struct, frozen=True, kw_only=True):
    """Sessions, the newest first. `next`: cursor of the next page, "" at the end."""

    data: tuple[SessionView, ...]
    object: str = "list"
    next: str = ""


class RecordedEvent(Struct, frozen=True):
    """An event of the record and its cursor."""

    cursor: str
    event: msgspec.Raw


class EventPage(Struct, frozen=True, kw_only=True):
    """Events of a record in their order.

    Arguments:
        next: cursor of the last event that was looked at; the next page begins after it.
    """

    data: tuple[RecordedEvent, ...]
    next: str
    has_more: bool
    object: str = "list"


class Deleted(Struct, frozen=True, kw_only=True):
    """A session that was deleted."""

    id: str
    object: str = "session"
    deleted: bool = True


class AgentView(Struct, frozen=True, kw_only=True):
    """An agent that a session can have."""

    name: str
    description: str


class AgentPage(Struct, frozen=True, kw_only=True):
    """Agents, workspaces and modes that a token can choose."""

    data: tuple[AgentView, ...]
    workspaces: tuple[str, ...]
    modes: tuple[str, ...]
    object: str = "list"


class ModelView(Struct, frozen=True, kw_only=True):
    """An agent, as clients of OpenAI's API read it."""

    id: str
    created: int = 0
    object: str = "model"
    owned_by: str = "mudroom"


class ModelPage(Struct, frozen=True, kw_only=True):
    """Agents, as clients of OpenAI's API read them."""

    data: tuple[ModelView, ...]
    object: str = "list"


class Health(Struct, frozen=True, kw_only=True):
    """State of the server.

    Arguments:
        status: of `/health` "ok", of `/ready` "ready" or "unavailable"; "draining" while it stops.
    """

    status: str
    version: str


def make_input_view(item: Input) -> InputView:
    result = item.result
    return InputView(
        id=f"in_{item.number}",
        session=item.session,
        type=item.type,
        state=item.state,
        run=result.run,
        reason=result.reason,
        is_applied=result.is_applied,
        error=result.error,
    )
