"""Names of the permission modes, for flags, which do not need the rules."""

from __future__ import annotations

from ..._core.agents import Mode

MODES = [mode.value for mode in Mode]
