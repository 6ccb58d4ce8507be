"""Values that the command line provides: sessions of plans, agents, options of the server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from mudroom import Budget
from mudroom.driving import ListenOptions

if TYPE_CHECKING:
    from mudroom import Session
    from mudroom.ports import Approver, SessionStore


class ServedSessionPlan(Struct, frozen=True, kw_only=True):
    """The session to open.

    Arguments:
        id: its id. is_recorded: true if it is continued.
        cwd: absolute path of its folder.
        agent: "" for that of the settings. mode: permission mode, "" for that of the settings.
        budget: limits of each prompt.
    """

    id: str
    is_recorded: bool
    cwd: str
    agent: str = ""
    mode: str = ""
    budget: Budget = Budget()


class ListedAgent(Struct, frozen=True, kw_only=True):
    """An agent that can run the prompts of a session."""

    name: str
    description: str


class CommandLine(Struct, frozen=True, kw_only=True):
    """Functions of the command line.

    Arguments:
        prepare: makes the session of a plan, not yet open, recorded in a store. Raises UsageError.
        list_agents: returns the agents of a folder; called in a thread.
    """

    prepare: Callable[[ServedSessionPlan, Approver, SessionStore], Session]
    list_agents: Callable[[str], Sequence[ListedAgent]]


class ServiceOptions(ListenOptions, frozen=True, kw_only=True):
    """Options of the server.

    Arguments:
        home: mudroom's state folder.
        workspaces: names and absolute paths of folders; the first one is the default.
        limits: of each prompt.
        login_header: header in which the proxy names the user, "" for none.
        login_networks: addresses that may send it.
        login_usd_per_day, login_tokens_per_day: daily limits of each owner that it names.
        parallel: prompts at the same time. per_owner: those of one owner.
        max_waiting: prompts of one owner that wait or work.
        max_body: bytes of a request.
        body_seconds: time for the body of a request. write_seconds: time for a write to a client.
        answer_seconds: time for an answer to a question.
        idle_seconds: time without work after which a session is closed.
        drain_seconds: time for prompts to end after the first signal.
        keepalive_seconds: time without an event after which a stream sends a comment.
        poll_seconds: time between two looks for the work of other server processes.
        retry_seconds: time until a session is opened again that could not be recorded.
    """

    home: str
    workspaces: Mapping[str, str]
    limits: Budget = Budget()
    login_header: str = ""
    login_networks: tuple[str, ...] = ()
    login_usd_per_day: float | None = None
    login_tokens_per_day: int | None = None
    parallel: int = 16
    per_owner: int = 12
    max_waiting: int = 10_000
    max_body: int = 4 << 20
    body_seconds: float = 30.0
    write_seconds: float = 30.0
    answer_seconds: float = 3_600.0
    idle_seconds: float = 20.0
    drain_seconds: float = 30.0
    keepalive_seconds: float = 15.0
    poll_seconds: float = 0.25
    retry_seconds: float = 5.0
