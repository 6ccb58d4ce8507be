"""Names of children, and the texts that tell a model about them."""

from __future__ import annotations

import re
import unicodedata

from .._core.runs import Brief
from .._projections.engine_text import quote
from .._projections.team import normalize_name
from .team_registry import ALL, PARENT, PARENT_NAMES

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
    """Return the text of a message; an answer to a plan has one in any case."""
    return text if approve is None or text.strip() else _ANSWERS[approve]


def check_name(name: str) -> str:
    """Return the reason why a child may not have a name, "" if it may."""
    if name in _RESERVED:
        return f"name: {name!r} is reserved; choose another one"
    has_letter_first = name[:1].isalpha()
    if not has_letter_first or len(name) > _MAX_NAME or not all(map(_is_allowed, name)):
        return f"name: {name!r} is not a letter and up to 31 letters, digits, - or _"
    return ""


def _is_allowed(character: str) -> bool:
    """Return whether a name may have a character: a letter of any script, a digit, "-" or "_"."""
    kind = unicodedata.category(character)[0]
    return character in "-_" or (kind in "LMN" and character not in _INVISIBLE_LETTERS)


def make_agent_name(agent: str) -> str:
    """Return the name of a child that has that of its agent."""
    letters = (each if _is_allowed(each) else "-" for each in normalize_name(agent))
    name = re.sub("-+", "-", "".join(letters)).strip("-_0123456789")[:24]
    return f"{name or 'teammate'}-1" if not name or check_name(name) else name


def format_team(brief: Brief) -> str:
    """Return the text about its team for the system prompt of a named child, "" for others."""
    if not brief.name:
        return ""
    teammates = f", teammates: {', '.join(brief.teammates)}" if brief.teammates else ""
    text = _TEAM_TEXT.format(name=brief.name, parent=PARENT, teammates=teammates)
    return text + _PLAN_TEXT if brief.is_plan else text


def format_shutdown(reason: str) -> str:
    """Return the text of a request to stop."""
    return f"{_SHUTDOWN_TEXT}\n{quote(reason)}".strip()
