"""The keys of agent files, in every tool's spelling: what each one means for an Agent, and what has no meaning here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from msgspec import Struct

from .._core.agents import Agent, Mode, Output
from .._core.budgets import Budget
from . import tools_field
from .diagnostics import FileDiagnostics
from .frontmatter import Entry

MAX_DESCRIPTION = 2_000
"""Characters of a description that a parent model reads."""


class AgentDraft(Struct):
    """What the keys of one file have said so far.

    Arguments:
        fields: of Agent, by name. tools: allowed, None for all. barred: patterns that take away.
        limits: of Budget, by name. skills: names to load from the start. main: it is meant to talk with the person, not to be a child.
        off: why it is not to be used, "" if it is.
    """

    diagnostics: FileDiagnostics
    known_tools: Iterable[str]
    fields: dict[str, Any] = {}
    tools: tuple[str, ...] | None = None
    denied_tools: tuple[str, ...] = ()
    budget_fields: dict[str, Any] = {}
    skills: tuple[str, ...] = ()
    is_main: bool = False
    unused_reason: str = ""

    def build_agent(self) -> Agent:
        """The agent as drafted."""
        tools = self.tools
        if self.denied_tools:
            tools = (*(("*",) if tools is None else tools), *self.denied_tools)
        return Agent(tools=tools, budget=Budget(**self.budget_fields), **self.fields)


def draft_agent(
    entries: Mapping[str, Entry], notes: FileDiagnostics, known: Iterable[str]
) -> AgentDraft:
    """What the keys say. One that cannot be understood is a finding; if it was there to narrow, the file is not used."""
    draft = AgentDraft(notes, known)
    for key, entry in entries.items():
        plain = key.replace("-", "_")
        if take := _KEYS.get(key) or _KEYS.get(plain):
            try:
                take(draft, entry.value, entry.line)
            except ValueError as wrong:
                tell = notes.add_error if take in _NARROWING else notes.add_warning
                tell(entry.line, f"{key} {wrong}")
        elif plain in _UNUSED:
            notes.add_note(entry.line, f"{key!r} has no effect here")
        else:
            notes.add_warning(entry.line, f"unknown key {key!r}")
    return draft


def normalize_name(text: str) -> str:
    """A name as agents have it: lower case, words joined by hyphens; "" when nothing is left of it."""
    return re.sub(r"[^\w.]+", "-", text.strip().lower()).strip("-_.")[:64]


def fold_name(name: str) -> str:
    """What names have in common that differ in case and separators only."""
    return "".join(letter for letter in name.lower() if letter.isalnum())


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError("is no text")
    return value.strip()


def _number(value: Any, low: float, high: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise ValueError(f"is no number from {low:g} to {high:g}")
    return value


def _count(value: Any, low: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ValueError(f"is no whole number from {low}")
    return value


def _yes(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("is neither true nor false")
    return value


def _map(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError("is no map")
    return cast("dict[str, Any]", value)


FieldHandler = Callable[[AgentDraft, Any, int], None]


def _field(name: str, read: Callable[[Any], Any]) -> FieldHandler:
    def take(draft: AgentDraft, value: Any, line: int) -> None:
        draft.fields[name] = read(value)

    return take


def _limit(name: str, read: Callable[[Any], Any]) -> FieldHandler:
    def take(draft: AgentDraft, value: Any, line: int) -> None:
        draft.budget_fields[name] = read(value)

    return take


def _name(draft: AgentDraft, value: Any, line: int) -> None:
    name = normalize_name(_text(value))
    if not name:
        raise ValueError(f"{value!r} has no letter in it")
    if name != value:
        draft.diagnostics.add_note(line, f"{value!r} is called {name!r} here")
    draft.fields["name"] = name


def _description(draft: AgentDraft, value: Any, line: int) -> None:
    text = " ".join(_text(value).split())
    if len(text) > MAX_DESCRIPTION:
        draft.diagnostics.add_warning(
            line,
            f"a description of {len(text):,} characters; every call of a model pays for it, so {MAX_DESCRIPTION:,} are used",
        )
    draft.fields["description"] = text[:MAX_DESCRIPTION]


def _model(draft: AgentDraft, value: Any, line: int) -> None:
    named = _text(value)
    draft.fields["model"] = "inherit" if named.lower() in ("inherit", "auto", "default") else named


def _tools(draft: AgentDraft, value: Any, line: int) -> None:
    found = tools_field.parse_allowed(value, draft.known_tools, draft.diagnostics, line)
    draft.tools = found.tools
    if found.agents is not None:
        draft.fields["children"] = found.agents
    names = [tool.partition("(")[0] for tool in found.tools]
    if names and not any(
        name in ("*", *tools_field.BUILTIN_TOOLS, *draft.known_tools) or name.startswith("mcp__")
        for name in names
    ):
        raise ValueError("names no tool that there is")


def _barred(draft: AgentDraft, value: Any, line: int) -> None:
    draft.denied_tools += tools_field.parse_forbidden(
        value, draft.known_tools, draft.diagnostics, line
    )


def _permission(draft: AgentDraft, value: Any, line: int) -> None:
    found = tools_field.parse_permission(value, draft.diagnostics, line)
    draft.denied_tools += tuple(tool for tool in found.tools if tool.startswith("!"))
    if only := tuple(tool for tool in found.tools if not tool.startswith("!")):
        draft.tools = only
    if found.agents is not None:
        draft.fields["children"] = found.agents


def _permission_mode(draft: AgentDraft, value: Any, line: int) -> None:
    mode = _MODES.get(_text(value))
    if mode is None:
        raise ValueError(f"{value!r} is none of {', '.join(Mode)}")
    _take_mode(draft, mode)
    if mode in (Mode.ACCEPT_EDITS, Mode.BYPASS):
        draft.diagnostics.add_note(
            line, f"{value}: a child has its parent's rights or less, whatever its file says"
        )


def _take_mode(draft: AgentDraft, mode: Mode) -> None:
    draft.fields["mode"] = mode
    if mode is Mode.PLAN:
        draft.denied_tools += ("!write", "!edit")


def _sandbox_mode(draft: AgentDraft, value: Any, line: int) -> None:
    mode = _text(value)
    if mode == "read-only":
        _take_mode(draft, Mode.PLAN)
    elif mode not in ("workspace-write", "danger-full-access"):
        raise ValueError(f"{mode!r} is none of read-only, workspace-write, danger-full-access")


def _child_tools(draft: AgentDraft, value: Any, line: int) -> None:
    draft.fields["child_tools"] = tools_field.parse_allowed(
        value, draft.known_tools, draft.diagnostics, line
    ).tools


def _budget(draft: AgentDraft, value: Any, line: int) -> None:
    for key, amount in _map(value).items():
        try:
            if key == "minutes":
                draft.budget_fields["seconds"] = _number(amount, 0.001, 1e6) * 60
            elif key in ("seconds", "usd") and key in Budget.__struct_fields__:
                draft.budget_fields[key] = _number(amount, 0.001, 1e8)
            elif key in Budget.__struct_fields__:
                draft.budget_fields[key] = _count(amount, 0 if key in ("children", "depth") else 1)
            else:
                raise ValueError(
                    f"is unknown; there are {', '.join(Budget.__struct_fields__)}, minutes"
                )
        except ValueError as wrong:
            raise ValueError(f"{key} {wrong}") from None


def _skills(draft: AgentDraft, value: Any, line: int) -> None:
    draft.skills = tuple(tools_field.parse_names(value))


def _context(draft: AgentDraft, value: Any, line: int) -> None:
    if value not in ("none", "project", "full"):
        raise ValueError(f"{value!r} is none of none, project, full")
    draft.fields["context"] = value


def _mode(draft: AgentDraft, value: Any, line: int) -> None:
    if value not in ("primary", "subagent", "all"):
        raise ValueError(f"{value!r} is none of primary, subagent, all")
    draft.is_main = value == "primary"


def _off(why: str) -> FieldHandler:
    def take(draft: AgentDraft, value: Any, line: int) -> None:
        if _yes(value):
            draft.unused_reason = why

    return take


def _kind(draft: AgentDraft, value: Any, line: int) -> None:
    if value != "local":
        draft.unused_reason = f"agents of kind {value!r} run elsewhere"


def _model_config(draft: AgentDraft, value: Any, line: int) -> None:
    _nested(
        draft,
        value,
        line,
        {"model": _model, "temp": _TEMPERATURE, "temperature": _TEMPERATURE, "top_p": _TOP_P},
    )


def _run_config(draft: AgentDraft, value: Any, line: int) -> None:
    _nested(draft, value, line, {"max_turns": _TURNS, "max_time_minutes": _MINUTES})


def _nested(draft: AgentDraft, value: Any, line: int, keys: Mapping[str, FieldHandler]) -> None:
    for key, inner in _map(value).items():
        if key in keys:
            keys[key](draft, inner, line)
        else:
            draft.diagnostics.add_warning(line, f"unknown key {key!r}")


def _outputs(draft: AgentDraft, value: Any, line: int) -> None:
    if isinstance(value, list):
        value = dict.fromkeys(tools_field.parse_names(value), "")
    given = _map(value)
    required: Any = None
    if isinstance(given.get("properties"), dict):
        required, given = given.get("required", []), given["properties"]
    outputs: dict[str, Output] = {}
    for name, said in given.items():
        if not isinstance(said, str | dict):
            raise ValueError(f"{name} is neither a description nor a JSON Schema")
        schema: dict[str, Any] = cast("dict[str, Any]", said) if isinstance(said, dict) else {}
        _check_schema(name, schema)
        about = said if isinstance(said, str) else str(schema.get("description", ""))
        outputs[name] = Output(
            about, schema, optional=required is not None and name not in required
        )
    draft.fields["outputs"] = outputs


def _check_schema(name: str, schema: dict[str, Any]) -> None:
    if not schema:
        return
    import jsonschema_rs

    try:
        jsonschema_rs.validator_for(schema, offline=True)
    except (ValueError, jsonschema_rs.ValidationError) as error:
        raise ValueError(f"{name} is no JSON Schema: {str(error).splitlines()[0]}") from None


_MODES = {
    **{mode.value: mode for mode in Mode},
    "auto-edit": Mode.ACCEPT_EDITS,
    "auto": Mode.ACCEPT_EDITS,
    "yolo": Mode.BYPASS,
}
_TURNS = _limit("turns", _count)
_MINUTES = _limit("seconds", lambda value: _number(value, 0.001, 1e6) * 60)
_TEMPERATURE = _field("temperature", lambda value: _number(value, 0, 2))
_TOP_P = _field("top_p", lambda value: _number(value, 0, 1))
_INSTRUCTIONS = _field("instructions", _text)

_SPELLED: tuple[tuple[str, FieldHandler], ...] = (
    ("name", _name),
    ("description", _description),
    ("prompt developer_instructions instructions", _INSTRUCTIONS),
    ("model", _model),
    ("temperature temp", _TEMPERATURE),
    ("top_p topP", _TOP_P),
    ("max_turns maxTurns maxSteps max_steps steps max_iteration_per_run", _TURNS),
    ("timeout_mins max_time_minutes", _MINUTES),
    ("tools allowed_tools", _tools),
    ("disallowedTools disallowed_tools exclude_tools", _barred),
    ("permission", _permission),
    ("permissionMode permission_mode approvalMode", _permission_mode),
    ("sandbox_mode", _sandbox_mode),
    ("child_tools childTools", _child_tools),
    ("budget", _budget),
    ("skills", _skills),
    ("context", _context),
    ("outputs returns output_schema", _outputs),
    ("mode", _mode),
    ("kind", _kind),
    ("disable disabled", _off("it is disabled")),
    ("modelConfig model_config", _model_config),
    ("runConfig run_config", _run_config),
)
_KEYS = {key: take for keys, take in _SPELLED for key in keys.split()}
_NARROWING = {_tools, _barred, _permission, _permission_mode, _sandbox_mode, _child_tools, _budget}
_WITHOUT_EFFECT = (
    "color hidden effort background hooks memory mcpServers mcp_servers isolation initialPrompt display_name model_reasoning_effort "
    "nickname_candidates license version title metadata argument_hint when_to_use author tags"
)
_UNUSED = set(_WITHOUT_EFFECT.split())
