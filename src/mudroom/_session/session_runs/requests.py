"""Callers' requests for runs, and what they get: outputs and reports."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from ..._core.agents import Agent
from ..._core.events import AnyEvent
from ..._core.ports import RunHandle
from ..._core.run_ids import find_root_id
from ..._core.runs import Brief, Reason, Report
from ..._core.runs import T as Outputs
from ..._engine.output_types import OutputType, parse_output_type
from ...errors import JournalError

# Values that a run must emit: a type, name -> description, or a JSON Schema. None: no values.
OutputSpec = type[Outputs] | Mapping[str, Any] | None


class RunRequest(Struct, frozen=True):
    """A caller's request for a run, made before the run waits for its start.

    Arguments:
        stop_count: calls of `cancel_all`, and of `interrupt` for a prompt, until then; a later
            call cancels the run.
        output_type: type of the run's values; None for no check.
        watcher: called with each event of the run and of the runs below it.
        is_prompt: true for a run of the conversation.
    """

    stop_count: int
    output_type: OutputType[Any] | None = None
    watcher: Callable[[AnyEvent], None] | None = None
    is_prompt: bool = False


class InterruptedPrompt(Struct, frozen=True):
    """A prompt that the user interrupted; its background work continues.

    Arguments:
        ending: waits for the end of the run, then adds the run to the conversation.
    """

    brief: Brief
    handle: RunHandle
    ending: asyncio.Task[None]


def add_outputs(agent: Agent, requested: OutputSpec[Any]) -> tuple[Agent, OutputType[Any] | None]:
    """Give an agent the requested outputs; return it and their type."""
    if requested is None:
        return agent, None
    output_type = parse_output_type(requested)
    return replace(agent, outputs=output_type.outputs), output_type


def convert_report(report: Report, output_type: OutputType[Any] | None) -> Report[Any]:
    """Convert a report's values to the type, None for no type."""
    return output_type.convert_report(report) if output_type else report


def filter_events(run_id: str, watcher: Callable[[AnyEvent], None]) -> Callable[[AnyEvent], None]:
    """Make a watcher that passes on events of one root run and of all runs below it."""

    def watch(event: AnyEvent) -> None:
        if find_root_id(event.run) == run_id:
            watcher(event)

    return watch


def to_report(result: Report[Any] | BaseException, brief: Brief) -> Report[Any]:
    """Return the report of a task; an exception becomes a report with reason ERROR.

    Raises JournalError, and exceptions that stop the program.
    """
    if isinstance(result, Report):
        return result
    if isinstance(result, JournalError) or not isinstance(result, Exception):
        raise result
    return Report(
        text="",
        reason=Reason.ERROR,
        run_id=brief.run_id,
        agent=brief.agent.name,
        model=brief.model,
        error=f"{type(result).__name__}: {result}",
        outputs=dict[str, Any](),
    )
