"""Exceptions for programmers and users.

Errors for the model or for a parent run are values instead.

MudroomError                what went wrong, where, and the remedy
├── UsageError              the request of the caller is impossible (exit code 2)
│   └── UnknownName         no such model, agent, tool or session; suggests similar names
├── ModelError              a model call failed finally
│   ├── ModelRefused        the provider refused: bad key, bad request, no such model
│   │   └── ContextOverflow  the conversation does not fit into the model's context window
│   ├── ModelUnavailable    may work later: overload, rate limits, no connection (exit code 75)
│   └── ModelGarbled        the endpoint does not follow the protocol
├── WorkspaceError          a path outside the workspace, or one that cannot be opened
├── BudgetExceeded          a limit allows no further child, or not the amounts it asks for
├── StoppedByHook           a hook refused a prompt, or stopped a run
├── BoardError              the task board cannot be read or written
└── JournalError            the journal cannot be read or written
    ├── JournalDamaged      damage inside the journal, not at its end
    ├── JournalNewer        written by a newer version
    ├── JournalBusy         another process writes this session
    └── SessionPaused       the session stopped its work, and a later process continues it
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from reprlib import Repr

_MAX_LENGTH = 4_000
"""Maximum characters of the message and of the place of an error."""

_END_IN_BRACKETS = r" \([^()]+\)\Z"

_QUOTES = Repr()
_QUOTES.maxstring = _QUOTES.maxother = _QUOTES.maxlong = 200


class MudroomError(Exception):
    """Base class of all exceptions of this package.

    Arguments:
        message: what went wrong.
        where: the file, run or argument that the error is about, or "".
        remedy: what to do, or "".

    Example:
        try:
            await session.task("Find the author.", agent="exporer")
        except MudroomError as error:
            print(error.message, error.remedy)  # unknown agent 'exporer'  Did you mean explore?
    """

    def __init__(self, message: str, *, where: str = "", remedy: str = "") -> None:
        message = shorten_text(message, _MAX_LENGTH)
        where = shorten_text(where, _MAX_LENGTH)
        self.message = message
        self.where = where
        self.remedy = remedy
        text = _add_place(message, where) if where else message
        if remedy:
            text += _choose_separator(message) + remedy
        super().__init__(text)


def _add_place(message: str, where: str) -> str:
    """Return the message and its place in brackets; brackets at the end get the place, too."""
    if re.search(_END_IN_BRACKETS, message):
        return f"{message[:-1]}; {where})"
    return f"{message} ({where})"


def _choose_separator(message: str) -> str:
    if message.endswith("\n"):
        return ""
    return " " if message.endswith((".", "!", "?", "。")) else ". "


class UsageError(MudroomError):
    """The request of the caller is impossible.

    Example:
        try:
            async with Session(cwd="no/such/folder"):
                ...
        except UsageError as error:
            print(error.where)
    """


class UnknownName(UsageError):
    """Nothing of this kind has the name; the remedy suggests similar names.

    Arguments:
        kind: kind of the name in one or a few words, such as "tool", "agent" or "session".
        known: all names of this kind.
        remedy: replaces the suggestion of similar names.
    """

    def __init__(
        self, kind: str, name: str, known: Iterable[str], *, where: str = "", remedy: str = ""
    ) -> None:
        self.kind = kind
        self.name = name
        self.known = sorted(known)
        remedy = remedy or suggest_names(str(name)[: _QUOTES.maxstring], self.known)
        super().__init__(f"unknown {kind} {quote_value(name)}", where=where, remedy=remedy)


class ModelError(MudroomError):
    """A model call failed finally.

    Example:
        from mudroom.scope import ModelConfig, PromptConfig

        prompt = PromptConfig(system_prompt="Find the title.")
        try:
            await session.scope("title", prompt, ModelConfig(model="offline"))
        except ModelError as error:  # `run` and `task` put it into the report's `error`
            print(error)
    """


class ModelRefused(ModelError):
    """The provider refused and would refuse again: bad key, bad request, no such model."""


class ContextOverflow(ModelRefused):
    """The conversation does not fit into the model's context window.

    Example:
        from mudroom.scope import PromptConfig

        try:
            await session.scope("title", PromptConfig(system_prompt=paper))
        except ContextOverflow:
            await session.scope("title", PromptConfig(system_prompt=paper[:20_000]))
    """


class ModelUnavailable(ModelError):
    """The provider is overloaded or cannot be reached; the same call may work later.

    Example:
        async def request_answer(self, *, tools=True, max_tokens=None):  # of your own model
            raise ModelUnavailable("the model is being loaded", remedy="Ask again in a minute.")
            yield
    """


class ModelGarbled(ModelError):
    """The response does not follow the protocol of the endpoint."""


class WorkspaceError(MudroomError):
    """A path is outside the workspace, or cannot be opened as requested."""


class BudgetExceeded(MudroomError):
    """A limit of a run, or of a run above it, does not allow a child that the run wants to start.

    Example:
        meter.allocate(Budget(usd=2.0))  # raises: usd: 2 requested, 0.5 left
    """


class StoppedByHook(MudroomError):
    """A hook refuses a prompt, or stops a run. The run ends with ERROR and this message.

    Example:
        class OfficeHours(Hooks):
            async def on_prompt(self, brief):
                raise StoppedByHook("no prompts on Sundays")
    """


class BoardError(MudroomError):
    """The task board of a project cannot be read or written."""


class JournalError(MudroomError):
    """The journal of a session cannot be read or written.

    Example:
        try:
            async with Session(resume="3f2a") as session:
                ...
        except (JournalError, UsageError) as error:
            print(error)
    """


class JournalDamaged(JournalError):
    """The journal is damaged inside, not at its end."""


class JournalNewer(JournalError):
    """The journal was written by a newer version of this program."""


class JournalBusy(JournalError):
    """Another process is writing this session."""


class SessionPaused(JournalError):
    """The session was paused: its runs have stopped without an end, and can be resumed.

    Example:
        try:
            report = await session.run("Look through the folder.")
        except SessionPaused:
            print("to be continued:", session.id)
    """


def quote_value(value: object) -> str:
    """Return the `repr` of any value, shortened: it may be long or deep, or fail."""
    try:
        return _QUOTES.repr(value)
    except Exception:  # noqa: BLE001  a method of the caller may raise anything
        return f"<{type(value).__name__}>"


def shorten_text(text: str, length: int) -> str:
    """Return the text, without its middle if it is longer than `length` characters."""
    if len(text) <= length:
        return text
    half = length // 2
    return f"{text[:half]} ({len(text) - 2 * half:,} characters left out) {text[-half:]}"


def suggest_names(name: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """Return a sentence that suggests the names most similar to `name`.

    Without a similar name it is `otherwise`, or a list of all names.
    """
    import difflib

    names = {known_name.lower(): known_name for known_name in sorted(known)}
    near = difflib.get_close_matches(name.lower(), names, n=3, cutoff=0.6)
    if near:
        return f"Did you mean {' or '.join(names[match] for match in near)}?"
    if otherwise:
        return otherwise
    return f"Known: {', '.join(names.values())}." if names else "There are none."
