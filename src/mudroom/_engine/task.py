"""The task tool: brief, carve, narrow, hand to the worker, give back the report and nothing else. The only file that makes children."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec
from msgspec import Struct

from .._core.agents import Agent, Brief, Reason, Report
from .._core.budgets import Budget
from .._core.tool_patterns import call_patterns, select_tools
from .._core.tools import Effect, Tool, ToolResult
from ..errors import suggest_names
from .meters import Meter
from .run_context import CallContext, RunContext

REPORT_CAP = 8_000
"""Characters of a child's report in its parent's context; the rest is in a file."""

NO_SUMMARY = "(no summary)"

_DESCRIPTION = """\
Give a self-contained piece of work to a child agent with a clean context of its own. Use it for research, analysis or any work \
whose intermediate output you need not see: the child reads and runs things, only its final report comes back. It knows nothing \
of this conversation, so put all it needs into the prompt. Several calls in one answer run at the same time.
Agents:
"""


class TaskArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """What the model says when it starts a child."""

    prompt: str
    description: str = ""
    agent: str = "general"
    max_turns: int | None = None
    model: str | None = None


def task_tool(agents: Mapping[str, Agent]) -> Tool:
    """The tool, its description listing whom it may call."""
    listed = "\n".join(f"- {agent.name}: {agent.description}" for agent in agents.values())
    text = {"type": "string"}
    properties: dict[str, Any] = {
        "prompt": text | {"description": "the whole task"},
        "description": text | {"description": "3-5 words for the screen"},
        "agent": text | {"enum": list(agents)},
        "max_turns": {"type": "integer", "minimum": 1},
        "model": text,
    }
    return Tool(
        name="task",
        description=_DESCRIPTION + listed,
        parameters={"type": "object", "properties": properties, "required": ["prompt"]},
        parse=_parse,
        run=_run,
        effect=Effect.KEYED,
        argument_aliases={"subagent_type": "agent", "agent_name": "agent", "maxTurns": "max_turns"},
    )


def narrow_tools(
    tools: Iterable[str], wanted: Iterable[str] | None, *, depth: int
) -> tuple[str, ...]:
    """The parent's tools, of these the ones the agent names, and `task` only while depth is left."""
    return select_tools([name for name in tools if name != "task" or depth > 0], wanted)


def _parse(arguments: dict[str, Any]) -> TaskArguments:
    parsed = msgspec.convert(arguments, TaskArguments, strict=False)
    if not parsed.prompt.strip():
        raise ValueError("prompt: empty; say what the child shall do")
    if parsed.max_turns is not None and parsed.max_turns < 1:
        raise ValueError("max_turns: at least 1")
    return parsed


async def _run(context: CallContext, arguments: TaskArguments) -> ToolResult:
    ctx = context.run
    agents = {
        _plain(name): ctx.services.agents[name]
        for name in select_tools(ctx.services.agents, ctx.brief.agent.children)
    }
    agent = agents.get(_plain(arguments.agent))
    if agent is None:
        names = [agent.name for agent in agents.values()]
        return ToolResult(
            f"There is no agent {arguments.agent!r}. {suggest_names(arguments.agent, names)}",
            error=True,
        )
    try:
        brief, meter = _brief(context, agent, arguments)
    except ValueError as error:
        return ToolResult(
            f"No child was started: {error}. Ask for less, or do the rest yourself.", error=True
        )
    try:
        report = await ctx.worker.run(brief, meter)
    finally:
        meter.release()
    text, spill = format_report(context, report)
    return ToolResult(
        text,
        error=report.reason in (Reason.ERROR, Reason.CANCELLED, Reason.LOST),
        reads=report.files_read,
        changes=report.files_changed,
        detail={"run": report.run_id} | ({"below": meter.children} if meter.children else {}),
        spill=spill,
    )


