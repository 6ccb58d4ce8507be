"""What the command line provides: sessions made from plans, agents, the server's options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from mudroom import Agent, Budget
from mudroom.driving import ListenOptions

if TYPE_CHECKING:
    from mudroom import Session
    from mudroom.ports import Approver, SessionStore


class ServedSessionPlan(Struct, frozen=True, kw_only=True):
    id: str
    is_recorded: bool  # the session is continued
    cwd: str  # absolute
    agent: str = ""  # "" for that of the settings
    mode: str = ""  # "" for that of the settings
    budget: Budget = Budget()  # of each prompt


class CommandLine(Struct, frozen=True, kw_only=True):
    # Makes a plan's session, not yet open, recorded in a store. Raises UsageError.
    prepare: Callable[[ServedSessionPlan, Approver, SessionStore], Session]
    list_agents: Callable[[str], Sequence[Agent]]  # of a folder; called in a thread


class ServiceOptions(ListenOptions, frozen=True, kw_only=True):
    home: str  # mudroom's state folder
    workspaces: Mapping[str, str]  # names and absolute paths; the first one is the default
    limits: Budget = Budget()  # of each prompt
    login_header: str = ""  # in which the proxy names the user
    login_networks: tuple[str, ...] = ()  # addresses that may send it
    login_usd_per_day: float | None = None  # for each owner it names
    login_tokens_per_day: int | None = None
    parallel: int = 16  # prompts at the same time
    per_owner: int = 12
    max_waiting: int = 10_000  # one owner's waiting or running prompts
    max_body: int = 4 << 20  # bytes of a request
    body_seconds: float = 30.0  # for a request's body to arrive
    write_seconds: float = 30.0  # for a write to a client
    answer_seconds: float = 3_600.0  # for an answer to a question
    idle_seconds: float = 20.0  # without work, until a session is closed
    drain_seconds: float = 30.0  # for prompts to finish after the first signal
    keepalive_seconds: float = 15.0  # without an event, until a stream sends a comment
    poll_seconds: float = 0.25  # between polls for other server processes' work
    retry_seconds: float = 5.0  # before reopening a session that could not be recorded
