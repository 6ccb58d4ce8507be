"""The keys of agent files, in every program's spelling, and their meaning for an Agent.

An agent never gets more than its file grants: an unintelligible limit raises ValueError, and the
file is not used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, cast, get_args

from msgspec import Struct

from ..._core.agents import Agent, Effort, Mode, WorkspaceKind
from ..._core.budgets import Budget
from ..._core.json_values import JsonValue
from ..._core.output_declarations import parse_outputs
from ..._core.tool_names import make_server_pattern, normalize_tool_name, parse_tool_pattern
from ..._platform.patterns import compile_later
from ...errors import UnknownName
from .frontmatter import Entry
from .github_files import is_github_file, read_models, translate_tools
from .safe_read import FileDiagnostics

MAX_DESCRIPTION = 2_000  # characters of a description, which parents' models read


class AgentDraft(Struct):
    """An agent while its file's keys are being read."""

    diagnostics: FileDiagnostics
    known_tools: Collection[str]
    fields: dict[str, Any] = {}  # of Agent
    tools: tuple[str, ...] | None = None  # allowed patterns, None for all
    denied_tools: tuple[str, ...] = ()  # excluding patterns
    budget_fields: dict[str, Any] = {}  # of Budget
    skills: tuple[str, ...] = ()  # loaded from the start
    servers: dict[str, ServerEntry | None] = {}  # with an entry if only this agent has it
    is_main: bool = False  # talks with the user and is never a child
    unused_reason: str = ""

    def build_agent(self) -> Agent:
        if self.fields.get("model") == "opusplan":
            # Claude Code plans with Opus and works with Sonnet.
            is_plan = self.fields.get("mode") is Mode.PLAN
            self.fields["model"] = "opus" if is_plan else "sonnet"
        tools = add_server_patterns(self.tools, self.servers)
        if self.denied_tools:
            tools = (*(("*",) if tools is None else tools), *self.denied_tools)
        return Agent(tools=tools, budget=Budget(**self.budget_fields), **self.fields)


def draft_agent(
    entries: Mapping[str, Entry], diagnostics: FileDiagnostics, known_tools: Collection[str]
) -> AgentDraft:
    """Read a file's keys. A wrong limit is an error, so that the file is not used."""
    draft = AgentDraft(diagnostics, known_tools)
    for key, entry in entries.items():
        normal_key = key.replace("-", "_")
        handler = _HANDLERS.get(key) or _HANDLERS.get(normal_key)
        if handler:
            try:
                handler(draft, entry.value, entry.line)
            except ValueError as problem:
                add = diagnostics.add_error if handler in _LIMITING else diagnostics.add_warning
                add(entry.line, f"{key} {problem}")
        elif normal_key in _UNUSED_KEYS:
            diagnostics.add_note(entry.line, f"{key!r} has no effect here")
        else:
            diagnostics.add_warning(entry.line, f"unknown key {key!r}")
    return draft


def normalize_name(text: str) -> str:
    """Convert a name to lower case with hyphens between words; it may become ""."""
    return re.sub(r"[^\w.]+", "-", text.strip().lower()).strip("-_.")[:64]


