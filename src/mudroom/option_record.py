"""Options that are part of a session's record, and what becomes of all others after a resume.

Every option is in exactly one of the three tuples here, so a new one cannot be forgotten.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec
from msgspec.structs import fields, replace

from ._core.events import SessionOpened
from .options import SessionOptions
from .permissions.rules import Permissions, Rule

RESTORED = (
    "agent",
    "agent_files",
    "agents",
    "allow_net",
    "auto_compact",
    "budget",
    "check",
    "check_seconds",
    "child_model",
    "child_turns",
    "clear_at",
    "compact_at",
    "context_window",
    "isolate",
    "isolated_mb",
    "max_children",
    "max_output_tokens",
    "max_returns",
    "permissions",
    "sandbox",
    "takes_images",
    "worker",
)
"""Options that the opening of a session records, and that a resumed session has again."""

RESTORED_OTHERWISE = (
    "board",
    "cwd",
    "fallback_model",
    "model",
    "output_style",
    "prices",
    "prompt_budget",
)
"""Options that other parts of the record bring back, such as the brief of each prompt."""

OF_PROCESS = (
    "approver",
    "child_model_origin",
    "environ",
    "fork",
    "home",
    "hook_programs",
    "hooks",
    "id",
    "journal",
    "mcp_servers",
    "output_style_origin",
    "plugins",
    "resume",
    "store",
    "tool_sources",
    "tools",
    "tracing",
    "trusted",
    "workers",
    "workspace",
)
"""Options that only the new process can give: objects, functions, programs, trust, and secrets."""

_FLAG_PREFIX = "--"
ORIGIN = "the record of this session"


def encode_options(options: SessionOptions) -> dict[str, Any]:
    """Return the restored options that are not the default, as JSON values by name."""
    recorded: dict[str, Any] = {}
    for field in fields(SessionOptions):
        value = getattr(options, field.name)
        if field.name not in RESTORED or value == field.default:
            continue
        if field.name == "permissions" and not (value := _select_own_rules(value)):
            continue
        if field.name == "sandbox" and not isinstance(value, str):
            continue
        recorded[field.name] = msgspec.to_builtins(value)
    return recorded


def _select_own_rules(permissions: Permissions) -> list[Rule]:
    """Return the rules of flags and of the caller. Files are read again, as they are then."""
    return [
        rule
        for rule in permissions.rules
        if not rule.is_approved and (not rule.origin or rule.origin.startswith(_FLAG_PREFIX))
    ]


def restore_options(
    options: SessionOptions, openings: Sequence[SessionOpened], chosen: Collection[str]
) -> SessionOptions:
    """Return the options with those that the record of the resumed session has.

    Arguments:
        chosen: names of options that the user names now; they win over the record.
    """
    recorded = [opened.options for opened in openings if opened.options is not None]
    if not recorded:  # of a version that recorded only these two
        isolate = options.isolate or openings[0].isolate
        return replace(options, isolate=isolate, check=options.check or openings[0].check)
    last = recorded[-1]
    changes = {name: _decode(name, last) for name in RESTORED if name not in chosen}
    rules = changes.pop("permissions", ())
    if agents := [*_decode("agents", last), *options.agents]:
        # One that is given now replaces the recorded one of its name.
        changes["agents"] = list({agent.name: agent for agent in agents}.values())
    if options.workers is not None:
        changes.pop("worker", None)  # the processes that are shared now
    if not isinstance(options.sandbox, str):
        changes.pop("sandbox", None)
    if "child_model" in changes:
        changes["child_model_origin"] = ORIGIN
    new = [rule for rule in rules if rule not in options.permissions.rules]
    permissions = replace(
        options.permissions,
        rules=(*options.permissions.rules, *new),
        denies_unlisted=options.permissions.denies_unlisted
        or any(rule.verdict == "allow" for rule in new),
    )
    return replace(options, **changes, permissions=permissions)


def _decode(name: str, recorded: Mapping[str, Any]) -> Any:  # noqa: ANN401  of the option
    if name == "permissions":
        return msgspec.convert(recorded.get(name, ()), tuple[Rule, ...])
    if name not in recorded:
        return _find_fields()[name].default
    if name == "sandbox":
        return str(recorded[name])
    return msgspec.convert(recorded[name], _find_fields()[name].type)


@cache
def _find_fields() -> dict[str, Any]:
    return {field.name: field for field in fields(SessionOptions)}


def describe_restored(options: SessionOptions) -> str:
    """Return a notice about the rights that a resumed session has again, "" for none."""
    rights = ["--sandbox off"] if options.sandbox == "off" else []
    rights += ["--allow-net"] if options.allow_net else []
    if not rights:
        return ""
    return f"as when this session was started: {' '.join(rights)}"
