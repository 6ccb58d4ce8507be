"""The task tool: starts a child run on the worker and returns its report."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from ..._core.agents import Agent
from ..._core.listings import format_entries
from ..._core.tools import Effect, Tool, ToolCategory, ToolResult
from .child_brief import ISOLATIONS, TaskArguments, list_agents, simplify

if TYPE_CHECKING:
    from ..call_context import CallContext

_DESCRIPTION = (
    "Give a self-contained piece of work to a child agent with a clean context of its own. "
    "Use it for research, analysis or any work whose intermediate output you need not see: "
    "only its final report comes back. It knows nothing of this conversation: "
    "put all it needs into the prompt. "
    "Several calls in one answer run at the same time.\nAgents:\n"
)

_FIND = "words; starts no child, but lists the agents that fit, with whole descriptions"

_BACKGROUND = "return at once; the report comes later as a task-notification"

_OTHER_WORDS = ("worktree", "copy", "clone")
"""Other programs' words for an isolated workspace."""

_ISOLATION = "isolated: files of its own; its changes are merged into yours at its end"

_NAME = "name it: send_message then starts it again, with all it knows"

_PLAN = "it only reads and reports a plan; answer with send_message and approve"


_OTHER_ARGUMENTS = {
    "subagent_type": "agent",
    "agent_name": "agent",
    "maxTurns": "max_turns",
    "run_in_background": "background",
    "subagent_name": "agent",
    "agent_type": "agent",
    "message": "prompt",
    "instructions": "prompt",
    "objective": "prompt",
    "task_name": "name",
}
"""Other programs' names for arguments."""

_OTHER_AGENTS = {
    "generalpurpose": "general",
    "generalist": "general",
    "default": "general",
    "worker": "general",
    "coder": "general",
    "explorer": "explore",
    "codebaseinvestigator": "explore",
}
"""Other programs' agents, and the built-in one that does their work if none has the name."""


def make_task_tool(
    agents: Mapping[str, Agent],
    *,
    models: Sequence[str] = (),
    length: int | None = None,
    isolation: bool = False,
) -> Tool:
    """Return the task tool. Its description lists the agents.

    Arguments:
        models: model strings to offer; with fewer than two there is no choice.
        length: maximum characters of a description, None for all, 0 for none, since the argument's
            values list the names.
        isolation: whether to offer isolated workspaces.
    """
    listed = "" if length == 0 else format_entries(list_agents(agents), length)
    text = {"type": "string"}
    properties: dict[str, Any] = {
        "prompt": text | {"description": "the whole task"},
        "description": text | {"description": "3-5 words for the screen"},
        "agent": text | {"enum": list(agents)},
        "max_turns": {"type": "integer", "minimum": 1},
        "background": {"type": "boolean", "description": _BACKGROUND},
        "name": text | {"description": _NAME},
        "plan": {"type": "boolean", "description": _PLAN},
    }
    if isolation:
        properties["isolation"] = text | {"enum": list(ISOLATIONS), "description": _ISOLATION}
    if len(models) > 1:
        properties["model"] = text | {"enum": list(models)}
    if length is not None:
        properties["find"] = text | {"description": _FIND}
    return Tool(
        name="task",
        description=_DESCRIPTION + listed,
        parameters={
            "type": "object",
            "properties": properties,
            "required": ["prompt"] if length is None else [],
        },
        parse=_parse,
        run=_run,
        effect=Effect.KEYED,
        category=ToolCategory.AGENT,
        rule_argument="agent",
        title_argument="description",
        view="run",
        needs_children=True,
        keeps_results=True,
        argument_aliases=_OTHER_ARGUMENTS,
        ignored_arguments=frozenset(("team_name", "command", "reasoning_effort")),
        adapt=lambda called, arguments: _adapt(arguments, agents),
    )


def _adapt(arguments: dict[str, Any], agents: Mapping[str, Agent]) -> dict[str, Any]:
    """Translate other programs' arguments into ours, or say what to do instead."""
    for name in ("resume", "session_id", "task_id"):
        if arguments.pop(name, None):
            raise ValueError(
                f"{name}: leave it out for a new child; a child that was given a name goes on "
                "with send_message"
            )
    if arguments.pop("fork_context", False):
        raise ValueError("fork_context: a child knows only its prompt; put what it needs there")
    # A child never has more rights than its parent, so no mode but "plan" changes anything.
    if arguments.pop("mode", "") == "plan":
        arguments["plan"] = True
    agent = arguments.get("agent")
    if isinstance(agent, str) and simplify(agent) not in map(simplify, agents):
        arguments["agent"] = _OTHER_AGENTS.get(simplify(agent), agent)
    return arguments


def _parse(arguments: dict[str, Any]) -> TaskArguments:
    parsed = msgspec.convert(arguments, TaskArguments, strict=False)
    if parsed.isolation in _OTHER_WORDS:
        parsed = replace(parsed, isolation="isolated")
    if parsed.role:
        parsed = replace(parsed, prompt=f"{parsed.role}\n\n{parsed.prompt}", role="")
    if not parsed.prompt.strip() and not parsed.find:
        raise ValueError("prompt: empty; say what the child must do")
    if parsed.isolation and parsed.isolation not in ISOLATIONS:
        choices = " or ".join(ISOLATIONS)
        raise ValueError(f"isolation: {parsed.isolation!r} is not known; use {choices}")
    if parsed.max_turns is not None and parsed.max_turns < 1:
        raise ValueError("max_turns: at least 1")
    return parsed


def _run(context: CallContext, arguments: TaskArguments) -> Coroutine[Any, Any, ToolResult]:
    from .start_child import start_child

    return start_child(context, arguments)