def fold_name(name: str) -> str:
    """Reduce a name to its letters and digits, so that case and hyphens do not matter."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _read_flag(value: JsonValue) -> bool:
    if not isinstance(value, bool):
        raise ValueError("is neither true nor false")
    return value


def _read_text(value: JsonValue) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("is not a text")
    return value.strip()


def _read_number(value: JsonValue, low: float, high: float) -> float:
    # In Python, True and False are also numbers.
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ValueError(f"is not a number from {low:g} to {high:g}")
    return value


def _read_minutes(value: JsonValue) -> float:
    return _read_number(value, 0.001, 1e6) * 60


def _read_count(value: JsonValue, low: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ValueError(f"is not a whole number of at least {low}")
    return value


def _read_choice(value: JsonValue, *choices: str) -> str:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{value!r} is not one of {', '.join(choices)}")
    return value


def _read_map(value: JsonValue) -> dict[str, JsonValue]:
    if not isinstance(value, dict):
        raise ValueError("is not a map")
    return value


# Called as (draft, value, line); stores the value in the draft, or raises ValueError.
FieldHandler = Callable[[AgentDraft, JsonValue, int], None]


def _make_field_handler(name: str, read: Callable[[JsonValue], object]) -> FieldHandler:
    """Make a handler that sets a field of Agent, or of Budget for "budget.<field>"."""
    field = name.removeprefix("budget.")

    def handle(draft: AgentDraft, value: JsonValue, line: int) -> None:
        fields = draft.fields if field == name else draft.budget_fields
        fields[field] = read(value)

    return handle


def _handle_name(draft: AgentDraft, value: JsonValue, line: int) -> None:
    name = normalize_name(_read_text(value))
    if not name:
        raise ValueError(f"{value!r} contains no letter")
    if name != value:
        draft.diagnostics.add_note(line, f"{value!r} is called {name!r} here")
    draft.fields["name"] = name


def _handle_description(draft: AgentDraft, value: JsonValue, line: int) -> None:
    text = " ".join(_read_text(value).split())
    if len(text) > MAX_DESCRIPTION:
        draft.diagnostics.add_warning(
            line,
            f"the description has {len(text):,} characters, which each model call pays for; "
            f"the first {MAX_DESCRIPTION:,} are used",
        )
    draft.fields["description"] = text[:MAX_DESCRIPTION]


def _handle_model(draft: AgentDraft, value: JsonValue, line: int) -> None:
    if is_github_file(draft.diagnostics.path):
        names = value if isinstance(value, list) else _read_text(value).split("|")
        model = read_models(map(_read_text, names))
    else:
        model = _read_text(value)
    if model.lower().endswith("[1m]"):
        draft.diagnostics.add_warning(
            line, f"model {model}: [1m] has no effect: the whole window of a model is always used"
        )
        model = model[: -len("[1m]")]
    # Claude Code's word for its most capable model, and for the next one if there is no access.
    model = "fable,opus" if model == "best" else model
    is_inherited = model.lower() in ("inherit", "auto", "default")
    draft.fields["model"] = "inherit" if is_inherited else model


def _handle_tools(draft: AgentDraft, value: JsonValue, line: int) -> None:
    allowed = parse_allowed(value, draft.known_tools, draft.diagnostics, line)
    draft.tools = allowed.tools
    if allowed.agents is not None:
        draft.fields["children"] = allowed.agents
    if value and not allowed.tools:
        draft.diagnostics.add_warning(line, "none of its tools has a counterpart: it gets none")
    names = [pattern.partition("(")[0] for pattern in allowed.tools]
    known = ("*", *draft.known_tools)
    # A mistyped list must not leave an agent unable to do anything.
    if names and not any(name in known or name.startswith("mcp__") for name in names):
        raise ValueError("names no tool that exists")


def _handle_denied_tools(draft: AgentDraft, value: JsonValue, line: int) -> None:
    draft.denied_tools += parse_denied(value, draft.known_tools, draft.diagnostics, line)


def _handle_permission(draft: AgentDraft, value: JsonValue, line: int) -> None:
    permission = parse_permission(value, draft.diagnostics, line)
    draft.denied_tools += tuple(tool for tool in permission.tools if tool.startswith("!"))
    allowed = tuple(tool for tool in permission.tools if not tool.startswith("!"))
    if allowed:
        draft.tools = allowed
    if permission.agents is not None:
        draft.fields["children"] = permission.agents


def _handle_permission_mode(draft: AgentDraft, value: JsonValue, line: int) -> None:
    mode = _MODES.get(_read_text(value))
    if mode is None:
        raise ValueError(f"{value!r} is not one of {', '.join(Mode)}")
    _set_mode(draft, mode)
    if mode in (Mode.ACCEPT_EDITS, Mode.BYPASS):
        draft.diagnostics.add_note(
            line, f"{value}: a child never gets more permissions than its parent"
        )


def _set_mode(draft: AgentDraft, mode: Mode) -> None:
    draft.fields["mode"] = mode
    if mode is Mode.PLAN:
        draft.denied_tools += ("!write", "!edit")


def _handle_sandbox_mode(draft: AgentDraft, value: JsonValue, line: int) -> None:
    mode = _read_choice(_read_text(value), "read-only", "workspace-write", "danger-full-access")
    if mode == "read-only":
        _set_mode(draft, Mode.PLAN)


def _handle_child_tools(draft: AgentDraft, value: JsonValue, line: int) -> None:
    allowed = parse_allowed(value, draft.known_tools, draft.diagnostics, line)
    draft.fields["child_tools"] = allowed.tools


def _handle_budget(draft: AgentDraft, value: JsonValue, line: int) -> None:
    for key, amount in _read_map(value).items():
        try:
            if key == "minutes":
                draft.budget_fields["seconds"] = _read_minutes(amount)
            elif key in ("seconds", "usd") and key in Budget.__struct_fields__:
                draft.budget_fields[key] = _read_number(amount, 0.001, 1e8)
            elif key in Budget.__struct_fields__:
                low = 0 if key in ("children", "depth") else 1
                draft.budget_fields[key] = _read_count(amount, low)
            else:
                names = ", ".join(Budget.__struct_fields__)
                raise ValueError(f"is unknown; the keys are {names}, minutes")
        except ValueError as problem:
            raise ValueError(f"{key} {problem}") from None


def _handle_skills(draft: AgentDraft, value: JsonValue, line: int) -> None:
    draft.skills = tuple(parse_names(value))


def _handle_servers(draft: AgentDraft, value: JsonValue, line: int) -> None:
    draft.servers = parse_servers(value)


def _handle_effort(draft: AgentDraft, value: JsonValue, line: int) -> None:
    effort = _read_choice(value, "minimal", *get_args(Effort))
    draft.fields["effort"] = "low" if effort == "minimal" else effort


def _handle_agents(draft: AgentDraft, value: JsonValue, line: int) -> None:
    draft.fields["children"] = tuple(
        name if "*" in name else normalize_name(name) for name in parse_names(value)
    )


def _handle_child_use(draft: AgentDraft, value: JsonValue, line: int) -> None:
    draft.is_main = not _read_flag(value)


def _handle_no_child_use(draft: AgentDraft, value: JsonValue, line: int) -> None:
    draft.is_main = _read_flag(value)


def _handle_mode(draft: AgentDraft, value: JsonValue, line: int) -> None:
    draft.is_main = _read_choice(value, "primary", "subagent", "all") == "primary"


def _handle_disabled(draft: AgentDraft, value: JsonValue, line: int) -> None:
    if _read_flag(value):
        draft.unused_reason = "it is disabled"


def _handle_kind(draft: AgentDraft, value: JsonValue, line: int) -> None:
    if value != "local":
        draft.unused_reason = f"agents of kind {value!r} are not supported"


def _make_map_handler(handlers: Mapping[str, FieldHandler]) -> FieldHandler:
    def handle(draft: AgentDraft, value: JsonValue, line: int) -> None:
        for key, inner in _read_map(value).items():
            if key in handlers:
                handlers[key](draft, inner, line)
            else:
                draft.diagnostics.add_warning(line, f"unknown key {key!r}")

    return handle


def _handle_outputs(draft: AgentDraft, value: JsonValue, line: int) -> None:
    if isinstance(value, list):
        value = dict.fromkeys(parse_names(value), "")
    draft.fields["outputs"] = parse_outputs(_read_map(value)).outputs


_ISOLATIONS = {
    "worktree": WorkspaceKind.ISOLATED,
    "isolated": WorkspaceKind.ISOLATED,
    "shared": WorkspaceKind.SHARED,
    "none": WorkspaceKind.SHARED,
}
_MODES = {
    **{mode.value: mode for mode in Mode},
    "auto-edit": Mode.ACCEPT_EDITS,
    "auto": Mode.ACCEPT_EDITS,
    "yolo": Mode.BYPASS,
}
_TURNS = _make_field_handler("budget.turns", _read_count)
_MINUTES = _make_field_handler("budget.seconds", _read_minutes)
_CONTEXT = _make_field_handler(
    "context_files", lambda value: _read_choice(value, "none", "project", "full")
)
_WORKSPACE = _make_field_handler(
    "workspace", lambda value: WorkspaceKind(_read_choice(value, "shared", "copy", "isolated"))
)
_ISOLATION = _make_field_handler(
    "workspace",
    lambda value: _ISOLATIONS[_read_choice(value, *_ISOLATIONS)],
)
_TEMPERATURE = _make_field_handler("temperature", lambda value: _read_number(value, 0, 2))
_TOP_P = _make_field_handler("top_p", lambda value: _read_number(value, 0, 1))
_MAX_OUTPUT = _make_field_handler("max_output_tokens", _read_count)
_MODEL_CONFIG = _make_map_handler(
    {
        "model": _handle_model,
        "temp": _TEMPERATURE,
        "temperature": _TEMPERATURE,
        "top_p": _TOP_P,
        "max_output_tokens": _MAX_OUTPUT,
    }
)
_RUN_CONFIG = _make_map_handler({"max_turns": _TURNS, "max_time_minutes": _MINUTES})

_SPELLINGS: tuple[tuple[str, FieldHandler], ...] = (
    ("name", _handle_name),
    ("description", _handle_description),
    ("prompt developer_instructions instructions", _make_field_handler("instructions", _read_text)),
    ("model", _handle_model),
    ("temperature temp", _TEMPERATURE),
    ("top_p topP", _TOP_P),
    ("max_output_tokens maxOutputTokens", _MAX_OUTPUT),
    ("max_turns maxTurns maxSteps max_steps steps max_iteration_per_run", _TURNS),
    ("timeout_mins max_time_minutes", _MINUTES),
    ("tools allowed_tools", _handle_tools),
    ("disallowedTools disallowed_tools exclude_tools", _handle_denied_tools),
    ("permission", _handle_permission),
    ("permissionMode permission_mode approvalMode", _handle_permission_mode),
    ("sandbox_mode", _handle_sandbox_mode),
    ("child_tools childTools", _handle_child_tools),
    ("budget", _handle_budget),
    ("skills", _handle_skills),
    ("mcpServers mcp_servers", _handle_servers),
    ("context", _CONTEXT),
    ("workspace", _WORKSPACE),
    ("isolation", _ISOLATION),
    ("check", _make_field_handler("check", _read_text)),
    ("teammate", _make_field_handler("is_teammate", _read_flag)),
    ("claims", _make_field_handler("claims_tasks", _read_flag)),
    ("outputs returns output_schema", _handle_outputs),
    ("mode", _handle_mode),
    ("kind", _handle_kind),
    ("disable disabled", _handle_disabled),
    ("effort model_reasoning_effort", _handle_effort),
    ("agents", _handle_agents),
    ("infer", _handle_child_use),
    ("disable_model_invocation", _handle_no_child_use),
    ("modelConfig model_config", _MODEL_CONFIG),
    ("runConfig run_config", _RUN_CONFIG),
)
_HANDLERS = {key: handler for keys, handler in _SPELLINGS for key in keys.split()}
# Without one of these limits, an agent could do more than its author wanted.
_LIMITING = {
    _handle_tools,
    _handle_denied_tools,
    _handle_permission,
    _handle_permission_mode,
    _handle_sandbox_mode,
    _handle_child_tools,
    _handle_agents,
    _handle_budget,
    _TURNS,
    _MINUTES,
    _RUN_CONFIG,
    _WORKSPACE,
}
_UNUSED = (
    "color hidden background hooks memory initialPrompt "
    "display_name nickname_candidates license version title metadata "
    "argument_hint when_to_use author tags user_invocable user_invokable handoffs target"
)
_UNUSED_KEYS = frozenset(_UNUSED.split())


_VERDICTS = ("allow", "ask", "deny")
_LIST_ITEM = compile_later(r"[^,(]+(?:\([^)]*\)?)?[^,(]*")
_GEMINI_MCP = compile_later(r"mcp_([^_]+)_(.+)")


class ToolsField(Struct, frozen=True):
    tools: tuple[str, ...]
    agents: tuple[str, ...] | None = None  # agents that `task` may start; None for all


def parse_names(value: JsonValue) -> list[str]:
    """Parse names from a list or a text with commas; ValueError for anything else."""
    if value is None:
        return []
    if isinstance(value, str):
        return [name.strip() for name in _LIST_ITEM.findall(value) if name.strip()]
    if isinstance(value, list) and all(isinstance(name, str) for name in value):
        return [name.strip() for name in cast("list[str]", value) if name.strip()]
    raise ValueError("is not a list of names")


def parse_allowed(
    value: JsonValue, known: Collection[str], diagnostics: FileDiagnostics, line: int
) -> ToolsField:
    """Parse a list, a text with commas, or a map of names to true and false. Raises ValueError.

    Tools that do not exist are kept, with a warning.
    """
    if isinstance(value, dict):
        return _parse_map(value, known, diagnostics, line)
    tools: dict[str, None] = {}
    agents: tuple[str, ...] | None = None
    for name in translate_tools(parse_names(value), known, diagnostics, line):
        pattern = parse_tool_pattern(name)
        if pattern.tool == "task" and pattern.calls and not pattern.is_excluded:
            agents = tuple(parse_names(pattern.calls))
            tools["task"] = None
        else:
            tools[_resolve_pattern(name, known, diagnostics, line)] = None
    return ToolsField(tuple(tools), agents)


def parse_denied(
    value: JsonValue, known: Collection[str], diagnostics: FileDiagnostics, line: int
) -> tuple[str, ...]:
    return tuple(
        f"!{_resolve_pattern(name, known, diagnostics, line)}"
        for name in translate_tools(parse_names(value), known, diagnostics, line)
    )


def parse_permission(value: JsonValue, diagnostics: FileDiagnostics, line: int) -> ToolsField:
    """Parse opencode's `permission`: a map of tools to allow, ask, deny, or to a map of calls.

    Returns excluding patterns or, if "*" is denied, the allowed tools. Raises ValueError.
    """
    if value in _VERDICTS:
        value = {"*": value}
    if not isinstance(value, dict):
        raise ValueError("is not a map of tools to allow, ask or deny")
    allowed = {
        normalize_tool_name(name): _is_allowed(name, verdict, diagnostics, line)
        for name, verdict in value.items()
    }
    # In opencode, `edit` also covers writing files.
    if "edit" in allowed:
        allowed.setdefault("write", allowed["edit"])
    if allowed.pop("*", True):
        tools = tuple(f"!{tool}" for tool, is_allowed in allowed.items() if not is_allowed)
    else:
        tools = tuple(tool for tool, is_allowed in allowed.items() if is_allowed) or ("!*",)
    return ToolsField((*tools, *_read_denied_calls(value)), _read_allowed_agents(value))


def _read_allowed_agents(permission: Mapping[str, JsonValue]) -> tuple[str, ...] | None:
    verdicts = permission.get("task")
    if not isinstance(verdicts, dict):
        return None
    if verdicts.get("*") == "deny":
        return tuple(
            name for name, verdict in verdicts.items() if name != "*" and verdict != "deny"
        )
    return ("*", *(f"!{name}" for name, verdict in verdicts.items() if verdict == "deny"))


def _read_denied_calls(permission: Mapping[str, JsonValue]) -> Iterator[str]:
    """Yield excluding patterns for individual calls to tools not denied completely."""
    for name, verdict in permission.items():
        tool = normalize_tool_name(name)
        calls = verdict if isinstance(verdict, dict) else {}
        if tool == "task" or calls.get("*") == "deny":
            continue
        yield from (
            f"!{_check_pattern(f'{tool}({call})')}"
            for call, call_verdict in calls.items()
            if call_verdict == "deny"
        )


def _is_allowed(name: str, value: JsonValue, diagnostics: FileDiagnostics, line: int) -> bool:
    by_call = value if isinstance(value, dict) else None
    verdicts = [value] if by_call is None else list(by_call.values())
    unknown = [verdict for verdict in verdicts if verdict not in _VERDICTS]
    if unknown:
        raise ValueError(f"{name}: {unknown[0]!r} is not one of allow, ask, deny")
    denies_all = all(verdict == "deny" for verdict in verdicts) and bool(verdicts)
    if by_call is not None and normalize_tool_name(name) == "task":
        return bool(verdicts) and not denies_all
    if by_call is not None and by_call.get("*") == "deny" and not denies_all:
        diagnostics.add_warning(
            line,
            f"permission of {name}: allowing single calls of a denied tool is not supported, "
            "so the agent does not get the tool",
        )
        denies_all = True
    if "ask" in verdicts and not denies_all:
        diagnostics.add_note(line, f"permission of {name}: the session decides when to ask")
    return not denies_all


def _resolve_pattern(
    text: str, known: Collection[str], diagnostics: FileDiagnostics, line: int
) -> str:
    """Replace the tool's name in a pattern with mudroom's; ValueError for an unclear pattern."""
    name, bracket, calls = text.partition("(")
    is_excluded = name.startswith("!")
    tool = resolve_tool_name(name.removeprefix("!"), known, diagnostics, line)
    pattern = _check_pattern(f"{tool}{bracket}{calls}")
    return f"!{pattern}" if is_excluded else pattern


def _check_pattern(text: str) -> str:
    """Reduce a pattern to its shortest form; ValueError for an unclear one."""
    pattern = parse_tool_pattern(text)
    if not pattern.is_valid:
        raise ValueError(f"{text}: is not a tool pattern; write for example bash(git:*)")
    return f"{pattern.written_name}({pattern.calls})" if pattern.calls else pattern.written_name


def resolve_tool_name(
    name: str, known: Collection[str], diagnostics: FileDiagnostics, line: int
) -> str:
    """Find mudroom's name or pattern for a tool; warn about an unknown tool."""
    name = name.strip()
    # The Gemini CLI writes `mcp_SERVER_TOOL`.
    gemini = _GEMINI_MCP.fullmatch(name)
    if gemini:
        name = f"mcp__{gemini[1]}__{gemini[2]}"
    elif name in ("mcp_*", "mcp__*"):
        name = "mcp__*"
    elif name.startswith("mcp__"):
        name = parse_tool_pattern(name).tool
    if name == "*" or name.startswith("mcp__"):
        return name
    tool = normalize_tool_name(name)
    if tool == "web_search":
        diagnostics.add_note(
            line,
            f"{name} is available only with --allow-net or an allow rule, on models whose provider "
            "searches the web",
        )
    elif tool == "web_fetch":
        diagnostics.add_note(line, f"{name} is available only with --allow-net or an allow rule")
    elif tool not in known:
        diagnostics.add_warning(line, str(UnknownName("tool", name, known)))
    return tool


