"""SubAgentScope: a typed, non-interactive subagent like that of gemini-cli (`subagent.ts`).

It is a thin layer: it makes an agent, a history and a set of tools, and the session runs them.
"""

from __future__ import annotations

import logging
import platform
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from .._core.agents import Agent, Output
from .._core.budgets import Budget
from .._core.events import AnyEvent, ToolCallStarted, TurnFinished
from .._core.messages import AssistantMessage, Message, TextBlock, user_message
from .._core.ports import Workspace
from .._core.runs import Reason, Report
from .._core.tool_names import canonical_tool_name
from .._core.tools import Tool
from .._engine.structured_output import EMIT_TOOL
from ..errors import ModelError, UnknownName, UsageError
from ..tools.function import declare_tool
from .config import (
    ContextState,
    ModelConfig,
    OutputConfig,
    OutputObject,
    PromptConfig,
    RunConfig,
    ToolConfig,
    fill_template,
)

log = logging.getLogger("mudroom")

MAX_LISTED_FILES = 200
"""Maximum number of files in the environment message."""

MAX_SHOWN_ARGUMENTS = 250
"""Maximum characters of a tool call's arguments that `on_message` gets."""

_RULES = """\
Important Rules:
- You run in non-interactive mode: you cannot ask the user anything; work with what you have.
- Use the tools you have to get the work done.
- When the work is done and all that was asked for is given, stop calling tools."""


class RunScope(Protocol):
    """Runs an agent with its own tools; calls that need confirmation are denied."""

    def __call__(
        self,
        agent: Agent,
        prompt: str,
        tools: Mapping[str, Tool],
        history: tuple[Message, ...],
        on_start: Callable[[str], None],
    ) -> Awaitable[Report]:
        """Run it to its end. `on_start`: called with the run id before the run starts."""
        ...


class ScopeRuntime(Struct, frozen=True, kw_only=True):
    """The services of an open session that a scope uses.

    Arguments:
        tools: the tools of the session, by name.
        watch: `Session.watch`.
    """

    tools: Mapping[str, Tool]
    workspace: Workspace
    watch: Callable[[Callable[[AnyEvent], None]], Callable[[], None]]
    run: RunScope


class OpenSession(Protocol):
    """An open Session."""

    def _scope_runtime(self) -> ScopeRuntime: ...


class SubAgentScope:
    """One non-interactive run: make it with `create`, run it, read `output`.

    Example:
        scope = await SubAgentScope.create(
            "doc-extractor",
            session,
            PromptConfig(system_prompt="Extract the title from ${doc_path}."),
            ModelConfig(),
            RunConfig(max_time_minutes=2),
            tool_config=ToolConfig(tools=["read"]),
            output_config=OutputConfig(outputs={"title": "the title"}),
        )
        await scope.run_non_interactive(ContextState(doc_path="paper.md"))
        scope.output.emitted_vars["title"]
    """

    def __init__(
        self,
        runtime: ScopeRuntime,
        agent: Agent,
        prompt: PromptConfig,
        tools: dict[str, Tool],
        on_message: Callable[[str], Any] | None,
    ) -> None:
        self.name = agent.name
        self.output = OutputObject()
        self._runtime = runtime
        self._agent = agent
        self._prompt = prompt
        self._tools = tools
        self._on_message = on_message
        self._run_id = ""

    @classmethod
    async def create(
        cls,
        name: str,
        runtime_context: OpenSession,
        prompt_config: PromptConfig,
        model_config: ModelConfig,
        run_config: RunConfig,
        tool_config: ToolConfig | None = None,
        output_config: OutputConfig | None = None,
        on_message: Callable[[str], Any] | None = None,
    ) -> SubAgentScope:
        """Check the tools and create the scope; no model is called.

        Arguments:
            runtime_context: an open Session.
            on_message: called with each answer's text and one line per tool call.

        Raises UnknownName for an unknown tool, UsageError for one that needs confirmation.
        """
        runtime = runtime_context._scope_runtime()  # noqa: SLF001  (not public)
        tools = {tool.name: tool for tool in _resolve_tools(tool_config, runtime.tools)}
        for tool in tools.values():
            _check_interactivity(tool)
        outputs = None
        if output_config is not None:
            outputs = {key: Output(text) for key, text in output_config.outputs.items()}
        agent = Agent(
            name=name,
            model=model_config.model,
            temperature=model_config.temp,
            top_p=model_config.top_p,
            budget=_to_budget(run_config),
            outputs=outputs,
            describes_environment=False,
            context_files="none",
        )
        return cls(runtime, agent, prompt_config, tools, on_message)

    async def run_non_interactive(self, context: ContextState) -> None:
        """Run to the end and set `output`.

        Raises UsageError for a wrong PromptConfig or missing context values, before any model
        call; ModelError when a model call fails finally; `terminate_reason` is then ERROR.
        """
        output = await self.run(context)
        if output.report and output.terminate_reason is Reason.ERROR:
            raise ModelError(output.report.error)

    async def run(self, context: ContextState) -> OutputObject:
        """Run to the end, set `output` and return it. A model failure is `terminate_reason` ERROR.

        Raises UsageError for a wrong PromptConfig or missing context values, before any model call.
        """
        agent = replace(self._agent, instructions=self._build_instructions(context))
        initial_messages = self._prompt.initial_messages or ()
        history = (
            *_environment_messages(self._runtime.workspace),
            *map(_to_message, initial_messages),
        )
        stop_watching = self._runtime.watch(self._handle_event)
        try:
            report = await self._runtime.run(
                agent, "Get Started!", self._tools, history, self._set_run_id
            )
        finally:
            stop_watching()
        self.output = OutputObject(
            emitted_vars=report.outputs, terminate_reason=report.reason, report=report
        )
        return self.output

    def _set_run_id(self, run_id: str) -> None:
        self._run_id = run_id

    def _build_instructions(self, context: ContextState) -> str:
        prompt = self._prompt
        if (prompt.system_prompt is None) == (prompt.initial_messages is None):
            count = "neither" if prompt.system_prompt is None else "both"
            raise UsageError(
                f"PromptConfig takes exactly one of system_prompt and initial_messages, not {count}"
            )
        if prompt.system_prompt is None:
            return ""
        instructions = fill_template(prompt.system_prompt, context)
        return "\n\n".join((instructions, *_format_output_rules(self._agent), _RULES))

    def _handle_event(self, event: AnyEvent) -> None:
        if event.run != self._run_id or self._on_message is None:
            return
        if isinstance(event, TurnFinished) and event.message.text:
            self._on_message(event.message.text)
        elif isinstance(event, ToolCallStarted):
            arguments = str(event.call.arguments)[:MAX_SHOWN_ARGUMENTS]
            self._on_message(f"**Executing tool: {event.call.name} with args {arguments}**")


