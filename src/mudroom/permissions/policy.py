"""Policy port: decides each call by the rules, the permission mode and the agents' limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .._core.agents import Mode
from .._core.messages import ToolCallBlock
from .._core.ports import PermissionVerdict, Workspace
from .._core.runs import Brief
from .._core.tools import Tool, ToolCategory
from .agent_limits import AgentLimit, ToolLimits, collect_limits, make_deny_rules
from .filtered_workspace import FilteredWorkspace
from .match_call import CallMatcher, get_call_path
from .path_rules import PathContext, covers_path
from .rules import RULE_VERDICTS, CallFinding, CallKind, Permissions, Verdict

if TYPE_CHECKING:
    from .shell_judge import CommandJudge

_SANDBOXED = "no rule is against it, and it runs within the sandbox"
_ALLOWED = PermissionVerdict(Verdict.ALLOW, _SANDBOXED)
_EFFECT_TEXTS = {
    ToolCategory.WRITE: "a file is changed",
    ToolCategory.RUN: "a command runs",
    ToolCategory.NETWORK: "a request leaves this machine",
}
_KINDS = {
    ToolCategory.READ: CallKind.READ,
    ToolCategory.AGENT: CallKind.READ,
    ToolCategory.WRITE: CallKind.EDIT,
}


class RulePolicy:
    """Policy of a session: implements the port Policy.

    Arguments:
        workspace, user_home: absolute paths.
        tools: the built-in tools by name; they say which rules are about files.
        tier: returns the sandbox's tier; called only when it is needed.
    """

    def __init__(
        self,
        permissions: Permissions,
        *,
        workspace: str,
        user_home: str,
        tools: Mapping[str, Tool],
        tier: Callable[[], str],
    ) -> None:
        self._permissions = permissions
        self._tier = tier
        self._context = PathContext(workspace, user_home)
        self._matcher = CallMatcher(self._context, tools)
        self._rules = {
            verdict: [rule for rule in permissions.rules if rule.verdict == verdict]
            for verdict in RULE_VERDICTS
        }
        self.read_denials = [
            rule
            for rule in self._rules[Verdict.DENY]
            if rule.pattern and self._matcher.applies_to_access(rule, ToolCategory.READ)
        ]
        self._command_judges: dict[str, CommandJudge] = {}
        self._narrowed: dict[ToolLimits, tuple[RulePolicy, list[AgentLimit]]] = {}
        self._allows_all = not (
            permissions.rules or permissions.can_ask or permissions.denies_unlisted
        )

    def judge(
        self, call: ToolCallBlock, tool: Tool, arguments: Mapping[str, Any], brief: Brief
    ) -> PermissionVerdict:
        """Decide on a call of a run."""
        mode = brief.mode.limit_to(self._permissions.mode)
        limits = collect_limits(brief)
        if not limits:
            return self.decide(tool, arguments, mode)
        narrowed, agent_limits = self._narrow_to(limits)
        for agent_limit in agent_limits:
            if refusal := agent_limit.find_refusal(tool, arguments):
                return refusal
        return narrowed.decide(tool, arguments, mode)

    def filter_workspace(self, workspace: Workspace, tool: str, brief: Brief) -> Workspace:
        """Return the workspace without the files this tool may not read in this run."""
        limits = collect_limits(brief)
        if not limits and not self.read_denials:
            return workspace
        narrowed, agent_limits = self._narrow_to(limits)
        reader = self._matcher.tools.get(tool)

        def find_refusal(path: str) -> str:
            for rule in narrowed.read_denials:
                if covers_path(rule, path, self._context, ignore_case=True):
                    return f"a rule denies it: {rule}"
            if reader is None:
                return ""
            refusals = (limit.find_read_refusal(reader, path) for limit in agent_limits)
            return next(filter(None, refusals), "")

        return FilteredWorkspace(workspace, find_refusal)

    def _narrow_to(self, limits: ToolLimits) -> tuple[RulePolicy, list[AgentLimit]]:
        """Return this policy with the agents' deny rules added, and the limit of each agent."""
        if limits not in self._narrowed:
            denials = tuple(rule for patterns in limits for rule in make_deny_rules(patterns))
            policy = RulePolicy(
                replace(self._permissions, rules=self._permissions.rules + denials),
                workspace=self._context.workspace,
                user_home=self._context.user_home,
                tools=self._matcher.tools,
                tier=self._tier,
            )
            agent_limits = [AgentLimit(patterns, self._matcher) for patterns in limits]
            self._narrowed[limits] = (policy, agent_limits)
        return self._narrowed[limits]

    def decide(self, tool: Tool, arguments: Mapping[str, Any], mode: Mode) -> PermissionVerdict:
        """Decide on a call in a permission mode. The strictest verdict of its parts counts."""
        if (
            self._allows_all
            and not tool.needs_confirmation
            and mode in (Mode.DEFAULT, Mode.ACCEPT_EDITS, Mode.BYPASS)
        ):
            return _ALLOWED
        findings = self.collect_findings(tool, arguments)
        verdicts = [self.apply_mode(finding, mode) for finding in findings]
        return min(verdicts, key=lambda verdict: RULE_VERDICTS.index(Verdict(verdict.verdict)))

    def collect_findings(self, tool: Tool, arguments: Mapping[str, Any]) -> list[CallFinding]:
        """Return the finding of each part of a call, before the mode is applied."""
        if tool.category is not ToolCategory.RUN:
            return [self._judge_call(tool, arguments)]
        command = str(arguments.get(tool.rule_argument, ""))
        findings = self._get_command_judge(tool).judge(command)
        if tool.needs_confirmation:
            why = "without a sandbox each command needs a confirmation"
            findings.append(CallFinding(Verdict.ASK, CallKind.RUN, why))
        return findings

    def _get_command_judge(self, tool: Tool) -> CommandJudge:
        if tool.name not in self._command_judges:
            # Importing the bash grammar takes time, and many sessions judge no command.
            from .shell_judge import CommandJudge

            judge = CommandJudge(self._permissions.rules, tool, self._matcher)
            self._command_judges[tool.name] = judge
        return self._command_judges[tool.name]

    def _judge_call(self, tool: Tool, arguments: Mapping[str, Any]) -> CallFinding:
        kind = _get_call_kind(tool)
        for verdict in RULE_VERDICTS:
            for rule in self._rules[verdict]:
                if not self._matcher.applies(rule, tool):
                    continue
                if self._matcher.matches(rule, tool, arguments):
                    return CallFinding(verdict, kind, f"a rule says {verdict}", rule)
        if tool.needs_confirmation:
            return CallFinding(Verdict.ASK, kind, "the tool asks for confirmation")
        path = get_call_path(tool, arguments)
        if kind == CallKind.EDIT and path and not self._context.is_inside(path):
            why = f"{path} is outside the workspace"
            return CallFinding(Verdict.UNDECIDED, CallKind.RUN, why)
        why = "it acts outside the workspace"
        if tool.category:
            why = _EFFECT_TEXTS.get(tool.category, why)
        verdict = Verdict.ALLOW if kind == CallKind.READ else Verdict.UNDECIDED
        return CallFinding(verdict, kind, why)

    def apply_mode(self, finding: CallFinding, mode: Mode) -> PermissionVerdict:
        """Turn a finding into a verdict by the permission mode."""
        rule = str(finding.rule) if finding.rule else ""

        def verdict(verdict: Verdict, why: str = "") -> PermissionVerdict:
            return PermissionVerdict(verdict, why or finding.why, rule, finding.command)

        if finding.verdict == Verdict.DENY:
            return verdict(Verdict.DENY)
        if mode is Mode.BYPASS:
            return verdict(Verdict.ALLOW, "only deny rules apply in this mode")
        if mode is Mode.PLAN and finding.kind != CallKind.READ:
            return verdict(Verdict.DENY, "only reading is allowed in plan mode")
        if finding.verdict == Verdict.ALLOW:
            return verdict(Verdict.ALLOW)
        if mode is Mode.DONT_ASK:
            return verdict(Verdict.DENY, f"{finding.why}, and this mode asks no questions")
        if finding.verdict == Verdict.UNDECIDED and self._is_trusted(finding.kind, mode):
            return verdict(Verdict.ALLOW, _SANDBOXED)
        return verdict(Verdict.ASK)

    def _is_trusted(self, kind: CallKind, mode: Mode) -> bool:
        """Return whether an undecided call runs without asking."""
        accepts_edit = mode is Mode.ACCEPT_EDITS and kind == CallKind.EDIT
        if not self._permissions.can_ask:
            return accepts_edit or not self._permissions.denies_unlisted
        if accepts_edit:
            return True
        in_sandbox = kind == CallKind.RUN and self._tier() in ("full", "file")
        return mode is Mode.ACCEPT_EDITS and in_sandbox


def _get_call_kind(tool: Tool) -> CallKind:
    for category, kind in _KINDS.items():
        if tool.has_category(category):
            return kind
    return CallKind.EXTERNAL
