"""Recorded tools: those a record's runs had, wherever they came from.

A replay only makes the engine's own tools again. A program's functions and MCP tools do not exist
in it, so stand-ins give what the record says about each call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Literal, NoReturn, TypeVar

from msgspec.structs import replace

from .._adapters.tools import BOARD_TOOLS, make_builtin_tools
from .._core.events import (
    RunResumed,
    RunStarted,
    StoredEvent,
    ToolCallFinished,
    ToolCallStarted,
    TurnFinished,
)
from .._core.messages import ToolCallBlock
from .._core.runs import Brief, ToolDescription
from .._core.tool_names import SERVER_PREFIX, normalize_tool_name
from .._core.tools import Tool
from .._engine.run_tools import RUN_TOOLS
from .._engine.run_tools.merge_tool import MERGE_TOOL
from .._projections.safe_text import sanitize_line
from .._projections.team import MESSAGE_TOOL
from .._session.recorded_options import is_board_offered
from .recorded_events import ReplayDiverged

Offered = Mapping[str, Mapping[str, ToolDescription]]  # by run id and name
Offer = Literal["all", "root", "request"]  # see `Tool.offered_to`


def list_offered_tools(events: Iterable[StoredEvent]) -> Offered:
    """List the tools in requests, which older records do not contain."""
    parts: dict[str, str | ToolDescription] = {}
    heads: dict[str, tuple[str, ...]] = {}
    offered: dict[str, dict[str, ToolDescription]] = {}
    for event in events:
        if not isinstance(event, RunStarted | RunResumed) or not (head := event.head):
            continue
        parts.update(head.parts)
        if head.system:
            heads[head.id] = head.tools
        tools = [parts.get(each) for each in heads.get(head.id, ())]
        known = offered.setdefault(event.run, {})
        known.update((tool.name, tool) for tool in tools if isinstance(tool, ToolDescription))
    return offered


class RecordedTools:
    """A record's tools: the engine's own, and stand-ins.

    `toolbox` has the tools named by briefs, `late` those named only by models and calls, such as
    MCP tools.
    """

    def __init__(self, events: Sequence[StoredEvent]) -> None:
        self.offered = list_offered_tools(events)
        briefs = [event.brief for event in events if isinstance(event, RunStarted)]
        in_briefs = chain.from_iterable(brief.tools for brief in briefs)
        named = dict.fromkeys(name for name in in_briefs if not _is_of_server(name))
        own = self._make_own_tools(briefs)
        offers = _find_offers(briefs)
        names = chain(named, _list_called(events), *self.offered.values())
        made = {
            name: own.get(name) or _make_stand_in(name, offers.get(name, "all"))
            for name in dict.fromkeys(names)
        }
        if not is_board_offered(events):
            on_request = {name: made[name] for name in BOARD_TOOLS if name in made}
            made |= {name: replace(tool, offered_to="request") for name, tool in on_request.items()}
        self.toolbox = {name: made[name] for name in named}
        self.late = {name: tool for name, tool in made.items() if name not in named}

    def _make_own_tools(self, briefs: Sequence[Brief]) -> dict[str, Tool]:
        """Make the engine's tools, except those whose names a program gave its own."""
        tools = [set(brief.tools) - ({MESSAGE_TOOL} if brief.name else set()) for brief in briefs]
        are_engine_tools = all("task" in each for each in tools if each & RUN_TOOLS.keys())
        engine_tools = {**RUN_TOOLS, "merge": MERGE_TOOL} if are_engine_tools else {}
        own = {**make_builtin_tools(), **engine_tools}
        described = [(name, tool) for each in self.offered.values() for name, tool in each.items()]
        others = {name for name, tool in described if name in own and _is_another(own[name], tool)}
        return {name: tool for name, tool in own.items() if name not in others}


def _list_called(events: Iterable[StoredEvent]) -> Iterator[str]:
    """Yield the names in models' calls, and the names of the tools those called."""
    for event in events:
        if isinstance(event, ToolCallStarted):
            yield event.call.name
        elif isinstance(event, TurnFinished):
            yield from (call.name for call in event.message.tool_calls)


def _is_of_server(name: str) -> bool:
    """Return whether a brief's name or pattern is for MCP tools, which children get otherwise."""
    return name.removeprefix("!").startswith(SERVER_PREFIX)


