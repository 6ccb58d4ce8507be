"""The keys of agent files, in every program's spelling, and what they mean for an Agent."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, get_args

from msgspec import Struct

from ..._core.agents import Agent, Effort, Mode, WorkspaceKind
from ..._core.budgets import Budget
from ..._core.json_values import JsonValue
from ..._core.output_declarations import parse_outputs
from ..._platform.lazy_pattern import compile_later
from . import servers_field, tools_field
from .diagnostics import FileDiagnostics
from .frontmatter import Entry

MAX_DESCRIPTION = 2_000
"""Characters of a description, which the model of a parent reads."""


class AgentDraft(Struct):
    """An agent while the keys of its file are read.

    Arguments:
        known_tools: names of all tools.
        fields: fields of Agent by name. budget_fields: fields of Budget by name.
        tools: allowed patterns, None for all. denied_tools: excluding patterns.
        skills: names of skills to load from the start.
        servers: MCP servers by name, with a configuration if only the agent has the server.
        is_main: true for an agent that talks with the user and is never a child.
        unused_reason: why the file is not used, "" if it is.
    """

    diagnostics: FileDiagnostics
    known_tools: Collection[str]
    fields: dict[str, Any] = {}
    tools: tuple[str, ...] | None = None
    denied_tools: tuple[str, ...] = ()
    budget_fields: dict[str, Any] = {}
    skills: tuple[str, ...] = ()
    servers: dict[str, servers_field.Entry | None] = {}
    is_main: bool = False
    unused_reason: str = ""

    def build_agent(self) -> Agent:
        tools = servers_field.add_server_patterns(self.tools, self.servers)
        if self.denied_tools:
            tools = (*(("*",) if tools is None else tools), *self.denied_tools)
        if self.fields.get("model") == "opusplan":
            # Claude Code plans with Opus and works with Sonnet.
            is_plan = self.fields.get("mode") is Mode.PLAN
            self.fields["model"] = "opus" if is_plan else "sonnet"
        return Agent(tools=tools, budget=Budget(**self.budget_fields), **self.fields)


def draft_agent(
    entries: Mapping[str, Entry], diagnostics: FileDiagnostics, known_tools: Collection[str]
) -> AgentDraft:
    """Read the keys of a file.

    An invalid value gets a warning. For a key that limits the agent it gets an error, so that the
    file is not used.
    """
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
    """Return a name in lower case with hyphens between words; it may become ""."""
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
    # In Python, True and False are numbers, too.
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


# Called as (draft, value, line); stores the value in the draft or raises ValueError.
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
    if tools_field.is_github_file(draft.diagnostics.path):
        model = _read_github_models(value)
    else:
        model = _read_text(value)
    is_inherited = model.lower() in ("inherit", "auto", "default")
    if model.endswith("[1m]"):
        draft.diagnostics.add_warning(
            line, f"model {model}: [1m] has no effect: the whole window of a model is always used"
        )
        model = model.removesuffix("[1m]")
    # Claude Code's word for its most capable model, and for the next one if there is no access.
    model = "fable,opus" if model == "best" else model
    draft.fields["model"] = "inherit" if is_inherited else model


_CLAUDE_VERSION = compile_later(r"\b(claude-(?:[a-z]+-)?\d+)\.(\d+)")


def _read_github_models(value: JsonValue) -> str:
    """Read GitHub's names of models, such as "Claude Sonnet 4.5 (copilot)".

    Several are tried in order, as models with commas between them are here.
    """
    names = value if isinstance(value, list) else _read_text(value).split("|")
    models = [
        _read_text(name).strip("'\"").removesuffix(" (copilot)").lower().replace(" ", "-")
        for name in names
    ]
    return _CLAUDE_VERSION.sub(r"\1-\2", ",".join(models))


def _handle_tools(draft: AgentDraft, value: JsonValue, line: int) -> None:
    allowed = tools_field.parse_allowed(value, draft.known_tools, draft.diagnostics, line)
    draft.tools = allowed.tools
    if allowed.agents is not None:
        draft.fields["children"] = allowed.agents
    if value and not allowed.tools:
        draft.diagnostics.add_warning(line, "none of its tools has a counterpart: it gets none")
    names = [pattern.partition("(")[0] for pattern in allowed.tools]
    known = ("*", *draft.known_tools)
    # A mistyped list must not leave an agent that cannot do anything.
    if names and not any(name in known or name.startswith("mcp__") for name in names):
        raise ValueError("names no tool that exists")


def _handle_denied_tools(draft: AgentDraft, value: JsonValue, line: int) -> None:
    draft.denied_tools += tools_field.parse_denied(
        value, draft.known_tools, draft.diagnostics, line
    )


def _handle_permission(draft: AgentDraft, value: JsonValue, line: int) -> None:
    permission = tools_field.parse_permission(value, draft.diagnostics, line)
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
    allowed = tools_field.parse_allowed(value, draft.known_tools, draft.diagnostics, line)
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
    draft.skills = tuple(tools_field.parse_names(value))


def _handle_servers(draft: AgentDraft, value: JsonValue, line: int) -> None:
    draft.servers = servers_field.parse_servers(value)


def _handle_effort(draft: AgentDraft, value: JsonValue, line: int) -> None:
    effort = _read_choice(value, "minimal", *get_args(Effort))
    draft.fields["effort"] = "low" if effort == "minimal" else effort


def _handle_mode(draft: AgentDraft, value: JsonValue, line: int) -> None:
    draft.is_main = _read_choice(value, "primary", "subagent", "all") == "primary"


def _handle_agents(draft: AgentDraft, value: JsonValue, line: int) -> None:
    draft.fields["children"] = tuple(
        name if "*" in name else normalize_name(name) for name in tools_field.parse_names(value)
    )


def _handle_child_use(draft: AgentDraft, value: JsonValue, line: int) -> None:
    draft.is_main = not _read_flag(value)


def _handle_no_child_use(draft: AgentDraft, value: JsonValue, line: int) -> None:
    draft.is_main = _read_flag(value)


def _handle_disabled(draft: AgentDraft, value: JsonValue, line: int) -> None:
    if _read_flag(value):
        draft.unused_reason = "it is disabled"


def _handle_kind(draft: AgentDraft, value: JsonValue, line: int) -> None:
    if value != "local":
        draft.unused_reason = f"agents of kind {value!r} are not supported"


def _make_map_handler(handlers: Mapping[str, FieldHandler]) -> FieldHandler:
    """Make a handler for a map whose keys have their own handlers."""

    def handle(draft: AgentDraft, value: JsonValue, line: int) -> None:
        for key, inner in _read_map(value).items():
            if key in handlers:
                handlers[key](draft, inner, line)
            else:
                draft.diagnostics.add_warning(line, f"unknown key {key!r}")

    return handle


def _handle_outputs(draft: AgentDraft, value: JsonValue, line: int) -> None:
    if isinstance(value, list):
        value = dict.fromkeys(tools_field.parse_names(value), "")
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
