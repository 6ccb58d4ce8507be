"""Permission rules: which tool calls are allowed, denied, or need confirmation.

The names listed here are public. Pass `Session(permissions=Permissions.of(deny=["Bash(rm:*)"]))`.

Example:
    rule: Rule = parse_rule("Bash(git push:*)", Verdict.DENY)
    reading = parse_rules(["Read(src/**)", "Read(tests/**)"], Verdict.ALLOW)
    Permissions(rules=(rule, *reading), mode=Mode.DONT_ASK)
"""

from __future__ import annotations

from .._core.agents import Mode
from .rules import Permissions, Rule, Verdict, parse_rule, parse_rules

__all__ = ["Mode", "Permissions", "Rule", "Verdict", "parse_rule", "parse_rules"]
