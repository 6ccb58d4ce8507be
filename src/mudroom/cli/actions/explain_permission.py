"""`mudroom permissions explain`: what would become of a call, part by part."""

from __future__ import annotations

import os
import sys
from typing import Any

import msgspec

from ..._core.tools import Effect, Tool, canonical_tool_name
from ...permissions.policy import RulePolicy
from ...permissions.rules import Permissions
from ...projections.safe_text import sanitize_line

_TELLING = {"bash": "command", "task": "agent", "skill": "name", "web_fetch": "url"}


def explain_call(held: Permissions, words: str, *, tool: str, cwd: str, as_json: bool) -> int:
    """Print it; exit code 0 if it would be allowed, 1 if asked or denied.

    Arguments:
        words: the command, or the file, agent or address of another tool.
    """
    name = canonical_tool_name(tool)
    policy = RulePolicy(
        held,
        workspace=os.path.realpath(cwd),
        user_home=os.environ.get("HOME", "/"),
        tier=lambda: "off",
    )
    stand_in = _tool(name)
    arguments = {_TELLING.get(name, "file_path"): words}
    decision = policy.decide(stand_in, arguments, held.mode)
    parts = [
        policy.apply_mode(finding, held.mode)
        for finding in policy.collect_findings(stand_in, arguments)
    ]
    if as_json:
        print(
            msgspec.json.encode({"decision": decision, "mode": held.mode, "parts": parts}).decode()
        )
    else:
        print(
            f"{decision.verdict}: {decision.why}"
            + (f"\n  by {decision.rule}" if decision.rule else "")
        )
        for part in parts if len(parts) > 1 else ():
            print(
                f"  {part.verdict:5}  {sanitize_line(part.part, 60)}: {part.why}"
                + (f", by {part.rule}" if part.rule else "")
            )
    sys.stdout.flush()
    return 0 if decision.verdict == "allow" else 1


def _tool(name: str) -> Tool:
    async def never(context: Any, arguments: Any) -> Any:
        raise AssertionError("it is only judged")

    effect = Effect.PURE if name in ("read", "glob", "grep", "todo", "skill") else Effect.EFFECTFUL
    return Tool(name=name, description="", parameters={}, parse=dict, run=never, effect=effect)
