"""SubAgentScope: the non-interactive, typed subagent of seed 004 (`packages/core/src/core/subagent.ts` of gemini-cli), in Python.

A face of the one loop: it makes an agent, a history and a tool set, and has the session run them.
"""

from __future__ import annotations

import logging
import platform
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct
from msgspec.structs import replace

from ._core.agents import Agent, Output, Reason, Report
from ._core.budgets import Budget
from ._core.events import AnyEvent, ToolCallStarted, TurnFinished
from ._core.messages import AssistantMessage, Message, TextBlock, user_message
from ._core.ports import Workspace
from ._core.tools import Tool, canonical_tool_name
from ._engine.structured_output import EMIT_TOOL
from .errors import ModelError, UnknownName, UsageError
from .tools.function import declare_tool

log = logging.getLogger("mudroom")

SubagentTerminateMode = Reason
"""Why a scope ended: ERROR, TIMEOUT, GOAL, MAX_TURNS, and CANCELLED, BUDGET, LOOP.

Example:
    SubagentTerminateMode.GOAL is Reason.GOAL
"""

MAX_LISTED_FILES = 200
"""Files listed in the environment context at most."""


class ContextState:
    """Values for the `${key}` places of a system prompt.

    Example:
        ContextState(doc_path="paper.md").get("doc_path")
    """

    def __init__(self, **values: Any) -> None:
        self._values = dict(values)

    def get(self, key: str) -> Any:
        """The value, None if there is none."""
        return self._values.get(key)

    def set(self, key: str, value: Any) -> None:
        """Set a value."""
        self._values[key] = value

    def get_keys(self) -> list[str]:
        """The keys, in the order they were first set."""
        return list(self._values)


class PromptConfig(Struct, frozen=True, kw_only=True):
    """How it is told what to do: exactly one of the two, else `run_non_interactive` raises UsageError.

    Arguments:
        system_prompt: with `${key}` places, filled from the ContextState.
        initial_messages: messages, or dicts with "role" ("user", "assistant") and "content", in order.

    Example:
        PromptConfig(system_prompt="Extract the title from ${doc_path}.")
    """

    system_prompt: str | None = None
    initial_messages: Sequence[Message | Mapping[str, str]] | None = None


class ModelConfig(Struct, frozen=True, kw_only=True):
    """Which model, and how it samples.

    Arguments:
        model: a model string, or "inherit" for the session's. temp: 0 to 2. top_p: 0 to 1. None leaves it to the provider.

    Example:
        ModelConfig(model="anthropic:haiku", temp=0.2, top_p=0.9)
    """

    model: str = "inherit"
    temp: float | None = None
    top_p: float | None = None


class RunConfig(Struct, frozen=True, kw_only=True):
    """How far it may go; None is no limit.

    Arguments:
        max_time_minutes: wall-clock minutes, ends with TIMEOUT. max_turns: model calls, ends with MAX_TURNS.
        max_input_tokens, max_output_tokens: of all its model calls, ends with BUDGET.

    Example:
        RunConfig(max_time_minutes=2, max_turns=8)
    """

    max_time_minutes: float | None = None
    max_turns: int | None = None
    max_input_tokens: int | None = None
    max_output_tokens: int | None = None


class ToolConfig(Struct, frozen=True, kw_only=True):
    """What it may use; nothing else, not even what the session has.

    Arguments:
        tools: names of the session's tools, in any system's spelling; tools; or declarations: dicts with "name", "description",
            "parameters" (a JSON Schema of an object) and perhaps "handler" (a function of the arguments; without it a call is an error
            the model reads).

    Example:
        ToolConfig(tools=["read", {"name": "now", "parameters": {"type": "object"}, "handler": lambda given: "noon"}])
    """

    tools: Sequence[str | Tool | Mapping[str, Any]] = ()


class OutputConfig(Struct, frozen=True, kw_only=True):
    """What it must emit before it is done: name -> description. An empty mapping: it may emit anything, and need not.

    Example:
        OutputConfig(outputs={"title": "the document's title", "author": "its author"})
    """

    outputs: Mapping[str, str] = {}


