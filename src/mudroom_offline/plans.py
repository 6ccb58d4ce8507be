"""Plans: generators that yield tool calls, receive their results, and return the answer.

A plan keeps no state between turns. Each turn runs it from the start and feeds it the results that
are in the message list, so the same messages always lead to the same next step.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, TypeVar

from msgspec import Struct

from .catalog import load_data


class PlannedCall(Struct, frozen=True):
    """A tool call to make: tool name and arguments."""

    name: str
    arguments: dict[str, Any]


class CallOutput(Struct, frozen=True):
    """The text of one tool result."""

    text: str
    is_error: bool = False


class Translator(Struct, frozen=True):
    """The language of the request, and so of the answer."""

    is_chinese: bool = False

    def __call__(self, text: str, **values: object) -> str:
        """Return an English text in the language of the request, with its {names} replaced."""
        return (load_data("chinese").get(text, text) if self.is_chinese else text).format(**values)

    def join(self, items: Iterable[str]) -> str:
        """Return a list as running text."""
        return ("、" if self.is_chinese else ", ").join(items)

    def join_files(self, paths: Iterable[str]) -> str:
        """Return the first three paths in backticks."""
        unique = [f"`{path}`" for path in dict.fromkeys(paths)]
        return self.join([*unique[:3], "…"] if len(unique) > 3 else unique)


class Context(Struct, frozen=True):
    """What a plan may use.

    Arguments:
        tools: names of the tools in the request.
        say: the language of the answer.
        reader: name of the read-only agent that `task` offers, "" if it offers none.
    """

    tools: frozenset[str]
    say: Translator
    reader: str = ""

    def require(self, *names: str) -> None:
        """Raise CannotAnswer when one of the tools is not offered."""
        missing = self.say.join(f"`{name}`" for name in names if name not in self.tools)
        if missing:
            raise CannotAnswer(
                self.say("This cannot be done here: no {listed} tool is offered.", listed=missing)
            )


class Request(Struct, frozen=True):
    """One thing that the prompt asks for.

    Arguments:
        kind: name of an intent in `intents.toml`.
        text: the part of the prompt that asks for it.
        delegate: True when the user wants child runs to do it.
        scopes: folders to look in, each with a slash at its end; empty for everything.
        excluded: folders to leave out, each with a slash at its end.
    """

    kind: str
    text: str
    delegate: bool = False
    scopes: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()

    @property
    def scope(self) -> str:
        """The one folder to look in, "" for everything; a plan starts with one."""
        return next(iter(self.scopes), "")

    @property
    def folder(self) -> str | None:
        """The folder as the `path` of a tool call."""
        return self.scope.rstrip("/") or None


class StopEarly(Exception):
    """Thrown into a plan when no further call is allowed. The plan returns what it has."""


class CannotAnswer(Exception):
    """Raised by a plan that cannot do the request. The message says why, in the user's language."""


Answer = TypeVar("Answer")
Steps = Generator[list[PlannedCall], list[CallOutput], Answer]
Plan = Steps[str]


def plan_call(tool: str, **arguments: Any) -> PlannedCall:
    """Return a call of a tool. Arguments that are None are left out."""
    return PlannedCall(tool, {k: v for k, v in arguments.items() if v is not None})


def combine(parts: Iterable[str]) -> str:
    """Join the parts of an answer that are not empty."""
    return "\n\n".join(part.strip() for part in parts if part.strip())
