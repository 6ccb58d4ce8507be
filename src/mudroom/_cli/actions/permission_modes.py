"""Names of the permission modes, without the rules: flags need no more."""

from __future__ import annotations

from ..._core.agents import Mode

MODES = [mode.value for mode in Mode]
