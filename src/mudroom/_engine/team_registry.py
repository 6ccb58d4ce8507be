"""Teams: the named children of all runs in this process, and how messages reach them."""

from __future__ import annotations

import re
import unicodedata
from typing import Protocol

from msgspec import Struct

from .._core.agents import WorkspaceKind
from .._core.events import RunStarted, StoredEvent, TeamMessageSent, WorkMerged
from .._core.messages import Message
from .._core.runs import Brief
from .._projections.engine_text import quote
from .._projections.team import Roster, Teammate, normalize_name
from .recorded_conversations import RecordedRuns

PARENT = "parent"  # name of the parent in messages of a named child

PARENT_NAMES = (PARENT, "main", "lead", "team-lead")
ALL = "*"  # as a receiver: all children, or all of the sender's teammates

_FIRST_EVENTS = {RunStarted, TeamMessageSent}
"""The only events that matter until another run continues a child."""

MAX_RUNS = 20
"""Runs per name and parent run: two children must not keep waking each other for ever."""


class TeamRequest(Struct, frozen=True):
    """A message to a run's named children, or from one of them to that run, `parent`."""

    parent: str
    sender: str  # "user", or the id of the sending run
    id: str  # the place of the sending call
    to: str  # a name, the id of a named child's run, PARENT, or ALL
    text: str
    approve: bool | None = None
    call_id: str = ""  # if the run itself is the sender


class TeamReply(Struct, frozen=True):
    """What became of a message, as its sender reads it."""

    text: str
    is_error: bool = False


class OpenTeam(Protocol):
    """The named children of a working run."""

    async def send(self, request: TeamRequest) -> TeamReply:
        """Send a message. When this returns, it is in the record."""
        ...

    def observe(self, teammate: Teammate, event: StoredEvent) -> None: ...

    def close(self) -> None: ...


class Teams:
    """The named children of all runs, and the teams of runs working in this process.

    `open_work` has the last merge of each run whose work is not merged, by run id.
    """

    def __init__(self) -> None:
        self.roster = Roster()
        self.open_work: dict[str, WorkMerged] = {}
        self._conversations = RecordedRuns()
        self._open: dict[str, OpenTeam] = {}

    def observe(self, event: StoredEvent) -> None:
        """Add the next event of the record, from any run."""
        if not self._conversations.records and type(event) not in _FIRST_EVENTS:
            return
        self.roster.apply(event)
        self._keep_conversation(event)
        teammate = self.roster.get(event.run)
        if teammate and (team := self._open.get(teammate.briefs[-1].parent)):
            team.observe(teammate, event)

    def _keep_conversation(self, event: StoredEvent) -> None:
        """Keep the event if a later run may continue its run."""
        records = self._conversations.records
        may_continue = type(event) is RunStarted and (
            event.brief.workspace.kind is WorkspaceKind.ISOLATED or self.roster.get(event.run)
        )
        if may_continue or event.run in records:
            self._conversations.apply(event)
        if isinstance(event, WorkMerged):
            self.open_work.pop(event.child, None)
            if event.state == "merged":
                if self.roster.get(event.child) is None:  # without a name, no run continues it
                    records.pop(event.child, None)
            elif event.state != "dropped" and not event.returned:
                self.open_work[event.child] = event

    def open(self, parent: str, team: OpenTeam) -> None:
        self._open[parent] = team

    def get(self, parent: str) -> OpenTeam | None:
        return self._open.get(parent)

    def find_parent(self, name: str) -> str:
        """Find a working run that has a child with this name; "" if there is none."""
        return next((parent for parent in self._open if self.roster.find(parent, name)), "")

    def find_run_id(self, name: str) -> str:
        """Return the id of the last run of the child with this name; any other text unchanged.

        The child must belong to a working run.
        """
        teammate = self.roster.find(self.find_parent(name), name)
        is_name = teammate is not None and teammate.name == normalize_name(name)
        return teammate.run_id if teammate and is_name else name

    def close(self, parent: str) -> None:
        if team := self._open.pop(parent, None):
            team.close()

    def find_brief(self, run_id: str) -> Brief | None:
        """Find the recorded brief of a run that a later one may continue."""
        record = self._conversations.records.get(run_id)
        return record and record.brief

    def list_history(self, run_id: str) -> tuple[Message, ...]:
        """List the messages that a child's next run continues.

        The child is a named one, or one that gets its work back.
        """
        return self._conversations.list_next_history(run_id)

    def count_unread(self, parent: str) -> dict[str, int]:
        return self.roster.count_unread(parent)

    async def send(self, request: TeamRequest) -> TeamReply:
        team = self._open.get(request.parent)
        if team is None:
            return TeamReply("Nothing was sent: the parent does not work.", is_error=True)
        return await team.send(request)


_MAX_NAME = 32
_INVISIBLE_LETTERS = "\u115f\u1160"
_RESERVED = {*PARENT_NAMES, ALL, "all", "user", "mudroom"}

_TEAM_TEXT = (
    "You are {name}; your lead is {parent}{teammates}. send_message reaches them. "
    "Your last answer goes to the lead."
)
_PLAN_TEXT = " You may only read for now: end with your plan, and wait for its approval."

_SHUTDOWN_TEXT = (
    "[You are asked to stop. Finish, and report. You may refuse once: send_message to parent with "
    "approve: false and the reason.]"
)

EXCHANGE_NOTE = (
    "[From mudroom: {count} messages in a row between {names}, and no other act. After {maximum} "
    "no more are sent. Work, or report.]"
)

REPLACED_NOTE = "[From mudroom: this is a newer {name}, who knows nothing of the one before.]"

_ANSWERS = {True: "Approved.", False: "Refused."}

PLAN_NOTE = (
    "[This is its plan; nothing is changed yet. Answer with send_message(to={name!r}, "
    "approve=true or false, message=...): it then goes on, or plans again.]"
)


def add_answer(text: str, approve: bool | None) -> str:
    """Return the text of a message; an answer to a plan always has one."""
    return text if approve is None or text.strip() else _ANSWERS[approve]


def check_name(name: str) -> str:
    """Return why a child may not have this name, "" if it may."""
    if name in _RESERVED:
        return f"name: {name!r} is reserved; choose another one"
    has_letter_first = name[:1].isalpha()
    if not has_letter_first or len(name) > _MAX_NAME or not all(map(_is_allowed, name)):
        return f"name: {name!r} is not a letter and up to 31 letters, digits, - or _"
    return ""


def _is_allowed(character: str) -> bool:
    """Return whether names may contain a character: a letter of any script, a digit, "-", "_"."""
    kind = unicodedata.category(character)[0]
    return character in "-_" or (kind in "LMN" and character not in _INVISIBLE_LETTERS)


def make_agent_name(agent: str) -> str:
    """Return the name of a child named after its agent."""
    letters = (each if _is_allowed(each) else "-" for each in normalize_name(agent))
    name = re.sub("-+", "-", "".join(letters)).strip("-_0123456789")[:24]
    return f"{name or 'teammate'}-1" if not name or check_name(name) else name


def format_team(brief: Brief) -> str:
    """Describe the team for a named child's system prompt; "" for other children."""
    if not brief.name:
        return ""
    teammates = f", teammates: {', '.join(brief.teammates)}" if brief.teammates else ""
    text = _TEAM_TEXT.format(name=brief.name, parent=PARENT, teammates=teammates)
    return text + _PLAN_TEXT if brief.is_plan else text


def format_shutdown(reason: str) -> str:
    return f"{_SHUTDOWN_TEXT}\n{quote(reason)}".strip()