def _brief(context: CallContext, agent: Agent, arguments: TaskArguments) -> tuple[Brief, Meter]:
    ctx = context.run
    model, wish = (
        _model(ctx, agent, arguments),
        Budget(turns=arguments.max_turns)
        .with_defaults(agent.budget)
        .with_defaults(ctx.services.child_budget),
    )
    meter = ctx.meter.allocate(wish, ctx.age)
    brief = Brief(
        run_id=f"{ctx.run_id}.{ctx.turn}.{context.position}",
        parent=ctx.run_id,
        call_id=context.call.id if context.call else "",
        agent=agent,
        prompt=arguments.prompt,
        description=arguments.description or arguments.prompt.strip().splitlines()[0][:60],
        tools=narrow_tools(
            select_tools(ctx.brief.tools, ctx.brief.agent.child_tools),
            agent.tools,
            depth=meter.budget.depth or 0,
        ),
        model=model,
        budget=meter.budget,
        depth=ctx.brief.depth + 1,
        mode=(agent.mode or ctx.brief.mode).limit_to(ctx.brief.mode),
        limits=(
            *ctx.brief.limits,
            *filter(
                None, (ctx.brief.agent.call_patterns, call_patterns(ctx.brief.agent.child_tools))
            ),
        ),
    )
    return brief, meter


def _model(ctx: RunContext, agent: Agent, arguments: TaskArguments) -> str:
    """The model's string. Raises MudroomError when there is no such model: nothing is carved for a child that cannot be."""
    asked = arguments.model or agent.model
    name = (ctx.services.child_model or ctx.brief.model) if asked == "inherit" else asked
    ctx.services.get_model(name)
    return name


def format_report(context: CallContext, report: Report) -> tuple[str, str]:
    """The report as the parent reads it: a warning line when it is no GOAL, text and outputs up to the cap, a line of evidence."""
    values = f"Outputs: {msgspec.json.encode(report.outputs).decode()}" if report.outputs else ""
    text, spill = "\n".join(filter(None, (report.text.strip(), values))) or NO_SUMMARY, ""
    if len(text) > REPORT_CAP:
        spill = context.spill_path("report")
        with open(spill, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        text = f"{text[:REPORT_CAP]}\n[… cut: the whole report, {len(text):,} characters, is in {spill}]"
    lines = [context.run.services.mark_report(text), evidence_line(report)]
    if report.reason is not Reason.GOAL:
        lines.insert(0, _warning(report))
    return "\n".join(lines), spill


def _warning(report: Report) -> str:
    what = {
        Reason.MAX_TURNS: f"stopped after {report.turns - report.recovered} turns, its limit",
        Reason.TIMEOUT: report.error or f"its time was up after {report.seconds:.0f} s",
        Reason.BUDGET: "its tokens or its money were used up",
        Reason.CANCELLED: "it was cancelled",
        Reason.LOOP: "it was going in circles",
        Reason.LOST: "its worker was lost",
    }.get(report.reason, report.error or "it failed")
    return f"[{report.reason}: {what}; what follows is {'its summary, not a finished result' if report.recovered else 'partial'}]"


def evidence_line(report: Report) -> str:
    """One line of what the engine saw the run do, whatever the run says it did."""
    ran = sum(report.calls.values())
    by_tool = ", ".join(f"{name} {n}" for name, n in report.calls.items())
    did = [
        f"{ran} tool call{'s' if ran > 1 else ''} ({by_tool})"
        if ran
        else "it called no tool: nothing it says was looked up",
        _files("read", report.files_read) if ran else "",
        _files("changed", report.files_changed) if ran else "",
        f"{report.usage.total_tokens:,} tokens",
        f"{report.seconds:.1f} s",
        f"run {report.run_id}",
    ]
    return f"[evidence: {'; '.join(filter(None, did))}]"


def _files(verb: str, paths: tuple[str, ...]) -> str:
    if not paths:
        return f"no file {verb}"
    shown = ", ".join(os.path.normpath(path) for path in paths[:5])
    return f"{verb} {shown}{f' and {len(paths) - 5} more' if len(paths) > 5 else ''}"


@lru_cache(maxsize=256)
def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())
