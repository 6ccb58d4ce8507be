"""The keys of agent files, in every tool's spelling: what each one means for an Agent, and what has no meaning here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from msgspec import Struct

from .._core.agents import Agent, Mode, Output
from .._core.budgets import Budget
from . import tools_field
from .diagnostics import Notes
from .frontmatter import Entry

DESCRIPTION = 2_000
"""Characters of a description that a parent model reads."""


class Draft(Struct):
    """What the keys of one file have said so far.

    Arguments:
        fields: of Agent, by name. tools: allowed, None for all. barred: patterns that take away.
        limits: of Budget, by name. skills: names to load from the start. main: it is meant to talk with the person, not to be a child.
        off: why it is not to be used, "" if it is.
    """

    notes: Notes
    known: Iterable[str]
    fields: dict[str, Any] = {}
    tools: tuple[str, ...] | None = None
    barred: tuple[str, ...] = ()
    limits: dict[str, Any] = {}
    skills: tuple[str, ...] = ()
    main: bool = False
    off: str = ""

    def agent(self) -> Agent:
        """The agent as drafted."""
        tools = self.tools
        if self.barred:
            tools = (*(("*",) if tools is None else tools), *self.barred)
        return Agent(tools=tools, budget=Budget(**self.limits), **self.fields)


def drafted(entries: Mapping[str, Entry], notes: Notes, known: Iterable[str]) -> Draft:
    """What the keys say. One that cannot be understood is a finding; if it was there to narrow, the file is not used."""
    draft = Draft(notes, known)
    for key, entry in entries.items():
        plain = key.replace("-", "_")
        if take := _KEYS.get(key) or _KEYS.get(plain):
            try:
                take(draft, entry.value, entry.line)
            except ValueError as wrong:
                tell = notes.error if take in _NARROWING else notes.warning
                tell(entry.line, f"{key} {wrong}")
        elif plain in _UNUSED:
            notes.note(entry.line, f"{key!r} has no effect here")
        else:
            notes.warning(entry.line, f"unknown key {key!r}")
    return draft


def plain_name(text: str) -> str:
    """A name as agents have it: lower case, words joined by hyphens; "" when nothing is left of it."""
    return re.sub(r"[^\w.]+", "-", text.strip().lower()).strip("-_.")[:64]


def folded(name: str) -> str:
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


Take = Callable[[Draft, Any, int], None]


def _field(name: str, read: Callable[[Any], Any]) -> Take:
    def take(draft: Draft, value: Any, line: int) -> None:
        draft.fields[name] = read(value)

    return take


def _limit(name: str, read: Callable[[Any], Any]) -> Take:
    def take(draft: Draft, value: Any, line: int) -> None:
        draft.limits[name] = read(value)

    return take


def _name(draft: Draft, value: Any, line: int) -> None:
    name = plain_name(_text(value))
    if not name:
        raise ValueError(f"{value!r} has no letter in it")
    if name != value:
        draft.notes.note(line, f"{value!r} is called {name!r} here")
    draft.fields["name"] = name


def _description(draft: Draft, value: Any, line: int) -> None:
    text = " ".join(_text(value).split())
    if len(text) > DESCRIPTION:
        draft.notes.warning(
            line,
            f"a description of {len(text):,} characters; every call of a model pays for it, so {DESCRIPTION:,} are used",
        )
    draft.fields["description"] = text[:DESCRIPTION]


def _model(draft: Draft, value: Any, line: int) -> None:
    named = _text(value)
    draft.fields["model"] = "inherit" if named.lower() in ("inherit", "auto", "default") else named


def _tools(draft: Draft, value: Any, line: int) -> None:
    found = tools_field.allowed(value, draft.known, draft.notes, line)
    draft.tools = found.tools
    if found.agents is not None:
        draft.fields["children"] = found.agents
    names = [tool.partition("(")[0] for tool in found.tools]
    if names and not any(
        name in ("*", *tools_field.BUILT_IN, *draft.known) or name.startswith("mcp__")
        for name in names
    ):
        raise ValueError("names no tool that there is")


def _barred(draft: Draft, value: Any, line: int) -> None:
    draft.barred += tools_field.forbidden(value, draft.known, draft.notes, line)


def _permission(draft: Draft, value: Any, line: int) -> None:
    found = tools_field.permitted(value, draft.notes, line)
    draft.barred += tuple(tool for tool in found.tools if tool.startswith("!"))
    if only := tuple(tool for tool in found.tools if not tool.startswith("!")):
        draft.tools = only
    if found.agents is not None:
        draft.fields["children"] = found.agents


def _permission_mode(draft: Draft, value: Any, line: int) -> None:
    mode = _MODES.get(_text(value))
    if mode is None:
        raise ValueError(f"{value!r} is none of {', '.join(Mode)}")
    _take_mode(draft, mode)
    if mode in (Mode.ACCEPT_EDITS, Mode.BYPASS):
        draft.notes.note(
            line, f"{value}: a child has its parent's rights or less, whatever its file says"
        )


def _take_mode(draft: Draft, mode: Mode) -> None:
    draft.fields["mode"] = mode
    if mode is Mode.PLAN:
        draft.barred += ("!write", "!edit")


def _sandbox_mode(draft: Draft, value: Any, line: int) -> None:
    mode = _text(value)
    if mode == "read-only":
        _take_mode(draft, Mode.PLAN)
    elif mode not in ("workspace-write", "danger-full-access"):
        raise ValueError(f"{mode!r} is none of read-only, workspace-write, danger-full-access")


def _child_tools(draft: Draft, value: Any, line: int) -> None:
    draft.fields["child_tools"] = tools_field.allowed(value, draft.known, draft.notes, line).tools


def _budget(draft: Draft, value: Any, line: int) -> None:
    for key, amount in _map(value).items():
        try:
            if key == "minutes":
                draft.limits["seconds"] = _number(amount, 0.001, 1e6) * 60
            elif key in ("seconds", "usd") and key in Budget.__struct_fields__:
                draft.limits[key] = _number(amount, 0.001, 1e8)
            elif key in Budget.__struct_fields__:
                draft.limits[key] = _count(amount, 0 if key in ("children", "depth") else 1)
            else:
                raise ValueError(
                    f"is unknown; there are {', '.join(Budget.__struct_fields__)}, minutes"
                )
        except ValueError as wrong:
            raise ValueError(f"{key} {wrong}") from None


def _skills(draft: Draft, value: Any, line: int) -> None:
    draft.skills = tuple(tools_field.listed(value))


def _context(draft: Draft, value: Any, line: int) -> None:
    if value not in ("none", "project", "full"):
        raise ValueError(f"{value!r} is none of none, project, full")
    draft.fields["context"] = value


def _mode(draft: Draft, value: Any, line: int) -> None:
    if value not in ("primary", "subagent", "all"):
        raise ValueError(f"{value!r} is none of primary, subagent, all")
    draft.main = value == "primary"


def _off(why: str) -> Take:
    def take(draft: Draft, value: Any, line: int) -> None:
        if _yes(value):
            draft.off = why

    return take


def _kind(draft: Draft, value: Any, line: int) -> None:
    if value != "local":
        draft.off = f"agents of kind {value!r} run elsewhere"


def _model_config(draft: Draft, value: Any, line: int) -> None:
    _nested(
        draft,
        value,
        line,
        {"model": _model, "temp": _TEMPERATURE, "temperature": _TEMPERATURE, "top_p": _TOP_P},
    )


def _run_config(draft: Draft, value: Any, line: int) -> None:
    _nested(draft, value, line, {"max_turns": _TURNS, "max_time_minutes": _MINUTES})


def _nested(draft: Draft, value: Any, line: int, keys: Mapping[str, Take]) -> None:
    for key, inner in _map(value).items():
        if key in keys:
            keys[key](draft, inner, line)
        else:
            draft.notes.warning(line, f"unknown key {key!r}")


def _outputs(draft: Draft, value: Any, line: int) -> None:
    if isinstance(value, list):
        value = dict.fromkeys(tools_field.listed(value), "")
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

_SPELLED: tuple[tuple[str, Take], ...] = (
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
