"""`mudroom hooks test`: runs an event's hooks on an example, and shows the outcome."""

from __future__ import annotations

import asyncio
import os
import uuid
from typing import Any, cast

import msgspec

from ...._adapters.integrations.hook_programs.events import RULES
from ...._adapters.integrations.hook_programs.hook_set import HookSet, is_selected
from ...._adapters.integrations.hook_programs.outcome import HookOutcome
from ...._adapters.integrations.hook_programs.run_log import HookRun, RunLog
from ...._adapters.integrations.hook_programs.tool_shapes import ToolInput, from_hook_input
from ...._adapters.tools import make_builtin_tools
from ...._core.messages import ToolCallBlock
from ...._core.tool_names import normalize_tool_name
from ...._projections.claude import get_claude_name
from ...._projections.safe_text import escape_line
from ...._session.open_adapters import make_rule_matcher
from ....errors import UnknownName, UsageError
from ...output.json_output import print_json
from ...output.listing import print_entry, print_rows
from ...output.notices.log import show_log
from ..load_settings import load_settings
from .load_programs import require_programs

_NEEDS_SESSION = "(type mcp_tool: its server works in a session only)"


def run_hooks(
    cwd: str, event: str, tool: str, input_text: str, plugin_dirs: str | None, *, as_json: bool
) -> None:
    """Run the hooks in use for an event, and print input and outcome.

    Hooks of type mcp_tool are listed but not run: their servers only work in a session.
    `input_text` is a JSON object with the tool's input, or the fields of another event. Raises
    UnknownName for the event, UsageError for the input.
    """
    if event not in RULES:
        raise UnknownName("hook event", event, RULES)
    folder = os.path.realpath(cwd)
    settings = load_settings(cwd, plugin_dirs=plugin_dirs)
    programs = require_programs(settings, cwd)
    fields = _make_fields(event, folder, get_claude_name(tool), _parse_input(input_text))
    run_log = RunLog(settings.home)
    matcher_text = str(fields.get(RULES[event].subject, ""))
    left_out = [
        hook.shown
        for hook in programs.hooks
        if hook.kind == "mcp_tool" and hook.event == event and is_selected(hook, matcher_text)
    ]
    hooks = HookSet(
        [hook for hook in programs.hooks if hook.kind != "mcp_tool"],
        {},
        session=fields["session_id"],
        folder=folder,
        environ=os.environ,
        run_log=run_log,
    )
    with show_log(print_entry):
        for notice in programs.notices:
            print_entry(notice)
        outcome = asyncio.run(_fire(hooks, event, fields, folder))
    # The log also has runs from sessions; the random id finds those of this test.
    runs = [run for run in run_log.read() if run.session == fields["session_id"]]
    if as_json:
        tried = {"input": fields, "runs": runs, "not_run": left_out}
        print_json(tried | {"outcome": _describe(outcome)})
        return
    print_rows(
        [
            ("input", escape_line(msgspec.json.encode(fields).decode())),
            *((_format_run(run), escape_line(run.hook)) for run in runs),
            *(("not run here", f"{escape_line(shown)} {_NEEDS_SESSION}") for shown in left_out),
            *((name, escape_line(str(value))) for name, value in _describe(outcome).items()),
        ]
    )


async def _fire(hooks: HookSet, event: str, fields: dict[str, Any], folder: str) -> HookOutcome:
    matches_rule = make_rule_matcher(make_builtin_tools(), folder, os.environ.get("HOME", ""))
    name = fields.get("tool_name", "")
    # Conditions of hooks are permission rules, which know mudroom's own names and arguments.
    sent = ToolInput(name, fields.get("tool_input", {}))
    call = ToolCallBlock("", normalize_tool_name(name), {})
    call = msgspec.structs.replace(call, arguments=from_hook_input(call, sent, sent.arguments))
    try:
        return await hooks.fire(
            event, fields, matches_condition=lambda rule: matches_rule(rule, call)
        )
    finally:
        await hooks.close()


def _parse_input(text: str) -> dict[str, Any]:
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UsageError(f"not JSON: {error}", where="--input") from None
    if not isinstance(value, dict):
        raise UsageError("not a JSON object", where="--input", remedy='Use {"command": "make"}.')
    return cast("dict[str, Any]", value)


def _make_fields(event: str, folder: str, tool: str, values: dict[str, Any]) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "session_id": str(uuid.uuid4()),
        "transcript_path": "",
        "cwd": folder,
        "hook_event_name": event,
        "permission_mode": "default",
    }
    if RULES[event].subject != "tool_name":
        return fields | values
    return fields | {"tool_name": tool, "tool_input": values, "tool_use_id": "call_1"}


def _format_run(run: HookRun) -> str:
    return f"{run.ending} in {run.seconds:g} s"


def _describe(outcome: HookOutcome) -> dict[str, Any]:
    effects = {
        "decision": outcome.decision or "none",
        "reason": outcome.reason,
        "by": outcome.origin if outcome.decision else "",
        "changed input": outcome.updated_input,
        "text for the model": outcome.context,
        "ends the run": outcome.stop,
        "message": outcome.message,
    }
    return {name: value for name, value in effects.items() if value}
