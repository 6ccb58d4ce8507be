"""SubAgentScope: a typed, non-interactive subagent, modelled on gemini-cli's `subagent.ts`.

A thin layer: it makes an agent, a history and a set of tools, and the session runs them.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import platform
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, Protocol, cast

from msgspec import Struct
from msgspec.structs import replace

from .._adapters.tools.function import declare_tool
from .._adapters.tools.function import tool as make_tool
from .._core.agents import Agent
from .._core.budgets import Budget
from .._core.events import AnyEvent, RunFinished, ToolCallStarted, TurnFinished
from .._core.messages import AssistantMessage, Message, TextBlock, UserMessage, user_message
from .._core.ports import Workspace
from .._core.runs import Reason, Report
from .._core.tool_names import normalize_tool_name
from .._core.tools import Effect, Tool
from .._core.type_checks import check_type
from .._engine.children.child_brief import narrow_tools
from .._engine.structured_output import EMIT_TOOL, OutputType, parse_output_type
from .._projections.safe_text import sanitize_line
from ..errors import ModelError, UnknownName, UsageError, quote_value
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

# Characters of a tool call's arguments in a message.
MAX_SHOWN_ARGUMENTS = 250


class MessageFeed:
    """Passes messages about one run to a user's function, in order.

    The function may return an awaitable, which is awaited before the next call. A caller who is
    cancelled gets the run's report only here.
    """

    def __init__(self, scope: str, function: Callable[[str], object]) -> None:
        self.report: Report | None = None
        self._run_id = ""
        self._scope = scope
        self._function = function
        self._texts: asyncio.Queue[str | None] = asyncio.Queue()
        self._is_fault_logged = False

    def set_run(self, run_id: str) -> None:
        """Name the run whose events become messages."""
        self._run_id = run_id

    def observe(self, event: AnyEvent) -> None:
        """Queue an event's message, which is an answer's text or one line per tool call."""
        if event.run != self._run_id:
            return
        if isinstance(event, TurnFinished) and event.message.text:
            self._texts.put_nowait(event.message.text)
        elif isinstance(event, RunFinished):
            self.report = event.report
        elif isinstance(event, ToolCallStarted):
            arguments = str(event.call.arguments)[:MAX_SHOWN_ARGUMENTS]
            name = event.call.name
            self._texts.put_nowait(f"**Executing tool: {name} with args {arguments}**")

    def end(self) -> None:
        """Accept no more messages; `deliver` returns once it has delivered the queued ones."""
        self._texts.put_nowait(None)

    async def deliver(self) -> None:
        """Call the function with each message until `end`; log its exceptions."""
        while (text := await self._texts.get()) is not None:
            try:
                result = self._function(text)
                if inspect.isawaitable(result):
                    await result
            except asyncio.CancelledError as error:
                task = asyncio.current_task()
                # Without a cancellation of this task, the function itself raised it: a fault like
                # any other.
                if task is not None and task.cancelling():
                    raise
                self._log_fault(error)
            except Exception as error:  # noqa: BLE001  a user's function may raise anything
                self._log_fault(error)

    def _log_fault(self, error: BaseException) -> None:
        # A broken function would otherwise fill the log, with one error per message.
        if self._is_fault_logged:
            return
        self._is_fault_logged = True
        log.error(
            "on_message of scope %r failed: %s: %s. The run continues. Later faults of this "
            "function are not logged.",
            self._scope,
            type(error).__name__,
            error,
            exc_info=error,
        )


log = logging.getLogger("mudroom")

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
        output_type: OutputType[Any] | None,
        tools: Mapping[str, Tool],
        make_history: Callable[[], Awaitable[tuple[Message, ...]]],
        on_start: Callable[[str], None],
    ) -> Awaitable[Report]:
        """Run it to its end. `on_start`: called with the run id before the run starts."""
        ...


class ScopeRuntime(Struct, frozen=True, kw_only=True):
    """The parts of an open session that a scope uses; `run` executes the scope's run."""

    tools: Mapping[str, Tool]
    workspace: Workspace
    watch: Callable[[Callable[[AnyEvent], None]], Callable[[], None]]
    run: RunScope