def _format_output_rules(agent: Agent) -> tuple[str, ...]:
    if not agent.outputs:
        return ()
    names = "\n".join(f"- {name}: {output.description}" for name, output in agent.outputs.items())
    return (
        "Before you stop you MUST emit each of these values with the tool "
        f"{EMIT_TOOL}, once for each name:\n{names}",
    )


def _resolve_tools(config: ToolConfig | None, known: Mapping[str, Tool]) -> Iterator[Tool]:
    for item in config.tools if config else ():
        if isinstance(item, Tool):
            yield item
        elif isinstance(item, str):
            name = item if item in known else canonical_tool_name(item)
            if name not in known:
                raise UnknownName("tool", item, known)
            yield known[name]
        else:
            yield declare_tool(
                item["name"], item.get("description", ""), item["parameters"], item.get("handler")
            )


def _check_interactivity(tool: Tool) -> None:
    if tool.parameters.get("required"):
        log.warning(
            'Cannot check tool "%s" for interactivity because it requires parameters. '
            "Assuming it is safe for non-interactive use.",
            tool.name,
        )
    elif tool.needs_confirmation:
        raise UsageError(
            f'Tool "{tool.name}" requires user confirmation and cannot be used in a '
            "non-interactive subagent."
        )


def _to_budget(config: RunConfig) -> Budget:
    seconds = None if config.max_time_minutes is None else config.max_time_minutes * 60
    return Budget(
        turns=config.max_turns,
        seconds=seconds,
        input_tokens=config.max_input_tokens,
        output_tokens=config.max_output_tokens,
        depth=0,
    )


def _environment_messages(workspace: Workspace) -> tuple[Message, Message]:
    paths = [file.path for file in islice(workspace.walk(), MAX_LISTED_FILES + 1)]
    if len(paths) > MAX_LISTED_FILES:
        paths[MAX_LISTED_FILES:] = ["…"]
    lines = [
        "This is the context of your work.",
        f"Date: {time.strftime('%Y-%m-%d')}",
        f"Platform: {platform.system()}",
        f"Working folder: {workspace.root}",
        "Files:",
        *paths,
    ]
    reply = AssistantMessage((TextBlock("Got it. Thanks for the context!"),))
    return user_message("\n".join(lines)), reply


def _to_message(message: Message | Mapping[str, str]) -> Message:
    if not isinstance(message, Mapping):
        return message
    role = message.get("role")
    content = message.get("content")
    if role not in ("user", "assistant", "model") or not isinstance(content, str):
        raise UsageError(
            f"initial_messages: {dict(message)!r} has no role user or assistant with a text as "
            "content"
        )
    if role == "user":
        return user_message(content)
    return AssistantMessage((TextBlock(content),))
