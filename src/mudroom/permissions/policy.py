"""A session's policy: decides each call by rules, permission mode and agents' patterns."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from .._core.agents import Mode
from .._core.messages import ToolCallBlock
from .._core.ports import (
    FileInfo,
    LinkTarget,
    PermissionVerdict,
    SkippedPaths,
    Workspace,
    WorkspaceWrapper,
)
from .._core.runs import Brief
from .._core.tool_names import parse_tool_patterns
from .._core.tools import Tool, ToolCategory
from .._platform.paths import path_from_text, path_to_text
from ..errors import WorkspaceError
from .path_rules import CallMatcher, PathContext, covers_path, get_call_path, get_file_access
from .rules import RULE_VERDICTS, CallFinding, CallKind, Permissions, Rule, Verdict

if TYPE_CHECKING:
    from .shell_judge import CommandJudge

_SANDBOXED = "no rule is against it, and it runs within the sandbox"
_UNATTENDED = "no rule is against it, and no user can be asked"
# In the other tiers nothing holds a command back.
_SANDBOX_TIERS = ("full", "file")
_ALLOWED = PermissionVerdict(Verdict.ALLOW, _SANDBOXED)
_ALLOWED_UNATTENDED = PermissionVerdict(Verdict.ALLOW, _UNATTENDED)
_EFFECT_TEXTS = {
    ToolCategory.WRITE: "a file is changed",
    ToolCategory.RUN: "a command runs",
    ToolCategory.NETWORK: "a request leaves this machine",
}
_KINDS = {
    ToolCategory.READ: CallKind.READ,
    ToolCategory.AGENT: CallKind.READ,
    ToolCategory.WRITE: CallKind.EDIT,
    ToolCategory.BOARD: CallKind.BOARD,
}


class RulePolicy:
    """The Policy of a session.

    The built-in `tools` tell the rules about files. `tier` is called only when needed. With
    `asks_before_edits` false, file changes need no confirmation even with a user to ask.
    """

    def __init__(
        self,
        permissions: Permissions,
        *,
        workspace: str,
        user_home: str,
        tools: Mapping[str, Tool],
        tier: Callable[[], str],
        asks_before_edits: bool = True,
    ) -> None:
        self._permissions = permissions
        self._asks_before_edits = asks_before_edits
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
        self._narrowed: dict[CallPatterns, tuple[RulePolicy, list[AgentPatterns]]] = {}
        self._allows_all = not (
            permissions.rules or permissions.can_ask or permissions.denies_unlisted
        )

    def judge(
        self, call: ToolCallBlock, tool: Tool, arguments: Mapping[str, Any], brief: Brief
    ) -> PermissionVerdict:
        mode = brief.mode.limit_to(self._permissions.mode)
        call_patterns = collect_call_patterns(brief)
        if not call_patterns:
            return self.decide(tool, arguments, mode)
        narrowed, agents = self._narrow_to(call_patterns)
        for agent in agents:
            if refusal := agent.find_refusal(tool, arguments):
                return refusal
        return narrowed.decide(tool, arguments, mode)

    def filter_workspace(self, workspace: Workspace, tool: str, brief: Brief) -> Workspace:
        call_patterns = collect_call_patterns(brief)
        if not call_patterns and not self.read_denials:
            return workspace
        narrowed, agents = self._narrow_to(call_patterns)
        reader = self._matcher.tools.get(tool)

        def find_refusal(path: str) -> str:
            for rule in narrowed.read_denials:
                if covers_path(rule, path, self._context, ignore_case=True):
                    return f"a rule denies it: {rule}"
            if reader is None:
                return ""
            refusals = (agent.find_read_refusal(reader, path) for agent in agents)
            return next(filter(None, refusals), "")

        return FilteredWorkspace(workspace, find_refusal)

    def denies_reading(self, path: str) -> bool:
        """Return whether a rule forbids every run from reading a file, given by absolute path."""
        return any(
            covers_path(rule, path, self._context, ignore_case=True) for rule in self.read_denials
        )

    def _narrow_to(self, call_patterns: CallPatterns) -> tuple[RulePolicy, list[AgentPatterns]]:
        """Add the agents' deny rules to this policy; return it with the patterns of each agent."""
        if call_patterns not in self._narrowed:
            denials = tuple(rule for texts in call_patterns for rule in make_deny_rules(texts))
            policy = RulePolicy(
                replace(self._permissions, rules=self._permissions.rules + denials),
                workspace=self._context.workspace,
                user_home=self._context.user_home,
                tools=self._matcher.tools,
                tier=self._tier,
                asks_before_edits=self._asks_before_edits,
            )
            agents = [AgentPatterns(texts, self._matcher) for texts in call_patterns]
            self._narrowed[call_patterns] = (policy, agents)
        return self._narrowed[call_patterns]

    def decide(self, tool: Tool, arguments: Mapping[str, Any], mode: Mode) -> PermissionVerdict:
        """Decide about a call in a permission mode; the strictest verdict of its parts counts."""
        if (
            self._allows_all
            and not (tool.needs_confirmation or tool.confirmation_reason)
            and tool.category is not ToolCategory.WRITE
            and mode in (Mode.DEFAULT, Mode.ACCEPT_EDITS, Mode.BYPASS)
        ):
            return _ALLOWED if self._is_sandboxed() else _ALLOWED_UNATTENDED
        findings = self.collect_findings(tool, arguments)
        verdicts = [self.apply_mode(finding, mode) for finding in findings]
        return min(verdicts, key=lambda verdict: RULE_VERDICTS.index(Verdict(verdict.verdict)))

    def collect_findings(self, tool: Tool, arguments: Mapping[str, Any]) -> list[CallFinding]:
        """Judge each part of a call, before the mode is applied."""
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

            judge = CommandJudge(
                self._permissions.rules, tool, self._matcher, is_sandboxed=self._is_sandboxed
            )
            self._command_judges[tool.name] = judge
        return self._command_judges[tool.name]

    def _is_sandboxed(self) -> bool:
        return self._tier() in _SANDBOX_TIERS

    def _judge_call(self, tool: Tool, arguments: Mapping[str, Any]) -> CallFinding:
        kind = _get_call_kind(tool)
        for verdict in RULE_VERDICTS:
            for rule in self._rules[verdict]:
                if not self._matcher.applies(rule, tool):
                    continue
                # Such a tool asks every time, whatever the allow rules say.
                if verdict is Verdict.ALLOW and tool.confirmation_reason:
                    continue
                if self._matcher.matches(rule, tool, arguments):
                    return CallFinding(verdict, kind, f"a rule says {verdict}", rule)
        if tool.needs_confirmation or tool.confirmation_reason:
            why = tool.confirmation_reason or "the tool asks for confirmation"
            return CallFinding(Verdict.ASK, kind, why)
        path = get_call_path(tool, arguments)
        if kind == CallKind.EDIT and path and not self._context.is_file_inside(path):
            why = f"{path} is outside the workspace (set it with -C, or cwd in a program)"
            return CallFinding(Verdict.ASK, kind, why)
        why = "it acts outside the workspace"
        if tool.category:
            why = _EFFECT_TEXTS.get(tool.category, why)
        is_harmless = kind in (CallKind.READ, CallKind.BOARD)
        verdict = Verdict.ALLOW if is_harmless else Verdict.UNDECIDED
        return CallFinding(verdict, kind, why)

    def apply_mode(self, finding: CallFinding, mode: Mode) -> PermissionVerdict:
        rule = str(finding.rule) if finding.rule else ""

        def decide_as(verdict: Verdict, why: str = "") -> PermissionVerdict:
            return PermissionVerdict(verdict, why or finding.why, rule, finding.command)

        if finding.verdict == Verdict.DENY:
            return decide_as(Verdict.DENY)
        if mode is Mode.BYPASS:
            return decide_as(Verdict.ALLOW, "only deny rules apply in this mode")
        if mode is Mode.PLAN and finding.kind != CallKind.READ:
            return decide_as(Verdict.DENY, "only reading is allowed in plan mode")
        if finding.verdict == Verdict.ALLOW:
            return decide_as(Verdict.ALLOW)
        if mode is Mode.DONT_ASK:
            return decide_as(Verdict.DENY, f"{finding.why}, and this mode asks no questions")
        if finding.verdict == Verdict.UNDECIDED and self._runs_unasked(finding.kind, mode):
            return decide_as(Verdict.ALLOW, _SANDBOXED if self._is_sandboxed() else _UNATTENDED)
        return decide_as(Verdict.ASK)

    def _runs_unasked(self, kind: CallKind, mode: Mode) -> bool:
        if mode is Mode.ACCEPT_EDITS and kind == CallKind.EDIT:
            return True
        if not self._permissions.can_ask:
            return not self._permissions.denies_unlisted
        if kind == CallKind.EDIT and not self._asks_before_edits:
            return True
        is_command = mode is Mode.ACCEPT_EDITS and kind == CallKind.RUN
        return is_command and self._is_sandboxed()


