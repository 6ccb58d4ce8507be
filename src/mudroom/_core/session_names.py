"""Rules that all session stores share: names, ids, and the errors for them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..errors import JournalBusy, UnknownName, UsageError

_ID_CHARACTERS = frozenset("0123456789abcdef-")
_MAX_LENGTH = 80
# How many ids an error suggests.
_MAX_SUGGESTED = 3
# Characters of an id shown to users.
_SHORT_ID_LENGTH = 8


def select_session(text: str, ids: Sequence[str], names: Iterable[tuple[str, str]]) -> str:
    """Find the session that a user names by its id, the beginning of its id, or its name.

    Arguments:
        ids: all ids, the most recently written first.
        names: pairs of name and id; read only if no id starts with the text, as reading is slow.

    Raises UnknownName if there is none, UsageError if several ids begin with the text.

    Example:
        ids = ["0f8fad5b-d9cb-469f-a165-70867728950e"]
        assert select_session("0f8f", ids, []) == ids[0]
    """
    if text in ids:
        return text
    matches = [session for session in ids if text and session.startswith(text)]
    if len(matches) > 1:
        shown = ", ".join(matches[:5])
        more = ", …" if len(matches) > 5 else ""
        message = f"{len(matches)} sessions begin with {text!r}"
        raise UsageError(message, remedy=f"Write more of the id: {shown}{more}")
    if matches:
        return matches[0]
    by_name: dict[str, str] = {}
    for name, session in names:
        by_name.setdefault(name, session)
    if text in by_name:
        return by_name[text]
    error: UnknownName = _make_unknown_error(text, ids, by_name)
    raise error


def make_missing_session_error(session: str) -> UnknownName:
    """Return the error for an id that no session has.

    It suggests no other session: servers ask for sessions that may not exist yet, and a list of
    all sessions can be long.

    Example:
        error = make_missing_session_error("0f8fad5b-d9cb-469f-a165-70867728950e")
    """
    return UnknownName("session", session, (), remedy="`mudroom runs` lists the sessions.")


def make_busy_error(writer: str, where: str) -> JournalBusy:
    """Return the error for a session that another writer has open.

    Arguments:
        writer: the process that writes it, such as "process 4711 on build-3".
        where: file or address of the session.

    Example:
        error = make_busy_error("process 4711", "session 0f8fad5b")
    """
    return JournalBusy(
        f"{writer} is writing this session",
        where=where,
        remedy="Wait for it or end it. --fork-session continues a copy; "
        "mudroom show reads it meanwhile.",
    )


def _make_unknown_error(text: str, ids: Sequence[str], names: Iterable[str]) -> UnknownName:
    """Make the error for a text that selects no session, naming the nearest ones."""
    from difflib import get_close_matches  # slow to import

    length = max(_SHORT_ID_LENGTH, len(text))
    known = [*names, *(session[:length] for session in ids)]
    near = get_close_matches(text, known, n=3, cutoff=0.6)
    if near:
        remedy = f"Did you mean {' or '.join(near)}?"
    elif ids:
        shown = ", ".join(session[:_SHORT_ID_LENGTH] for session in ids[:_MAX_SUGGESTED])
        remedy = f"The last ones: {shown}. `mudroom runs` lists them."
    else:
        remedy = "There are none."
    return UnknownName("session", text, known, remedy=remedy)


def check_session_name(name: str, names: Iterable[tuple[str, str]], session: str = "") -> None:
    """Check that a session can have this name; "" removes the name.

    Arguments:
        names: pairs of name and id of all sessions; read only if the name is valid.
        session: id of the session, "" for a new one.

    Raises UsageError if the name is invalid, looks like an id, or belongs to another session.

    Example:
        check_session_name("tax return", [("old work", "0f8fad5b")])
    """
    if name == "last" or (name and set(name.lower()) <= _ID_CHARACTERS):
        raise UsageError(f"{name!r} looks like a session id", remedy="Add a word to it.")
    is_one_line = name.isprintable() and name == name.strip()
    if len(name) > _MAX_LENGTH or not is_one_line or name.startswith("-"):
        raise UsageError(
            f"a name is one line of at most {_MAX_LENGTH} characters and does not begin "
            "with a dash",
            where=repr(name[:_MAX_LENGTH]),
        )
    if not name:
        return
    for other_name, other in names:
        if other_name == name and other != session:
            raise UsageError(
                f"session {other[:8]} has the name {name!r} already",
                remedy="Use another name, or rename that session first.",
            )
