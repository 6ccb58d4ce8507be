"""Options of a session that its runs and worker processes use, in groups.

A field keeps one flat name for settings files, flags and the record: its encoded name, which
`rename` gives where the name in a program is another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import Meta, Struct

from .type_checks import NamedFields

PositiveInt = Annotated[int, Meta(ge=1)]
Percent = Annotated[int, Meta(ge=1, le=100)]


class OptionGroup(Struct, metaclass=NamedFields, frozen=True, kw_only=True):
    """Base of the groups: the session checks the values when it takes them."""


_CHILDREN = {"model": "child_model", "turns": "child_turns", "parallel": "max_children"}


class Children(OptionGroup, frozen=True, kw_only=True, rename=_CHILDREN):
    """What child runs get, and how many run at once.

    Arguments:
        model: model string of children whose agent says "inherit"; "inherit" is the model of the
            parent. Rules choose by agent, "*" for any other agent:
            {"explore": "haiku", "*": "sonnet"} or "explore=haiku; *=sonnet".
        turns: maximum model calls of a child if its agent and its caller set no limit.
        parallel: children that run at the same time, at each depth; more wait.
        board: offer the tools for the task board of the project. Without it, only an agent that
            names them has them.

    Example:
        async with Session(children=Children(model="haiku", turns=20)) as session:
            await session.run("Find the tests that are slow, each in a child.")
    """

    model: str | Mapping[str, str] = "inherit"
    turns: PositiveInt = 30
    parallel: PositiveInt = 64
    board: bool = False


class Isolation(
    OptionGroup,
    frozen=True,
    kw_only=True,
    rename={"each_child": "isolate", "max_mb": "isolated_mb"},
):
    """Isolated workspaces of children, and what must hold before their work is merged.

    Arguments:
        each_child: give each child that may change files an isolated workspace, unless its agent
            or the call says otherwise.
        max_mb: disk space in MiB for the isolated workspaces of a session; at the limit, a child
            that needs one is not started.
        check: command, such as "make test", that must succeed with the merged files before the
            work of a child with an isolated workspace is merged.
        check_seconds: time limit of that command.
        max_returns: how often a child may correct work that cannot be merged, because it conflicts
            with its parent's files or the check fails. Each time, the child continues its
            conversation with both sides of the files. After that many times, and with 0 at once,
            nothing is merged and the parent reads the reason.

    Example:
        async with Session(isolation=Isolation(each_child=True, check="make test")) as session:
            await session.run("Fix each failing test in a child.")
    """

    each_child: bool = False
    max_mb: PositiveInt = 4096
    check: str = ""
    check_seconds: PositiveInt = 600
    max_returns: Annotated[int, Meta(ge=0)] = 1


class Compaction(OptionGroup, frozen=True, kw_only=True, rename={"automatic": "auto_compact"}):
    """When the engine shortens a conversation.

    Arguments:
        automatic: shorten a conversation before it fills its model's context window. When off,
            only `/compact` and the tool `compact` do.
        context_window: context window in tokens; overrides what the model's server and
            mudroom's tables say.
        clear_at, compact_at: percentage of the window at which old tool results are cleared, and
            at which the conversation is compacted.

    Example:
        async with Session(compaction=Compaction(context_window=32_000)) as session:
            await session.run("Read the sources and say how they are organised.")
    """

    automatic: bool = True
    context_window: PositiveInt | None = None
    clear_at: Percent = 60
    compact_at: Percent = 85


class ModelOptions(OptionGroup, frozen=True, kw_only=True, rename={"fallback": "fallback_model"}):
    """How models are called, and what is known of their prices.

    Arguments:
        fallback: model string of the model that continues when the first one fails permanently;
            more than one with commas.
        max_output_tokens: longest answer of a model in tokens, for agents that set none; None
            derives it from the model and its context window.
        takes_images: send images to every model. Otherwise a model that is not known to accept
            them, such as a local one, gets placeholders.
        prices: look up prices in a table for the costs in reports. A budget in dollars also turns
            this on. Without it, only free models and prices that a provider states are known.

    Example:
        options = ModelOptions(fallback="openai:gpt-5", max_output_tokens=8_000)
        session = Session(model="anthropic:claude-sonnet-4-5", model_options=options)
    """

    fallback: str = ""
    max_output_tokens: PositiveInt | None = None
    takes_images: bool = False
    prices: bool = False