def _get_call_kind(tool: Tool) -> CallKind:
    for category, kind in _KINDS.items():
        if tool.has_category(category):
            return kind
    return CallKind.EXTERNAL


CallPatterns = tuple[tuple[str, ...], ...]
"""The call patterns of a run's agent and of each agent above it, all of which must allow a call."""
PATTERN_ORIGIN = "its agent's tools"


def collect_call_patterns(brief: Brief) -> CallPatterns:
    own = brief.agent.call_patterns if brief.agent.tools else ()
    return (*brief.inherited_patterns, own) if own else brief.inherited_patterns


def make_deny_rules(texts: tuple[str, ...]) -> Iterator[Rule]:
    """Make a deny rule from each excluding pattern.

    If the text in brackets is invalid, the rule denies all calls of the tool.
    """
    for pattern in parse_tool_patterns(texts):
        if pattern.is_excluded:
            calls = pattern.calls if pattern.is_valid else ""
            yield Rule(Verdict.DENY, pattern.tool, calls, PATTERN_ORIGIN)


class AgentPatterns:
    """The call patterns of one agent; where a tool has any, a call must match one of them."""

    def __init__(self, texts: tuple[str, ...], matcher: CallMatcher) -> None:
        self._matcher = matcher
        self._context = matcher.context
        self._patterns = [
            pattern for pattern in parse_tool_patterns(texts) if not pattern.is_excluded
        ]

    def _find_rules(self, tool: Tool) -> list[Rule] | None:
        """Find the rules, one of which must match; None if the tool has no call patterns."""
        patterns = [pattern for pattern in self._patterns if pattern.matches_tool(tool.name)]
        valid = [pattern for pattern in patterns if pattern.is_valid]
        if not patterns or not all(pattern.calls for pattern in valid):
            return None
        return [Rule(Verdict.ALLOW, each.tool, each.calls, PATTERN_ORIGIN) for each in valid]

    def find_refusal(self, tool: Tool, arguments: Mapping[str, Any]) -> PermissionVerdict | None:
        """Explain why this agent may not make a call; None if it may."""
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
        """Explain why a tool may not read an absolute path; "" if it may."""
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