def _find_offers(briefs: Iterable[Brief]) -> dict[str, Offer]:
    """Find the tools that only some runs were offered, and which.

    A child may have a tool that its parent lacks, because its agent names it; or all children whose
    agents exclude nothing may lack one.
    """
    known: dict[str, Brief] = {}
    offers: dict[str, Offer] = {}
    inherited: set[str] = set()
    for brief in briefs:
        known[brief.run_id] = brief
        parent = known.get(brief.parent)
        if parent is None or brief.is_compaction:
            continue
        if brief.agent.tools is None and parent.agent.child_tools is None:
            inherited.update(brief.tools)
            offers |= dict.fromkeys(set(parent.tools) - {*brief.tools, *offers}, "root")
        offers |= dict.fromkeys(set(brief.tools) - {*parent.tools}, "request")
    return {name: offer for name, offer in offers.items() if name not in inherited}


def _is_another(tool: Tool, recorded: ToolDescription) -> bool:
    """Return whether a program had its own tool under the name of one of the engine's."""
    own, others = (each.get("properties", {}) for each in (tool.parameters, recorded.parameters))
    return not own.keys() & others.keys() and bool(own or others)


def _make_stand_in(name: str, offered_to: Offer) -> Tool:
    async def fail(context: object, arguments: object) -> NoReturn:
        raise ReplayDiverged(f"{name} has no recorded result")

    return Tool(
        name=name,
        description="",
        parameters={"type": "object"},
        parse=dict,
        run=fail,
        offered_to=offered_to,
    )


def _is_stand_in(tool: Tool) -> bool:
    return tool.parse is dict


class RecordedCalls:
    """The starts and ends of a run's calls."""

    def __init__(self, events: Iterable[StoredEvent]) -> None:
        self._starts: dict[str, ToolCallStarted] = {}
        self._refusals: dict[str, str] = {}
        for event in events:
            if isinstance(event, ToolCallStarted):
                self._starts.setdefault(event.call.id, event)
            elif isinstance(event, ToolCallFinished) and event.refused:
                self._refusals[event.call_id] = event.result.text

    def adapt(self, tool: Tool | None, call: ToolCallBlock) -> Tool | None:
        """Return a tool as it was for one call, None if there was none by that name.

        The record tells how a stand-in reads the arguments, and whether it accepts them.
        """
        refusal = self._refusals.get(call.id, "")
        if refusal.startswith(f"There is no tool {call.name!r} here."):
            return None
        started = self._starts.get(call.id)
        if tool is None or started is None or not _is_stand_in(tool):
            return tool
        title = started.title
        titles = (name for name, value in started.call.arguments.items() if _is(value, title))
        tool = replace(tool, view=started.view, title_argument=next(titles, ""))
        if reason := _find_argument_fault(refusal, tool.name):
            return replace(tool, parse=_make_refusing(reason))
        arguments = started.call.arguments
        # A recorded call keeps an alias; any other name belongs to the tool it was forwarded to.
        if normalize_tool_name(started.call.name) != normalize_tool_name(tool.name):
            return replace(tool, forward=_make_constant((started.call.name, arguments)))
        return replace(tool, adapt=_make_constant(dict(arguments)))

    def read_path(self, call_id: str, tool_argument: str, path: str) -> str:
        """Return a call's path as it was read. Raises ValueError if it was refused."""
        if started := self._starts.get(call_id):
            path = str(started.call.arguments.get(tool_argument, path))
        text = self._refusals.get(call_id, "")
        reason = text.partition(f": {tool_argument}: ")[2]
        if text.startswith("Invalid arguments for ") and reason:
            raise ValueError(reason)
        return path


def _find_argument_fault(refusal: str, name: str) -> str:
    """Find why a call's arguments were refused, "" if they were not."""
    start = f"Invalid arguments for {name}: "
    return refusal.removeprefix(start) if refusal.startswith(start) else ""


T = TypeVar("T")


def _make_constant(value: T) -> Callable[..., T]:
    return lambda *_: value


def _is(value: object, title: str) -> bool:
    return bool(title) and isinstance(value, str) and sanitize_line(value) == title


def _make_refusing(reason: str) -> Callable[[object], NoReturn]:
    def refuse(_: object) -> NoReturn:
        raise ValueError(reason)

    return refuse