class OutputObject(Struct, kw_only=True):
    """What came of it.

    Arguments:
        emitted_vars: name -> value, also those emitted before a limit was met. terminate_reason: the true one; ERROR until it ran.
        report: the whole report of the run; None until it ran.

    Example:
        wanted = OutputConfig(outputs={"title": "the document's title"})
        out: OutputObject = await session.scope("reader", PromptConfig(system_prompt="Find the title."), output_config=wanted)
        print(out.terminate_reason, out.emitted_vars["title"])
    """

    emitted_vars: dict[str, Any] = {}
    terminate_reason: Reason = Reason.ERROR
    report: Report | None = None


class ScopeRuntime(Protocol):
    """What a scope needs of an open session."""

    @property
    def toolbox(self) -> Mapping[str, Tool]:
        """The session's tools, by name."""
        ...

    @property
    def workspace(self) -> Workspace:
        """The files its runs see."""
        ...

    def watch(self, watcher: Callable[[AnyEvent], None]) -> Callable[[], None]:
        """Have every event told; what is returned stops it."""
        ...

    async def execute(
        self,
        agent: Agent,
        prompt: str,
        *,
        tools: Mapping[str, Tool],
        history: tuple[Message, ...],
        started: Callable[[str], None],
    ) -> Report:
        """Run an agent with tools of its own and nobody to confirm anything."""
        ...


class SubAgentScope:
    """One non-interactive run. Make it with `create`, run it with `run_non_interactive`, read `output`.

    Example:
        scope = await SubAgentScope.create(
            "doc-extractor", session, PromptConfig(system_prompt="Extract the title from ${doc_path}."),
            ModelConfig(), RunConfig(max_time_minutes=2), tool_config=ToolConfig(tools=["read"]),
            output_config=OutputConfig(outputs={"title": "the title"}))
        await scope.run_non_interactive(ContextState(doc_path="paper.md"))
        scope.output.emitted_vars["title"]
    """

    def __init__(
        self,
        name: str,
        runtime: ScopeRuntime,
        prompt: PromptConfig,
        agent: Agent,
        tools: dict[str, Tool],
        on_message: Callable[[str], Any] | None,
    ) -> None:
        self.name, self.output = name, OutputObject()
        self._runtime, self._prompt, self._agent, self._tools, self._on_message = (
            runtime,
            prompt,
            agent,
            tools,
            on_message,
        )
        self._run_id = ""

    @classmethod
    async def create(
        cls,
        name: str,
        runtime_context: ScopeRuntime,
        prompt_config: PromptConfig,
        model_config: ModelConfig,
        run_config: RunConfig,
        tool_config: ToolConfig | None = None,
        output_config: OutputConfig | None = None,
        on_message: Callable[[str], Any] | None = None,
    ) -> SubAgentScope:
        """Check the tools and make the scope; no model is called.

        Arguments:
            runtime_context: an open Session. on_message: called with each text and each tool line.

        Errors: UnknownName for a tool nobody registered, UsageError for one that needs a person's confirmation.
        """
        tools = {tool.name: tool for tool in _resolve_tools(tool_config, runtime_context.toolbox)}
        for tool in tools.values():
            _check_interactivity(tool)
        outputs = (
            None
            if output_config is None
            else {key: Output(text) for key, text in output_config.outputs.items()}
        )
        agent = Agent(
            name=name,
            model=model_config.model,
            temperature=model_config.temp,
            top_p=model_config.top_p,
            budget=_to_budget(run_config),
            outputs=outputs,
            environment=False,
            context="none",
        )
        return cls(name, runtime_context, prompt_config, agent, tools, on_message)

    async def run_non_interactive(self, context: ContextState) -> None:
        """Run to the end and fill `output`.

        Errors: UsageError for a wrong PromptConfig or missing context values, before any model call; ModelError when a model
        call fails for good. `output.terminate_reason` is ERROR then.
        """
        agent = replace(self._agent, instructions=self._instructions(context))
        history = (
            *_environment_messages(self._runtime.workspace),
            *map(_to_message, self._prompt.initial_messages or ()),
        )
        unwatch = self._runtime.watch(self._handle_event) if self._on_message else None
        try:
            report = await self._runtime.execute(
                agent,
                "Get Started!",
                tools=self._tools,
                history=history,
                started=lambda run_id: setattr(self, "_run_id", run_id),
            )
        finally:
            if unwatch:
                unwatch()
        self.output = OutputObject(
            emitted_vars=report.outputs, terminate_reason=report.reason, report=report
        )
        if report.reason is Reason.ERROR:
            raise ModelError(report.error)

    def _instructions(self, context: ContextState) -> str:
        prompt = self._prompt
        if (prompt.system_prompt is None) == (prompt.initial_messages is None):
            both = "both" if prompt.system_prompt is not None else "neither"
            raise UsageError(
                f"PromptConfig takes exactly one of system_prompt and initial_messages, not {both}"
            )
        if prompt.system_prompt is None:
            return ""
        return "\n\n".join(
            (
                fill_template(prompt.system_prompt, context),
                *_format_output_rules(self._agent),
                _RULES,
            )
        )

    def _handle_event(self, event: AnyEvent) -> None:
        if event.run != self._run_id or self._on_message is None:
            return
        if isinstance(event, TurnFinished) and event.message.text:
            self._on_message(event.message.text)
        elif isinstance(event, ToolCallStarted):
            self._on_message(
                f"**Executing tool: {event.call.name} with args {str(event.call.arguments)[:250]}**"
            )


