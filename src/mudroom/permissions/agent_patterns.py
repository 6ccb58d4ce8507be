"""Call patterns of agents: `bash(git:*)` allows only these calls, `!read(.env)` forbids these.

They only narrow what the rules of the session allow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from .._core.ports import PermissionVerdict
from .._core.runs import Brief
from .._core.tool_patterns import parse_tool_patterns
from .._core.tools import Tool, ToolCategory
from .match_call import CallMatcher, get_call_path, get_file_access
from .path_rules import covers_path
from .rules import Rule, Verdict

CallPatterns = tuple[tuple[str, ...], ...]
"""The call patterns of a run's agent and of each agent above it. Every one must let a call pass."""
PATTERN_ORIGIN = "its agent's tools"


def collect_call_patterns(brief: Brief) -> CallPatterns:
    """Return the call patterns that apply to a run."""
    own = brief.agent.call_patterns if brief.agent.tools else ()
    return (*brief.inherited_patterns, own) if own else brief.inherited_patterns


def make_deny_rules(texts: tuple[str, ...]) -> Iterator[Rule]:
    """Yield a deny rule for each excluding pattern.

    If the text in the brackets is not valid, the rule denies all calls of the tool.
    """
    for pattern in parse_tool_patterns(texts):
        if pattern.is_excluded:
            calls = pattern.calls if pattern.is_valid else ""
            yield Rule(Verdict.DENY, pattern.tool, calls, PATTERN_ORIGIN)


class AgentPatterns:
    """The call patterns of one agent: of a tool that has some, it may call only what matches one.

    Arguments:
        texts: see Agent.call_patterns.
    """

    def __init__(self, texts: tuple[str, ...], matcher: CallMatcher) -> None:
        self._matcher = matcher
        self._context = matcher.context
        self._patterns = [
            pattern for pattern in parse_tool_patterns(texts) if not pattern.is_excluded
        ]

    def _find_rules(self, tool: Tool) -> list[Rule] | None:
        """Return the rules of which one must match, or None if the tool has no call patterns."""
        patterns = [pattern for pattern in self._patterns if pattern.matches_tool(tool.name)]
        valid = [pattern for pattern in patterns if pattern.is_valid]
        if not patterns or not all(pattern.calls for pattern in valid):
            return None
        return [Rule(Verdict.ALLOW, each.tool, each.calls, PATTERN_ORIGIN) for each in valid]

    def find_refusal(self, tool: Tool, arguments: Mapping[str, Any]) -> PermissionVerdict | None:
        """Return the reason why this agent may not make a call, or None if it may."""
        rules = self._find_rules(tool)
        if rules is None or tool.is_search:
            return None  # the results of a search are filtered by find_read_refusal
        if tool.category is ToolCategory.RUN:
            return self._refuse_command(rules, tool, str(arguments.get(tool.rule_argument, "")))
        is_read = get_file_access(tool) is ToolCategory.READ
        if is_read and not self._context.is_inside(get_call_path(tool, arguments)):
            return None  # outside the workspace only files given to the run can be opened
        for rule in rules:
            if self._matcher.matches(replace(rule, tool=tool.name), tool, arguments):
                return None
        return PermissionVerdict(Verdict.DENY, _explain(tool.name, rules))

    def _refuse_command(
        self, rules: list[Rule], tool: Tool, command: str
    ) -> PermissionVerdict | None:
        from .shell_judge import CommandJudge  # importing the bash grammar takes time

        judge = CommandJudge(rules, tool, self._matcher, allow_reading=False)
        for finding in judge.judge(command):
            if finding.verdict != Verdict.ALLOW:
                why = f"{_explain(tool.name, rules)}; {finding.why}"
                return PermissionVerdict(Verdict.DENY, why, command_part=finding.command)
        return None

    def find_read_refusal(self, tool: Tool, path: str) -> str:
        """Return the reason why a tool may not read an absolute path, "" if it may."""
        rules = self._find_rules(tool)
        is_read = get_file_access(tool) is ToolCategory.READ
        if rules is None or not is_read or not self._context.is_inside(path):
            return ""
        if any(covers_path(rule, path, self._context, ignore_case=False) for rule in rules):
            return ""
        return _explain(tool.name, rules)


def _explain(tool: str, rules: list[Rule]) -> str:
    patterns = ", ".join(f"{tool}({rule.pattern})" for rule in rules)
    if patterns:
        return f"its agent has only {patterns}"
    return f"the agent's pattern for {tool} is not valid, so no call of it is allowed"
