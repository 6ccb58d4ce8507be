"""Outcomes of hooks: turns exit codes and outputs into decisions, and merges outcomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, cast

import msgspec
from msgspec import UNSET, Struct

from .events import RULES

BLOCKED = 2  # exit code of a program that blocks, as in Claude Code
NO_REASON = "the hook gave no reason"
_SHOWN_CHARACTERS = 500  # characters of error output shown in a message

Decision = Literal["", "allow", "ask", "defer", "deny"]
# Among several hooks' decisions, the rightmost counts.
_ORDER: tuple[Decision, ...] = ("", "allow", "ask", "defer", "deny")
_OLD_DECISIONS: dict[str, Decision] = {
    "": "",
    "approve": "allow",
    "allow": "allow",
    "block": "deny",
    "deny": "deny",
    "ask": "ask",
}


class HookOutcome(Struct, frozen=True, kw_only=True):
    """The outcome of one hook, or of all hooks of an event."""

    decision: Decision = ""  # also "deny" if a hook blocks an event without a tool
    reason: str = ""  # shown to the model for a denial
    origin: str = ""  # the deciding hook's file
    updated_input: dict[str, Any] | None = None  # the whole input of a tool; None keeps its own
    updated_output: Any = UNSET  # the response of a tool; UNSET keeps its own
    context: str = ""  # text for the model
    stop: str = ""  # why the run must stop
    message: str = ""  # text for the user
    failure: str = ""  # why the hook failed


def read_ending(
    event: str,
    code: int,
    stdout: str,
    stderr: str,
    convert: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
) -> HookOutcome:
    """Read a program's outcome; `convert` turns other dialects into Claude Code's."""
    reason = stderr.strip()
    if code == BLOCKED:
        return _read_block(event, reason)
    output = stdout.strip()
    if output.startswith("{"):
        try:
            value = msgspec.json.decode(output)
        except (msgspec.DecodeError, UnicodeError) as error:
            failure = f"its output begins with {{ and is no JSON object: {error}"
            if code:
                failure = f"it ended with exit code {code}, and {failure}"
            return HookOutcome(failure=failure)
        if isinstance(value, dict):
            value = convert(cast("dict[str, Any]", value))
        return read_output(event, value)
    if code:
        detail = f": {reason[:_SHOWN_CHARACTERS]}" if reason else ""
        return HookOutcome(failure=f"it ended with exit code {code}{detail}")
    return HookOutcome(context=output if RULES[event].adds_output else "")


def _read_block(event: str, reason: str) -> HookOutcome:
    if RULES[event].blocks:
        return HookOutcome(decision="deny", reason=reason or NO_REASON)
    if event in ("PostToolUse", "PostToolUseFailure"):
        return HookOutcome(context=reason)
    failure = f"it ended with exit code {BLOCKED}, which cannot block {event}"
    return HookOutcome(failure=f"{failure}: {reason[:_SHOWN_CHARACTERS]}" if reason else failure)


def read_output(event: str, output: object) -> HookOutcome:
    """Read the outcome an output object describes. Any other value is a failure."""
    if not isinstance(output, Mapping):
        return HookOutcome(failure=f"its output is {type(output).__name__}, not a JSON object")
    fields = cast(Mapping[str, Any], output)
    specific = fields.get("hookSpecificOutput")
    own: dict[str, Any] = {}
    if isinstance(specific, dict):
        own = cast("dict[str, Any]", specific)
    named = own.get("hookEventName", event)
    if named != event:
        return HookOutcome(failure=f"its output is for the event {named}, not {event}")
    old = fields.get("decision")
    name = "" if old is None else old
    if not isinstance(name, str) or name not in _OLD_DECISIONS:
        return HookOutcome(failure=f"decision is {old!r}")
    decision = _OLD_DECISIONS[name]
    outcome = HookOutcome(
        decision=decision,
        reason=_get_text(fields, "reason") or (NO_REASON if decision == "deny" else ""),
        context=_get_text(own, "additionalContext"),
        message=_get_text(fields, "systemMessage"),
    )
    if fields.get("continue") is False:
        stop = _get_text(fields, "stopReason") or "a hook stopped the run"
        outcome = msgspec.structs.replace(outcome, stop=stop)
    return _read_specific(event, own, outcome)


def _read_specific(event: str, own: Mapping[str, Any], outcome: HookOutcome) -> HookOutcome:
    replace = msgspec.structs.replace
    if event == "PreToolUse":
        decision = own.get("permissionDecision", outcome.decision)
        if decision not in _ORDER:
            return HookOutcome(failure=f"permissionDecision is {decision!r}")
        default = NO_REASON if decision == "deny" else ""
        reason = _get_text(own, "permissionDecisionReason") or outcome.reason or default
        changed = own.get("updatedInput")
        return replace(
            outcome, decision=decision, reason=reason, updated_input=_get_object(changed)
        )
    if event == "PermissionRequest" and own.get("decision") is not None:
        if not isinstance(own["decision"], dict):
            return HookOutcome(failure=f"decision is {own['decision']!r}, not an object")
        answer = cast("dict[str, Any]", own["decision"])
        behavior = answer.get("behavior")
        if behavior not in ("allow", "deny"):
            return HookOutcome(failure=f"behavior is {behavior!r}")
        denies = behavior == "deny"
        message = _get_text(answer, "message") or outcome.reason or (NO_REASON if denies else "")
        return replace(
            outcome,
            decision="deny" if denies else "allow",
            reason=message,
            updated_input=_get_object(answer.get("updatedInput")),
            stop=message if denies and answer.get("interrupt") else "",
        )
    if event in ("PostToolUse", "PostToolUseFailure"):
        texts = [outcome.context]
        if outcome.decision == "deny":
            texts.insert(0, outcome.reason)
        changed = own.get("updatedToolOutput", own.get("updatedMCPToolOutput", UNSET))
        context = "\n".join(filter(None, texts))
        return replace(outcome, context=context, decision="", reason="", updated_output=changed)
    return outcome


def merge_outcomes(outcomes: Iterable[HookOutcome]) -> HookOutcome:
    """Merge the outcomes of all of an event's hooks: deny > defer > ask > allow."""
    merged = HookOutcome()
    contexts: list[str] = []
    messages: list[str] = []
    for each in outcomes:
        contexts.append(each.context)
        messages.append(each.message)
        if _ORDER.index(each.decision) > _ORDER.index(merged.decision):
            merged = msgspec.structs.replace(
                merged, decision=each.decision, reason=each.reason, origin=each.origin
            )
        merged = msgspec.structs.replace(
            merged,
            updated_input=each.updated_input or merged.updated_input,
            updated_output=(
                merged.updated_output if each.updated_output is UNSET else each.updated_output
            ),
            stop=merged.stop or each.stop,
        )
    return msgspec.structs.replace(
        merged,
        context="\n".join(filter(None, contexts)),
        message="\n".join(filter(None, messages)),
    )


def _get_text(fields: Mapping[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _get_object(value: object) -> dict[str, Any] | None:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else None