class OpenSession(Protocol):
    """The part of an open Session that a scope uses."""

    def _make_scope_runtime(self) -> ScopeRuntime: ...


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
        output_type: OutputType[Any] | None,
        on_message: Callable[[str], Any] | None,
    ) -> None:
        self.name = agent.name
        self.output = OutputObject()
        self._runtime = runtime
        self._agent = agent
        self._prompt = prompt
        self._tools = tools
        self._output_type = output_type
        self._on_message = on_message

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
        """Check the tools and create the scope, without a model call.

        Arguments:
            runtime_context: an open Session.
            on_message: called with each answer's text and one line per tool call, in order; may be
                async. If it raises, this is logged once and the run continues.

        Raises UnknownName for an unknown tool, and UsageError for a tool the scope cannot use
        or that needs confirmation, and for outputs that describe no values.
        """
        arguments: tuple[tuple[str, object, object], ...] = (
            ("name", name, str),
            ("prompt_config", prompt_config, PromptConfig),
            ("model_config", model_config, ModelConfig),
            ("run_config", run_config, RunConfig),
            ("tool_config", tool_config, ToolConfig | None),
            ("output_config", output_config, OutputConfig | None),
            ("on_message", on_message, Callable[..., Any] | None),
        )
        for argument, value, hint in arguments:
            check_type(argument, value, hint, "SubAgentScope")
        if not hasattr(runtime_context, "_make_scope_runtime"):
            kind = type(runtime_context).__name__
            raise UsageError(f"runtime_context must be an open Session, not {kind}")
        runtime = runtime_context._make_scope_runtime()  # noqa: SLF001  (not public)
        tools = _resolve_tools(tool_config, runtime.tools)
        for tool in tools.values():
            _check_interactivity(tool)
        output_type = None
        if output_config is not None:
            output_type = parse_output_type(output_config.outputs)
        agent = Agent(
            name=name,
            model=model_config.model,
            temperature=model_config.temp,
            top_p=model_config.top_p,
            max_output_tokens=model_config.max_output_tokens,
            budget=_to_budget(run_config),
            outputs=output_type and output_type.outputs,
            describes_environment=False,
            context_files="none",
        )
        return cls(runtime, agent, prompt_config, tools, output_type, on_message)

    async def run_non_interactive(self, context: ContextState) -> None:
        """Run to the end and set `output`.

        Raises UsageError before any model call, for a wrong PromptConfig or missing context values,
        and ModelError if a model call finally fails; `terminate_reason` is then ERROR.
        """
        output = await self.run(context)
        if output.report and output.terminate_reason is Reason.ERROR:
            raise ModelError(output.report.error)

    async def run(self, context: ContextState) -> OutputObject:
        """Run to the end, set `output` and return it. If the model fails, the reason is ERROR.

        `output` is also set if this call is cancelled, by `asyncio.timeout`, a TaskGroup or
        anything else, with the report and the values emitted so far. The call returns only once
        the run and all runs below it have ended.

        Raises UsageError before any model call, for a wrong PromptConfig or missing context values.
        """
        check_type("context", context, ContextState, "SubAgentScope")
        agent = replace(self._agent, instructions=self._build_instructions(context))
        feed = MessageFeed(self.name, self._on_message or (lambda _: None))
        try:
            feed.report = await self._run_with_messages(agent, feed)
        except asyncio.CancelledError:
            self.output = OutputObject(terminate_reason=Reason.CANCELLED)
            raise
        finally:
            if feed.report:
                self._set_output(feed.report)
        return self.output

    def _set_output(self, report: Report) -> None:
        emitted = report.outputs
        if self._output_type:
            report = self._output_type.convert_report(report)
            emitted = report.outputs if self._output_type.is_by_name else emitted
        self.output = OutputObject(
            emitted_vars=emitted, terminate_reason=report.reason, report=report
        )

    async def _make_history(self) -> tuple[Message, ...]:
        environment = await asyncio.to_thread(make_environment_messages, self._runtime.workspace)
        return (*environment, *map(_to_message, self._prompt.initial_messages or ()))

    async def _run_with_messages(self, agent: Agent, feed: MessageFeed) -> Report:
        """Run the agent and call `on_message`; return after its last call."""
        stop_watching = self._runtime.watch(feed.observe)
        delivery = asyncio.create_task(feed.deliver())
        try:
            report = await self._runtime.run(
                agent,
                "Get Started!",
                self._output_type,
                self._tools,
                self._make_history,
                feed.set_run,
            )
        except BaseException:
            delivery.cancel()
            raise
        finally:
            stop_watching()
            feed.end()
        await delivery
        return report

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


