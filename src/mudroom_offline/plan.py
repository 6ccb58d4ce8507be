"""What a plan is: a generator that yields the calls of one turn, gets their outcomes, and returns the final words.

A plan holds no state of its own. The conversation runs it from the start at every turn and feeds it the results in the
message list; so the same messages always lead to the same next step.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from msgspec import Struct


class Ask(Struct, frozen=True):
    """A call to be made: tool name and arguments."""

    name: str
    arguments: dict[str, Any]


class Outcome(Struct, frozen=True):
    """What a call gave back, as the model reads it."""

    text: str
    error: bool = False


class Tongue(Struct, frozen=True):
    """The language of the question, and so of the answer."""

    zh: bool = False

    def __call__(self, english: str, chinese: str) -> str:
        """The one of the two that the questioner reads."""
        return chinese if self.zh else english

    def join(self, items: list[str]) -> str:
        """A list in running text."""
        return ("、" if self.zh else ", ").join(items)


class Means(Struct, frozen=True):
    """What a plan may use: the names of the tools offered, and the agent to name in `task` for work that only reads."""

    tools: frozenset[str]
    say: Tongue
    reader: str = ""

    def without(self, *names: str) -> str:
        """Words for the tools of `names` that are not offered; "" when all are."""
        lacking = [f"`{name}`" for name in names if name not in self.tools]
        listed = self.say.join(lacking)
        return (
            self.say(
                f"This cannot be done here: no {listed} tool is offered.",
                f"这里做不到:没有提供 {listed} 工具。",
            )
            if lacking
            else ""
        )


class Request(Struct, frozen=True):
    """One thing asked for: its kind (the name of an intent), the words it was asked with, and whether children shall do it."""

    kind: str
    text: str
    delegate: bool = False


class Cut(Exception):
    """Thrown into a plan when no further call is allowed: it returns what it has."""


class Beyond(Exception):
    """Raised by a plan that finds it cannot do what it was asked; the message says why, in the questioner's language."""


Plan = Generator[list[Ask], list[Outcome], str]
Step = list[Ask]


def call(tool: str, **arguments: Any) -> Ask:
    """A call; arguments that are None are left out. A leading underscore stands for a dash: `_i=True` is "-i"."""
    return Ask(
        tool,
        {("-" + k[1:] if k[0] == "_" else k): v for k, v in arguments.items() if v is not None},
    )


def one(ask: Ask) -> Generator[list[Ask], list[Outcome], Outcome]:
    """A turn of one call."""
    outcomes = yield [ask]
    return outcomes[0]
