"""Requests for tasks: the arguments of a call, checked, with the limits of the server."""

from __future__ import annotations

import os
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import astuple

from mudroom import Budget
from mudroom.driving import explain_mismatch
from mudroom.errors import UsageError

MAX_TASKS = 1_000
"""Tasks of one call of `task_many`."""
MAX_WAIT = 86_400.0
"""Seconds."""

_T = TypeVar("_T", bound=Struct)
_Text = Annotated[str, Meta(min_length=1)]
_Count = Annotated[int, Meta(ge=1)]
_Amount = Annotated[float, Meta(gt=0)]
Wait = Annotated[float, Meta(ge=0, le=MAX_WAIT)]


class BudgetArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Limits that the host requests; each can only lower a limit of the server."""

    turns: _Count | None = None
    tokens: _Count | None = None
    seconds: _Amount | None = None
    usd: _Amount | None = None


class TaskArguments(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One task, as a host requests it.

    Arguments:
        files: paths that the prompt names.
        schema: JSON Schema of the answer.
        wait: seconds until the call returns while the task goes on; None for the default.
    """

    prompt: _Text
    agent: str = ""
    description: str = ""
    model: str = ""
    budget: BudgetArguments = BudgetArguments()
    files: tuple[_Text, ...] = ()
    schema: dict[str, Any] | None = None
    wait: Wait | None = None

    @property
    def text(self) -> str:
        """The prompt with the names of the files."""
        if not self.files:
            return self.prompt
        return "\n".join([self.prompt, "", "Files:", *(f"- {path}" for path in self.files)])


class ManyArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `task_many`. `limit`: tasks that run at the same time."""

    tasks: Annotated[tuple[TaskArguments, ...], Meta(min_length=1, max_length=MAX_TASKS)]
    limit: _Count | None = None
    wait: Wait | None = None


class LookArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `look`."""

    prompt: _Text
    files: tuple[_Text, ...] = ()
    wait: Wait | None = None


class ResultArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `task_result`. `task`: None lists all tasks."""

    task: str | None = None
    wait: Wait | None = None


class CancelArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `task_cancel`."""

    task: _Text


class NoArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of a tool that has none."""


def parse_arguments(kind: type[_T], arguments: dict[str, Any], tool: str) -> _T:
    """Return the arguments of a call. Raises UsageError if one is wrong."""
    try:
        return msgspec.convert(arguments, kind)
    except msgspec.ValidationError as error:
        reason = explain_mismatch(error)
        raise UsageError(
            f"wrong arguments: {reason}", where=tool, remedy="Correct the call and repeat it."
        ) from error


def check_files(files: tuple[str, ...], folder: str) -> None:
    """Raise UsageError if a file that a prompt names does not exist in the folder."""
    for path in files:
        if not os.path.exists(os.path.join(folder, path)):
            raise UsageError("no such file", where=path, remedy=f"Name files relative to {folder}.")


def limit_budget(requested: BudgetArguments, limits: Budget) -> Budget:
    """Return a budget whose limits are the smaller ones of the request and of the server."""
    wanted = Budget(
        turns=requested.turns,
        total_tokens=requested.tokens,
        seconds=requested.seconds,
        usd=requested.usd,
    )
    pairs: Any = zip(astuple(wanted), astuple(limits), strict=True)
    return Budget(*[_choose_smaller(own, limit) for own, limit in pairs])


def _choose_smaller(own: Any, limit: Any) -> Any:  # noqa: ANN401  (numbers of any kind, or None)
    return min((each for each in (own, limit) if each is not None), default=None)
