"""What the tools of an agent say of single calls: `bash(git:*)` only these, `!read(.env)` not these. Limits never allow anything."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from msgspec.structs import replace

from .._core.agents import Brief
from .._core.ports import PermissionVerdict
from .._core.tools import canonical_tool_name
from ..errors import UsageError
from .match_call import matches_call, path_argument
from .path_rules import PathContext, covers_path
from .rules import ALLOW, DENY, FILE_TOOLS, Rule, parse_rule

ToolLimits = tuple[tuple[str, ...], ...]
"""The limits that hold for a run: its agent's, and those of all above it; each agent's must let a call pass."""
LIMIT_ORIGIN = "its agent's tools"


def collect_limits(brief: Brief) -> ToolLimits:
    """The limits of a run."""
    own = brief.agent.call_patterns if brief.agent.tools else ()
    return (*brief.limits, own) if own else brief.limits


def make_deny_rules(texts: tuple[str, ...]) -> Iterator[Rule]:
    """What an agent bars, as deny rules; all calls of a tool where it cannot be understood which."""
    for tool, rule in map(_parse, (text[1:] for text in texts if text.startswith("!"))):
        yield replace(rule, verdict=DENY) if rule else Rule(DENY, tool, origin=LIMIT_ORIGIN)


class AgentLimit:
    """What one agent allows of the tools it has only in part.

    Arguments:
        texts: see Agent.limits. place: where relative paths begin.
    """

    def __init__(self, texts: tuple[str, ...], place: PathContext) -> None:
        self._place = place
        self._allow_rules = [_parse(text) for text in texts if not text.startswith("!")]

    def _rules_for(self, tool: str) -> list[Rule] | None:
        """The rules one of which must fit, None where the tool is not limited."""
        found = [rule for name, rule in self._allow_rules if fnmatchcase(tool, name)]
        free = not found or any(rule and not rule.spec for rule in found)
        return None if free else [rule for rule in found if rule]

    def find_refusal(self, tool: str, arguments: Mapping[str, Any]) -> PermissionVerdict | None:
        """Why this agent may not make a call; None where it may, as far as this goes."""
        only = self._rules_for(tool)
        if only is None or tool in ("glob", "grep"):
            return None  # what these find goes through `hides`
        if tool == "bash":
            return self._refuse_command(only, str(arguments.get("command", "")))
        if tool == "read" and not self._place.is_inside(path_argument(tool, arguments)):
            return None  # nothing out there can be read but what the run was given: long output, skills
        if any(
            matches_call(replace(rule, tool=tool), tool, arguments, self._place) for rule in only
        ):
            return None
        return PermissionVerdict(DENY, _explain(tool, only))

    def _refuse_command(self, only: list[Rule], command: str) -> PermissionVerdict | None:
        from .shell_judge import CommandJudge  # the shell's grammar costs time

        found = CommandJudge(only, self._place, allow_reading=False).judge(command)
        refused = next((finding for finding in found if finding.verdict != ALLOW), None)
        return refused and PermissionVerdict(
            DENY, f"{_explain('bash', only)}; {refused.why}", part=refused.command
        )

    def find_read_refusal(self, tool: str, path: str) -> str:
        """Why a tool that reads may not see an absolute path, "" if it may."""
        only = self._rules_for(tool)
        if only is None or FILE_TOOLS.get(tool) != "read" or not self._place.is_inside(path):
            return ""
        return (
            ""
            if any(covers_path(rule, path, self._place, ignore_case=False) for rule in only)
            else _explain(tool, only)
        )


def _explain(tool: str, only: list[Rule]) -> str:
    specs = ", ".join(f"{tool}({rule.spec})" for rule in only)
    return (
        f"its agent has only {specs}"
        if specs
        else f"what its agent may do with {tool} cannot be understood"
    )


def _parse(text: str) -> tuple[str, Rule | None]:
    """The tool a limit is about, and its rule; None if that is none."""
    try:
        rule = parse_rule(text, ALLOW, origin=LIMIT_ORIGIN)
    except UsageError:
        return canonical_tool_name(text.partition("(")[0]), None
    return rule.tool, rule
