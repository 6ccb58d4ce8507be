"""The exceptions a programmer or a person at the terminal meets; errors for the model or the parent are values, not these.

MudroomError                what went wrong, where, and the remedy
├── UsageError              the caller asked for something that cannot be (exit code 2)
│   └── UnknownName         a model, agent, tool or session nobody knows; carries the nearest ones
├── ModelError              a model call failed for good
│   ├── ModelRefused        the provider said no: bad key, bad request, no such model
│   ├── ModelUnavailable    it may work later: overload, limits, no connection (exit code 75)
│   └── ModelGarbled        the endpoint does not speak the protocol
├── WorkspaceError          a path outside the workspace, or one that cannot be opened
└── JournalError            the record cannot be read or written; never followed by "saved"
    ├── JournalDamaged      inner damage; names the place
    ├── JournalNewer        written by a newer version
    └── JournalBusy         another process writes this session
"""

from __future__ import annotations

from collections.abc import Iterable


class MudroomError(Exception):
    """What went wrong (`message`), where (`where`), and what to do about it (`remedy`).

    Example:
        try:
            await session.task("Find the author.", agent="exporer")
        except MudroomError as error:
            print(error.message, error.remedy)  # unknown agent 'exporer'  Did you mean explore?
    """

    def __init__(self, message: str, *, where: str = "", remedy: str = "") -> None:
        self.message, self.where, self.remedy = message, where, remedy
        place = f" ({where})" if where else ""
        gap = (
            ""
            if message.endswith("\n")
            else " "
            if message.endswith((".", "!", "?", "。"))
            else ". "
        )
        super().__init__(f"{message}{place}{gap}{remedy}" if remedy else f"{message}{place}")


class UsageError(MudroomError):
    """The caller asked for something that cannot be.

    Example:
        try:
            async with Session(cwd="no/such/folder"): ...
        except UsageError as error:
            print(error.where)
    """


class UnknownName(UsageError):
    """Nobody knows `name`; `known` lists what there is, and the nearest one is suggested.

    Arguments:
        kind: what sort of thing was named: "tool", "agent", "model", "session".
    """

    def __init__(self, kind: str, name: str, known: Iterable[str], *, where: str = "") -> None:
        self.kind, self.name, self.known = kind, name, sorted(known)
        super().__init__(
            f"unknown {kind} {name!r}", where=where, remedy=suggest_names(name, self.known)
        )


class ModelError(MudroomError):
    """A model call failed for good.

    Example:
        try:
            await session.scope("title", PromptConfig(system_prompt="Find the title."), ModelConfig(model="offline"))
        except ModelError as error:  # of `run` and `task` it is the report's `error` instead
            print(error)
    """


class ModelRefused(ModelError):
    """The provider said no, and would say it again: bad key, bad request, no such model."""


class ModelUnavailable(ModelError):
    """The provider cannot be reached or is overloaded; the same call may work later.

    Example:
        async def ask(self, *, tools=True):  # of a model of your own
            raise ModelUnavailable("the model is being loaded", remedy="Ask again in a minute.")
            yield
    """


class ModelGarbled(ModelError):
    """What came back is not the protocol this endpoint was said to speak."""


class WorkspaceError(MudroomError):
    """A path that leads out of the workspace, or that cannot be opened as asked."""


class JournalError(MudroomError):
    """The record of a session cannot be read or written.

    Example:
        try:
            async with Session(resume="3f2a") as again: ...
        except (JournalError, UsageError) as error:
            print(error)
    """


class JournalDamaged(JournalError):
    """Damage inside the record, not at its torn end."""


class JournalNewer(JournalError):
    """The record was written by a newer version of this program."""


class JournalBusy(JournalError):
    """Another process is writing this session."""


def suggest_names(name: str, known: Iterable[str]) -> str:
    """One sentence that offers the names nearest to `name`, or all of them when none is near."""
    import difflib

    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    return f"Known: {', '.join(names)}." if names else "There are none."
