"""Plans: generators that yield tool calls, receive their results, and return the answer."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, TypeVar

from msgspec import Struct, field

from mudroom import ToolCallBlock, ToolResultBlock

from .catalog import load_data

Answer = TypeVar("Answer")
Steps = Generator[list[ToolCallBlock], list[ToolResultBlock], Answer]
Plan = Steps[str]


class Translator(Struct, frozen=True):
    """The language of the request, and thus of the answer."""

    is_chinese: bool = False

    def __call__(self, key: str, **values: object) -> str:
        """Return a text from `texts.toml` in the request's language, with its {names} replaced."""
        return load_data("texts")[key][self.is_chinese].format(**values)

    def count(self, number: int, unit: str) -> str:
        """Format a number and its unit, for example "1 file" or "2,000 files"."""
        plural = "s" if number != 1 and not self.is_chinese else ""
        return f"{number:,} {self(unit)}{plural}"

    def join(self, items: Iterable[str]) -> str:
        return ("、" if self.is_chinese else ", ").join(items)

    def join_first(self, items: Iterable[str], mark: str = "", most: int = 3) -> str:
        """Join the first different items, each between two marks."""
        unique = [f"{mark}{item}{mark}" for item in dict.fromkeys(items)]
        return self.join([*unique[:most], "…"] if len(unique) > most else unique)


class Context(Struct, frozen=True):
    """Everything a plan may use."""

    tools: frozenset[str]
    say: Translator
    reader: str = ""  # read-only agent that `task` offers
    repository: str = ""  # the repository's root, if above the session's folder
    problems: list[str] = field(default_factory=list[str])  # why the answer is incomplete
    parts: list[str] = field(default_factory=list[str])  # answers to the requests so far

    def require(self, *names: str) -> None:
        """Raise CannotAnswer if any of these tools is not offered."""
        missing = self.say.join(f"`{name}`" for name in names if name not in self.tools)
        if missing:
            raise CannotAnswer(self.say("no_tool", listed=missing))

    def describe_problems(self, problems: list[str]) -> str:
        """Note unsearched places, "" if there are none. Problems end a run not done."""
        self.problems.extend(filter(None, problems))
        reasons = self.say.join(dict.fromkeys(filter(None, problems)))
        return self.say("not_all_searched", reasons=reasons) if reasons else ""


class Request(Struct, frozen=True):
    """One thing the prompt asks for."""

    kind: str  # name of an intent in `intents.toml`
    text: str  # the part of the prompt that asks for it
    delegate: bool = False  # True if the user wants child runs to do it
    folder: str | None = None  # the folder to look in; None for everything

    def name_place(self, say: Translator) -> str:
        return f"`{self.folder}/`" if self.folder else say("this_folder")


class CannotAnswer(Exception):
    """A plan cannot do the request. The message explains why, in the user's language."""


def plan_call(tool: str, **arguments: Any) -> ToolCallBlock:
    """Make a tool call, still without an id. Arguments that are None are left out."""
    return ToolCallBlock("", tool, {k: v for k, v in arguments.items() if v is not None})


def combine(parts: Iterable[str]) -> str:
    return "\n\n".join(part.strip() for part in parts if part.strip())