def _format_output_rules(agent: Agent) -> tuple[str, ...]:
    if not agent.outputs:
        return ()
    names = "\n".join(f"- {name}: {output.description}" for name, output in agent.outputs.items())
    return (
        "Before you stop you MUST emit each of these values with the tool "
        f"{EMIT_TOOL}, once for each name:\n{names}",
    )


def _resolve_tools(config: ToolConfig | None, known: Mapping[str, Tool]) -> dict[str, Tool]:
    """Find a scope's tools by name; UsageError for one it could not use."""
    tools: dict[str, Tool] = {}
    for item in config.tools if config else ():
        tool = _resolve_tool(item, known)
        if tools.setdefault(tool.name, tool) is not tool:
            raise UsageError(f"two tools have the name {tool.name!r}", remedy="Rename one of them.")
    for name in tools.keys() - set(narrow_tools(tools, None, may_have_children=False)):
        raise UsageError(
            f"a scope starts no child runs, so it cannot use the tool {name!r}",
            remedy="Leave it out, or run an agent with `session.task`.",
        )
    if EMIT_TOOL in tools:
        raise UsageError(
            f"the tool name {EMIT_TOOL!r} is reserved", remedy="Give the tool another name."
        )
    return tools


def _resolve_tool(
    item: str | Tool | Mapping[str, Any] | Callable[..., Any], known: Mapping[str, Tool]
) -> Tool:
    if isinstance(item, Tool):
        return item
    if callable(item):
        return make_tool(item)
    if isinstance(item, str):
        name = item if item in known else normalize_tool_name(item)
        if name not in known:
            raise UnknownName("tool", item, known)
        return known[name]
    return _declare_tool(item)


def _declare_tool(declaration: Mapping[str, Any]) -> Tool:
    name = declaration.get("name")
    keys = ("name", "description", "parameters", "parametersJsonSchema", "handler")
    check_type("description", declaration.get("description"), str | None, "ToolConfig")
    check_type("handler", declaration.get("handler"), Callable[..., Any] | None, "ToolConfig")
    unknown = [key for key in declaration if key not in keys]
    parameters: Any = _lower_types(declaration.get("parameters"))
    if "parametersJsonSchema" in declaration and not parameters:
        parameters = declaration["parametersJsonSchema"]
    if parameters is None or parameters == {}:
        parameters = {"type": "object", "properties": {}}
    problem = ""
    if unknown:
        problem = f"the unknown key {quote_value(unknown[0])}"
    elif not isinstance(name, str) or not name:
        problem = "no name"
    elif not isinstance(parameters, Mapping) or parameters.get("type", "object") != "object":
        problem = "parameters that are no JSON Schema of an object"
    if problem:
        raise UsageError(
            f"the tool declaration {quote_value(dict(declaration))} has {problem}",
            where="ToolConfig",
            remedy='Write {"name": …, "description": …, "parameters": …, "handler": …}; only the '
            "name is required.",
        )
    return declare_tool(
        cast("str", name),
        declaration.get("description") or "",
        cast("dict[str, Any]", parameters),
        declaration.get("handler"),
    )


def _lower_types(schema: object) -> object:
    """Convert the types of Gemini's schemas, such as "STRING", to those of JSON Schema."""
    if isinstance(schema, list):
        return [_lower_types(item) for item in cast("list[object]", schema)]
    if not isinstance(schema, Mapping):
        return schema
    lowered: dict[str, object] = {}
    for key, value in cast("Mapping[str, object]", schema).items():
        if key == "type" and isinstance(value, str):
            lowered[key] = value.lower()
        elif key == "properties" and isinstance(value, Mapping):
            fields = cast("Mapping[str, object]", value)
            # A property may itself be called "type".
            lowered[key] = {name: _lower_types(field) for name, field in fields.items()}
        else:
            # Values of these keys are data, not schemas.
            lowered[key] = value if key in ("enum", "const", "default") else _lower_types(value)
    return lowered


