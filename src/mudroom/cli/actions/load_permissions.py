"""Permissions from settings files and flags."""

from __future__ import annotations

import os
from typing import Any

from ..._core.agents import Mode
from ...config import Settings
from ...errors import UsageError
from ...permissions import settings as files
from ...permissions.rules import Permissions, Rule, Verdict, parse_rules, split_rules

MODES = [mode.value for mode in Mode]


def load_permissions(
    settings: Settings, cwd: str, *, attended: bool = False
) -> tuple[Permissions, tuple[str, ...]]:
    """Permissions as files and flags say, and what the person should know of them.

    Arguments:
        attended: whether a person can be asked.

    Raises UsageError for a wrong rule on the command line, or for a mode that settings forbid.
    """
    found = files.load_settings(cwd, user_home=os.environ.get("HOME", ""))
    allowed = _flagged(settings, "allowed_tools", Verdict.ALLOW)
    rules = (*found.rules, *allowed, *_flagged(settings, "disallowed_tools", Verdict.DENY))
    mode = (
        Mode(settings.permission_mode) if settings.permission_mode else found.mode or Mode.DEFAULT
    )
    if mode is Mode.BYPASS and found.bypass_disabled:
        raise UsageError(
            "settings forbid to bypass permissions",
            remedy="Take the flag away, or disableBypassPermissionsMode.",
        )
    return Permissions(
        rules=rules, mode=mode, attended=attended, only_listed=bool(allowed)
    ), found.notes


def is_trusted(settings: Settings, cwd: str) -> bool:
    """Whether the folder's files get the rights they ask for: by flag, or because the person trusts the folder."""
    from ...permissions.trust import is_trusted

    return settings.trust or is_trusted(settings.home, cwd)


def _flagged(settings: Settings, name: str, verdict: Verdict) -> tuple[Rule, ...]:
    origin = settings.origin(name)
    flag = f"--{name.replace('_', '-')}" if origin == "flag" else origin
    return parse_rules(split_rules([getattr(settings, name)]), verdict, origin=flag)


def join_tool_flags(flags: dict[str, Any]) -> dict[str, Any]:
    """Flags that may be given several times, as settings take them."""
    return flags | {
        name: ",".join(flags[name]) or None for name in ("allowed_tools", "disallowed_tools")
    }