FindRefusal = Callable[[str], str]
"""Maps an absolute path to why it may not be read, "" if it may."""


class FilteredWorkspace(WorkspaceWrapper):
    def __init__(self, inner: Workspace, find_refusal: FindRefusal) -> None:
        super().__init__(inner)
        self._find_refusal = find_refusal

    @property
    def local(self) -> FilteredWorkspace | None:
        return None if self.inner.local is None else self

    def open(self, path: str) -> int:
        """Open a regular file and return its descriptor.

        The check is made on the file actually opened, so that swapping a link in between has no
        effect. Raises WorkspaceError if the file may not be read.
        """
        if self.inner.local is None:
            raise WorkspaceError(f"{path} is not a file of this machine")
        descriptor = self.inner.local.open(path)
        absolute = os.path.join(self.inner.root, self.inner.locate(path))
        opened = _read_descriptor_path(descriptor, absolute)
        try:
            self._check(path, absolute)
            self._check(path, opened)
        except WorkspaceError:
            os.close(descriptor)
            raise
        return descriptor

    def read_link(self, path: str) -> LinkTarget | None:
        return self.inner.local.read_link(path) if self.inner.local else None

    def read(self, path: str, offset: int, size: int) -> bytes:
        if self.inner.local is None:
            self._check(path, os.path.join(self.inner.root, self.inner.locate(path)))
            return self.inner.read(path, offset, size)
        with os.fdopen(self.open(path), "rb") as file:
            file.seek(offset)
            return file.read(size)

    def _check(self, path: str, absolute: str) -> None:
        why = self._find_refusal(absolute)
        if why:
            raise WorkspaceError(f"{path} may not be read: {why}", remedy="Do without it.")

    def walk(
        self, path: str = ".", *, ignored: bool = False, skipped: list[str] | None = None
    ) -> Iterator[FileInfo]:
        infos = self.inner.walk(path, ignored=ignored, skipped=skipped)
        return self._filter(path, infos, skipped)

    def walk_entries(
        self, path: str = ".", *, ignored: bool = False, skipped: list[str] | None = None
    ) -> Iterator[FileInfo]:
        infos = self.inner.walk_entries(path, ignored=ignored, skipped=skipped)
        return self._filter(path, infos, skipped)

    def _filter(
        self, path: str, infos: Iterator[FileInfo], skipped: list[str] | None
    ) -> Iterator[FileInfo]:
        """Drop the files that may not be read, counting them.

        Links are not followed, but the folder itself may be reached through one.
        """
        start = os.path.join(self.inner.root, self.inner.locate(path))
        real_start = path_to_text(os.path.realpath(path_from_text(start)))
        for info in infos:
            absolute = os.path.join(self.inner.root, info.path)
            real = real_start + absolute[len(start) :]
            if self._find_refusal(absolute) or (real != absolute and self._find_refusal(real)):
                if isinstance(skipped, SkippedPaths) and not stat.S_ISDIR(info.mode):
                    skipped.refused += 1
                continue
            yield info


def _read_descriptor_path(descriptor: int, path: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")
    except OSError:
        return os.path.realpath(path)
