"""Permission rules: which tool calls are allowed, denied or need confirmation.

The names listed here are public: pass `Session(permissions=Permissions.of(deny=["Bash(rm:*)"]))`.
"""

from __future__ import annotations

from .._core.agents import Mode
from .rules import Permissions, Rule, Verdict, parse_rule, parse_rules

__all__ = ["Mode", "Permissions", "Rule", "Verdict", "parse_rule", "parse_rules"]