def _parse_map(
    value: Mapping[str, JsonValue], known: Collection[str], diagnostics: FileDiagnostics, line: int
) -> ToolsField:
    if not all(isinstance(is_allowed, bool) for is_allowed in value.values()):
        raise ValueError("is not a map of names to true and false")
    tools = {name: resolve_tool_name(name, known, diagnostics, line) for name in value}
    if value.get("*") is False:
        return ToolsField(tuple(tools[name] for name, is_allowed in value.items() if is_allowed))
    denied = (f"!{tools[name]}" for name, is_allowed in value.items() if not is_allowed)
    return ToolsField(("*", *denied))


# A server's configuration, as in `.mcp.json`.
ServerEntry = Mapping[str, JsonValue]


def parse_servers(value: JsonValue) -> dict[str, ServerEntry | None]:
    """Parse an agent's servers by name; None for one the session has.

    The value is a list of names and maps from names to configurations, one such map, or names
    separated by commas. Raises ValueError for anything else.
    """
    items = value if isinstance(value, list) else [value]
    servers: dict[str, ServerEntry | None] = {}
    for item in items:
        if isinstance(item, dict):
            for name, entry in item.items():
                servers[_check_name(name)] = _check_entry(name, entry)
        else:
            servers |= dict.fromkeys(parse_names(item))
    return servers


def _check_name(name: str) -> str:
    if not name.strip():
        raise ValueError("has a server without a name")
    return name.strip()


def _check_entry(name: str, entry: JsonValue) -> ServerEntry | None:
    if entry is None or entry is True:
        return None
    if not isinstance(entry, dict):
        raise ValueError(f"{name} is no map of settings")
    return cast("ServerEntry", entry)


def add_server_patterns(
    tools: tuple[str, ...] | None, servers: Iterable[str]
) -> tuple[str, ...] | None:
    if tools is None:
        return None
    included = [pattern for pattern in map(parse_tool_pattern, tools) if not pattern.is_excluded]
    # If the file names some of a server's tools, those are enough.
    missing = [
        pattern
        for pattern in map(make_server_pattern, servers)
        if not any(
            each.tool.startswith(pattern.removesuffix("*")) or each.matches_tool(pattern)
            for each in included
        )
    ]
    return (*tools, *missing)