def _check_interactivity(tool: Tool) -> None:
    asks = tool.needs_confirmation or tool.confirmation_reason
    if tool.effect is Effect.PURE and not asks:
        return  # It changes nothing. A rule or a hook can make a call ask, which is then denied.
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
        total_tokens=config.max_total_tokens,
        usd=config.max_budget_usd,
        depth=0,
    )


def _to_message(message: Message | Mapping[str, str]) -> Message:
    if isinstance(message, UserMessage | AssistantMessage):
        return message
    role = message.get("role")
    content = message.get("content")
    if role not in ("user", "assistant", "model") or not isinstance(content, str):
        raise UsageError(
            f"initial_messages: {quote_value(dict(message))} has no role user or assistant with a "
            "text as content"
        )
    if role == "user":
        return user_message(content)
    return AssistantMessage((TextBlock(content),))


# Files and folders in the tree.
MAX_ITEMS = 200

# Files from which the tree is made; finding them takes about 0.1 seconds.
MAX_WALKED_FILES = 5_000

# Characters of a file name.
_MAX_NAME_LENGTH = 255

# A folder's entries by name; None for a file.
Tree = dict[str, "Tree | None"]


def make_environment_messages(workspace: Workspace) -> tuple[Message, Message]:
    """Make a scope's first message and the model's reply. Blocks while reading folders."""
    paths = [file.path for file in islice(workspace.walk(), MAX_WALKED_FILES + 1)]
    title = f"Files (at most {MAX_ITEMS} files and folders; ... marks what is left out):"
    if len(paths) > MAX_WALKED_FILES:
        del paths[MAX_WALKED_FILES:]
        title = f"{title} only the first {MAX_WALKED_FILES:,} files were looked at."
    lines = [
        "This is the context of your work.",
        f"Date: {time.strftime('%Y-%m-%d')}",
        f"Platform: {platform.system()}",
        f"Working folder: {workspace.root}",
        title,
        f"{workspace.root.rstrip('/')}/",
        *draw_tree(paths, MAX_ITEMS),
    ]
    reply = AssistantMessage((TextBlock("Got it. Thanks for the context!"),))
    return user_message("\n".join(lines)), reply


def draw_tree(paths: Iterable[str], max_items: int) -> Iterator[str]:
    """Yield the lines of a file tree, listing folders before files at each level.

    Beyond `max_items`, only the upper levels are shown.
    """
    tree: Tree = {}
    for path in paths:
        _add_path(tree, path)
    shown = _select_items(tree, max_items)
    return _draw_folder(tree, shown, "")


def _add_path(tree: Tree, path: str) -> None:
    *folders, name = path.split("/")
    for folder in folders:
        inner = tree.get(folder)
        if inner is None:
            inner = {}
            tree[folder] = inner
        tree = inner
    tree[name] = None


def _select_items(tree: Tree, max_items: int) -> dict[int, list[str]]:
    """Choose names level by level; return those of each shown folder, by its entries' id."""
    shown: dict[int, list[str]] = {}
    waiting = deque([tree])
    while waiting and max_items > 0:
        folder = waiting.popleft()
        names = sorted(folder, key=lambda name: (folder[name] is None, name))[:max_items]
        shown[id(folder)] = names
        max_items -= len(names)
        waiting.extend(inner for name in names if (inner := folder[name]) is not None)
    return shown


def _draw_folder(folder: Tree, shown: dict[int, list[str]], indent: str) -> Iterator[str]:
    names = shown.get(id(folder), [])
    is_cut = len(names) < len(folder)
    for position, name in enumerate(names, 1):
        is_last = position == len(names) and not is_cut
        branch = "└───" if is_last else "├───"
        label = sanitize_line(name, _MAX_NAME_LENGTH)
        inner = folder[name]
        if inner is None:
            yield f"{indent}{branch}{label}"
        elif id(inner) not in shown:
            yield f"{indent}{branch}{label}/..."
        else:
            yield f"{indent}{branch}{label}/"
            yield from _draw_folder(inner, shown, indent + ("    " if is_last else "│   "))
    if is_cut:
        yield f"{indent}└───..."
