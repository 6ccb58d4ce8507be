"""Choices of the user in the editor: permission modes, and the options mode and model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..._core.agents import Mode

MODE = "mode"
MODEL = "model"

_MODES = {
    Mode.DEFAULT: ("Default", "Asks before changes that no rule allows."),
    Mode.ACCEPT_EDITS: ("Accept edits", "Allows edits, and commands inside a sandbox."),
    Mode.PLAN: ("Plan", "Allows reading only."),
    Mode.DONT_ASK: ("Do not ask", "Denies all calls that would need an answer."),
    Mode.BYPASS: ("Bypass permissions", "Allows everything that no rule denies."),
}
"""Name and description of each mode, in the order of the menu."""


def make_modes(mode: Mode) -> dict[str, Any]:
    """Return the permission modes and the current one."""
    listed = [
        {"id": each.value, "name": name, "description": description}
        for each, (name, description) in _MODES.items()
    ]
    return {"currentModeId": mode.value, "availableModes": listed}


def make_options(mode: Mode, model: str, models: Sequence[str]) -> list[dict[str, Any]]:
    """Return the options of a session with their values.

    Arguments:
        model: current model string. models: those that work here.
    """
    modes = [
        {"value": each.value, "name": name, "description": description}
        for each, (name, description) in _MODES.items()
    ]
    names = dict.fromkeys([model, *models])
    return [
        _make_select(MODE, "Permission mode", MODE, mode.value, modes),
        _make_select(
            MODEL, "Model", MODEL, model, [{"value": name, "name": name} for name in names]
        ),
    ]


def _make_select(
    identifier: str, name: str, category: str, value: str, options: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "id": identifier,
        "name": name,
        "category": category,
        "type": "select",
        "currentValue": value,
        "options": options,
    }
