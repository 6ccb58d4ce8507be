"""MCP servers' questions: the user fills in a form field by field, or is shown an address."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import msgspec

from ...._core.ports import ApprovalDecision, ApprovalRequest
from ...._core.ports.approval import FormField, InputForm, list_fields, parse_value
from ...._projections.safe_text import escape_hidden
from ...output.text import Line
from ..ui import QuestionUI
from .question_lines import name_asker

DECLINE, SKIP, YES, NO = "decline to answer", "no value", "yes", "no"
_ANSWERED = "the user answered"
_DECLINED = "the user declined"


async def fill_form(
    ui: QuestionUI, request: ApprovalRequest, form: InputForm
) -> ApprovalDecision | None:
    """Ask the user a form's questions. Returns None if the user stops the run."""
    title = f"MCP server {form.server} asks, in a call of {name_asker(request)}"
    if form.url:
        return await _show_address(ui, title, form)
    values: dict[str, Any] = {}
    fields = list_fields(form)
    if not fields:
        choice = await ui.choose(title, [(YES, YES), (NO, NO)], body=_format_message(form))
        return None if choice is None else _decide(choice == YES)
    for number, field in enumerate(fields, 1):
        place = f" ({number} of {len(fields)})" if len(fields) > 1 else ""
        value = await _ask_field(ui, f"{title}{place}", form, field)
        if value is None:
            return None
        if value is _NOTHING:
            continue
        if value is _REFUSED:
            return _decide(False)
        values[field.name] = value
    return ApprovalDecision(True, _ANSWERED, arguments=values)


def _decide(is_allowed: bool) -> ApprovalDecision:
    return ApprovalDecision(is_allowed, _ANSWERED if is_allowed else _DECLINED)


async def _show_address(ui: QuestionUI, title: str, form: InputForm) -> ApprovalDecision | None:
    parts = urlsplit(form.url)
    body = [
        *_format_message(form),
        [("  It wants you to open this address:", "")],
        [(f"  {escape_hidden(form.url)}", "bold")],
        [(f"  on the host {escape_hidden(parts.hostname or '?')}. mudroom does not open it.", "")],
    ]
    items = [(YES, "yes, I open it"), (NO, DECLINE)]
    choice = await ui.choose(title, items, body=body)
    return None if choice is None else _decide(choice == YES)


async def _ask_field(ui: QuestionUI, title: str, form: InputForm, field: FormField) -> object:
    """Ask for a field's value, _NOTHING or _REFUSED; None if the user stops the run."""
    fault = ""
    while True:
        choice = await ui.choose(
            title,
            _make_items(field),
            free_text=field.kind not in ("boolean", "choice"),
            body=[*_format_message(form), *_format_field(field, fault)],
        )
        if choice is None:
            return None
        if choice == DECLINE:
            return _REFUSED
        if choice == SKIP:
            return _NOTHING if field.default is None else field.default
        try:
            return parse_value(field, choice)
        except ValueError as error:
            fault = str(error)


def _make_items(field: FormField) -> list[tuple[str, str]]:
    items: list[tuple[str, str]] = []
    if field.kind == "boolean":
        items = [(YES, YES), (NO, NO)]
    elif field.kind == "choice":
        items = list(field.choices)
    if field.default is not None:
        default = field.default if isinstance(field.default, str) else _encode(field.default)
        items.append((SKIP, f"the default: {default}"))
    elif not field.is_required:
        items.append((SKIP, SKIP))
    return [*items, (DECLINE, DECLINE)]


def _format_message(form: InputForm) -> list[Line]:
    return [[(f"  {line}", "bold")] for line in escape_hidden(form.message).split("\n")]


def _format_field(field: FormField, fault: str) -> list[Line]:
    notes = [field.description, "" if field.is_required else "not required"]
    if field.kind in ("number", "integer", "text"):
        notes += field.describe_limits()
    if field.kind == "choices":
        labels = ", ".join(label for _, label in field.choices)
        notes.append(f"some of these, with commas between: {labels}")
    text = "; ".join(filter(None, notes))
    lines: list[Line] = [[(f"  {escape_hidden(field.label)}", ""), (_join(text), "dim")]]
    return [*lines, [(f"  {escape_hidden(fault)}", "yellow")]] if fault else lines


def _join(text: str) -> str:
    return f": {escape_hidden(text)}" if text else ""


def _encode(value: object) -> str:
    if isinstance(value, bool):
        return YES if value else NO
    return msgspec.json.encode(value).decode()


# Not None, which means that the user stopped the run.
_NOTHING = object()
_REFUSED = object()