_RULES = """\
Important Rules:
- You run in non-interactive mode: you cannot ask the user anything; work with what you have.
- Use the tools you have to get the work done.
- When the work is done and all that was asked for is given, stop calling tools."""


def _format_output_rules(agent: Agent) -> tuple[str, ...]:
    if not agent.outputs:
        return ()
    listed = "\n".join(f"- {name}: {output.description}" for name, output in agent.outputs.items())
    return (
        f"Before you stop you MUST emit each of these values with the tool {EMIT_TOOL}, once for each name:\n{listed}",
    )


def fill_template(text: str, context: ContextState) -> str:
    """`text` with each `${key}` replaced by the context's value, once: what a value contains is not looked at again.

    Errors: UsageError that names every key without a value.
    """
    wanted = dict.fromkeys(_PLACEHOLDER.findall(text))
    known = set(context.get_keys())
    if missing := [key for key in wanted if key not in known]:
        raise UsageError(f"Missing context values for the following keys: {', '.join(missing)}")
    return _PLACEHOLDER.sub(lambda place: str(context.get(place[1])), text)


_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")


def _resolve_tools(config: ToolConfig | None, toolbox: Mapping[str, Tool]) -> Iterable[Tool]:
    for asked in config.tools if config else ():
        if isinstance(asked, Tool):
            yield asked
        elif isinstance(asked, str):
            name = asked if asked in toolbox else canonical_tool_name(asked)
            if name not in toolbox:
                raise UnknownName("tool", asked, toolbox)
            yield toolbox[name]
        else:
            yield declare_tool(
                asked["name"],
                asked.get("description", ""),
                asked["parameters"],
                asked.get("handler"),
            )


def _check_interactivity(tool: Tool) -> None:
    if tool.parameters.get("required"):
        log.warning(
            'Cannot check tool "%s" for interactivity because it requires parameters. Assuming it is safe for non-interactive use.',
            tool.name,
        )
    elif tool.needs_confirmation:
        raise UsageError(
            f'Tool "{tool.name}" requires user confirmation and cannot be used in a non-interactive subagent.'
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
    paths = [
        file.path for file, _ in zip(workspace.walk(), range(MAX_LISTED_FILES + 1), strict=False)
    ]
    more = "\n…" if len(paths) > MAX_LISTED_FILES else ""
    facts = f"Date: {time.strftime('%Y-%m-%d')}\nPlatform: {platform.system()}\nWorking folder: {workspace.root}"
    text = (
        f"This is the context of your work.\n{facts}\nFiles:\n"
        + "\n".join(paths[:MAX_LISTED_FILES])
        + more
    )
    return user_message(text), AssistantMessage((TextBlock("Got it. Thanks for the context!"),))


def _to_message(given: Message | Mapping[str, str]) -> Message:
    if not isinstance(given, Mapping):
        return given
    role, content = given.get("role"), given.get("content")
    if role not in ("user", "assistant", "model") or not isinstance(content, str):
        raise UsageError(
            f"initial_messages: {dict(given)!r} has no role user or assistant with a text as content"
        )
    return user_message(content) if role == "user" else AssistantMessage((TextBlock(content),))
