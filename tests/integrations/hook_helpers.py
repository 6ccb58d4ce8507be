"""Builders of hooks for the tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mudroom._adapters.integrations.hook_programs.hook_set import HookSet
from mudroom._adapters.integrations.hook_programs.run_log import RunLog
from mudroom._adapters.integrations.hook_programs.spec import HookSpec


def make_spec(event: str, command: str, **fields: Any) -> HookSpec:
    defaults: dict[str, Any] = {
        "kind": "command",
        "origin": "settings.json",
        "scope": "user",
        "shown": command,
    }
    return HookSpec(event=event, command=command, **(defaults | fields))


def make_set(folder: Path, *specs: HookSpec, environ: dict[str, str] | None = None) -> HookSet:
    return HookSet(
        specs,
        {},
        session="s",
        folder=str(folder),
        environ=environ or {},
        run_log=RunLog(str(folder / "home")),
    )
